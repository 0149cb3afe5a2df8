/*
 * mapped.c - see mapped.h.
 *
 * A registry word goes before the call that gives its range up, because the address may be another thread's
 * at once, and comes back when the call fails. Pages move to a range that was reserved before.
 */
#include "large/mapped.h"
#include "large/gather.h"
#include "large/large.h"
#include "large/mapping_records.h"
#include "large/move.h"
#include "large/release.h"
#include "large/retain.h"
#include "os/os.h"
#include <string.h>

/* Ends of at least this size are kept for reuse when a block shrinks; shorter ones are unmapped at once. */
#define KEPT_END_BYTES_MIN ((size_t)256 * 1024)

/* ---- allocation ---- */

/* From a kept piece that is long enough. */
static void *take_kept(size_t bytes, size_t align, size_t *dirty_bytes, uint64_t now_ms) {
    void *p = NULL;
    hak_mapping_lock_with_spare();
    hak_retain_touch(now_ms);
    struct hak_mapping *mapping = hak_mapping_best_fit(bytes, align);
    if (mapping != NULL) {
        hak_mapping_kept_to_transit(mapping);
        if (hak_mapping_is_worth_cutting(bytes, mapping->bytes - bytes)) {
            (void)hak_mapping_cut(mapping, bytes);
        }
        p = (void *)mapping->base;
        *dirty_bytes = mapping->dirty_bytes;
        hak_retain_fetched(HAK_LARGE_MAPPINGS, mapping->bytes - mapping->dirty_bytes, now_ms);
        hak_mapping_transit_to_live(mapping, p, mapping->bytes);
    }
    hak_lock_release(&hak_large_lock);
    return p;
}

static void *map_fresh(size_t bytes, size_t align, uint64_t now_ms) {
    void *p;
    struct hak_mapping *mapping = hak_mapping_new_record();
    if (mapping == NULL) {
        return NULL;
    }
    if (hak_os_map_aligned(NULL, bytes, align, &p) != 0) {
        hak_mapping_drop_record(mapping);
        return NULL;
    }
    if (hak_mapping_prepare_words(p, bytes) != 0) {
        hak_os_drop(p, bytes);
        hak_mapping_drop_record(mapping);
        return NULL;
    }
    hak_lock_acquire(&hak_large_lock);
    hak_retain_fetched(HAK_LARGE_MAPPINGS, bytes, now_ms);
    hak_mapping_transit_to_live(mapping, p, bytes);
    hak_lock_release(&hak_large_lock);
    return p;
}

void *hak_mapped_alloc(size_t bytes, size_t align, bool to_be_zeroed, size_t *dirty_bytes) {
    size_t need_bytes = hak_mapping_round(bytes);
    size_t need_align = align > HAK_UNIT_BYTES ? align : HAK_UNIT_BYTES;
    uint64_t now_ms = hak_os_now_ms();
    void *p = take_kept(need_bytes, need_align, dirty_bytes, now_ms);
    if (p == NULL) {
        size_t part_min_bytes = to_be_zeroed ? need_bytes / 2 : HAK_GATHER_PART_BYTES_MIN;
        p = hak_gather(need_bytes, need_align, part_min_bytes, dirty_bytes, now_ms);
    }
    if (p == NULL) {
        *dirty_bytes = 0;
        p = map_fresh(need_bytes, need_align, now_ms);
    }
    return p;
}

/* ---- freeing ---- */

static bool is_live_at(const struct hak_mapping *mapping, const void *p) {
    return mapping->state == HAK_MAPPING_LIVE && mapping->base == (uintptr_t)p;
}

bool hak_mapped_free(struct hak_mapping *mapping, const void *p) {
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_large_lock);
    if (!is_live_at(mapping, p)) {
        hak_lock_release(&hak_large_lock);
        return false;
    }
    hak_retain_touch(now_ms);
    size_t own_bytes = mapping->bytes; /* live_to_kept() may merge it with its neighbours */
    hak_mapping_live_to_kept(mapping);
    hak_retain_note_freed(own_bytes);
    (void)hak_release_unlock(own_bytes, now_ms);
    return true;
}

size_t hak_mapped_bytes(struct hak_mapping *mapping, const void *p) {
    hak_lock_acquire(&hak_large_lock);
    size_t bytes = is_live_at(mapping, p) ? mapping->bytes : 0;
    hak_lock_release(&hak_large_lock);
    return bytes;
}

/* ---- resizing ---- */

/* Lock held on entry, released here. */
static void shrink(struct hak_mapping *mapping, size_t bytes, uint64_t now_ms) {
    size_t old_bytes = mapping->bytes;
    size_t end_bytes = old_bytes - bytes;
    if (end_bytes >= KEPT_END_BYTES_MIN && hak_mapping_cut(mapping, bytes)) {
        (void)hak_release_unlock(end_bytes, now_ms);
        return;
    }
    void *end = (char *)mapping->base + bytes;
    struct hak_seams end_seams;
    hak_mapping_cut_seams(mapping, bytes, &end_seams);
    hak_mapping_resize_live(mapping, bytes);
    hak_lock_release(&hak_large_lock);
    bool is_unmapped = hak_os_unmap(end, end_bytes) == 0;
    hak_lock_acquire(&hak_large_lock);
    if (is_unmapped) {
        hak_mapping_sever_after(mapping);
    } else {
        hak_mapping_resize_live(mapping, old_bytes);
        hak_mapping_restore_seams(mapping, bytes, &end_seams);
    }
    hak_lock_release(&hak_large_lock);
}

/* Lock held. Memory that the system has yet to fill with pages, where a kept piece might have served: the
 * block begins in one and grows over the rest of it. */
static void note_longer(size_t old_bytes, size_t bytes) {
    hak_retain_fetched(HAK_LARGE_MAPPINGS, bytes - old_bytes, hak_retain.touched_ms);
}

/* No lock; the block is the caller's and nothing of hakmem's lies behind it in its kernel mapping. */
static bool extend_in_place(struct hak_mapping *mapping, void *p, size_t old_bytes, size_t bytes) {
    size_t before_bytes = hak_seams_last(&mapping->seams); /* mremap takes one kernel mapping */
    if (hak_os_resize((char *)p + before_bytes, old_bytes - before_bytes, bytes - before_bytes) != 0) {
        return false;
    }
    /* Not before: leaves are never unmapped, and a size that cannot be had may ask for many. */
    if (hak_mapping_prepare_words(p, bytes) != 0) {
        hak_os_drop((char *)p + old_bytes, bytes - old_bytes);
        return false;
    }
    hak_lock_acquire(&hak_large_lock);
    note_longer(old_bytes, bytes);
    hak_mapping_resize_live(mapping, bytes);
    hak_lock_release(&hak_large_lock);
    return true;
}

static void *move_live(struct hak_mapping *mapping, void *p, size_t old_bytes, size_t bytes) {
    hak_lock_acquire(&hak_large_lock);
    hak_mapping_live_to_transit(mapping);
    hak_lock_release(&hak_large_lock);
    void *target =
        hak_move_piece(p, old_bytes, &mapping->seams, bytes, HAK_UNIT_BYTES, hak_mapping_round(bytes / 2));
    hak_lock_acquire(&hak_large_lock);
    if (target != NULL) {
        hak_mapping_transit_to_live(mapping, target, old_bytes); /* what it had was live all the time */
        note_longer(old_bytes, bytes);
        hak_mapping_resize_live(mapping, bytes);
    } else {
        hak_mapping_transit_to_live(mapping, p, old_bytes);
    }
    hak_lock_release(&hak_large_lock);
    return target;
}

void *hak_mapped_resize(struct hak_mapping *mapping, void *p, size_t bytes, bool *is_copy_better,
                        size_t *old_bytes) {
    size_t need_bytes = hak_mapping_round(bytes);
    uint64_t now_ms = hak_os_now_ms();
    hak_mapping_lock_with_spare();
    *old_bytes = is_live_at(mapping, p) ? mapping->bytes : 0;
    if (*old_bytes == 0) {
        hak_lock_release(&hak_large_lock);
        return NULL;
    }
    hak_retain_touch(now_ms);
    if (need_bytes < *old_bytes) {
        shrink(mapping, need_bytes, now_ms);
        return p;
    }
    bool has_room = need_bytes == *old_bytes || hak_mapping_absorb(mapping, need_bytes);
    bool is_last = mapping->after == NULL;
    bool is_copied = is_copy_better != NULL && !has_room && hak_mapping_may_copy(*old_bytes, need_bytes) &&
                     hak_mapping_has_warm(need_bytes);
    hak_lock_release(&hak_large_lock);
    if (is_copied) {
        *is_copy_better = true;
        return NULL;
    }
    if (has_room || (is_last && extend_in_place(mapping, p, *old_bytes, need_bytes))) {
        return p;
    }
    return move_live(mapping, p, *old_bytes, need_bytes);
}

bool hak_mapped_make_way(size_t old_bytes, size_t bytes) {
    size_t copy_bytes =
        hak_mapping_round(bytes) + HAK_UNIT_BYTES; /* at any address: there is room for it then */
    hak_lock_acquire(&hak_large_lock);
    bool is_in_way = hak_mapping_totals.kept_bytes >= copy_bytes;
    hak_lock_release(&hak_large_lock);
    if (!is_in_way || old_bytes <= HAK_MAPPING_COPY_BYTES_MAX) {
        return false;
    }
    (void)hak_large_trim(0);
    return true;
}

/* The pages lie at `stray`, page aligned only; brings them to a block, or back to `p`. */
static void *settle_stray(void *p, void *stray, size_t old_bytes, size_t need_bytes) {
    const struct hak_seams none = {.count = 0};
    void *target = hak_move_piece(stray, old_bytes, &none, need_bytes, HAK_UNIT_BYTES,
                                  hak_mapping_round(need_bytes / 2));
    if (target == NULL) {
        memcpy(p, stray, old_bytes);
        hak_os_drop(stray, old_bytes);
    }
    return target;
}

void *hak_mapped_adopt(void *p, size_t old_bytes, size_t bytes, bool may_be_run) {
    size_t need_bytes = hak_mapping_round(bytes);
    void *stray;
    void *target = NULL;
    struct hak_mapping *mapping = hak_mapping_new_record();
    if (mapping == NULL) {
        return NULL;
    }
    if (hak_os_detach(p, old_bytes, &stray) == 0) {
        target = settle_stray(p, stray, old_bytes, need_bytes);
    }
    if (target == NULL) {
        hak_mapping_drop_record(mapping);
        return NULL;
    }
    hak_lock_acquire(&hak_large_lock);
    if (!may_be_run) { /* a copy in a kept piece would have left the old block its pages */
        hak_retain_fetched(HAK_LARGE_MAPPINGS, need_bytes, hak_retain.touched_ms);
    }
    hak_mapping_transit_to_live(mapping, target, need_bytes);
    hak_lock_release(&hak_large_lock);
    return target;
}
