/*
 * mapped.c - see mapped.h.
 *
 * A registry word goes before the call that gives its range up, because the address may be another thread's
 * at once, and comes back when the call fails. Pages move to a range that was reserved before.
 */
#include "large/mapped.h"
#include "base/assert.h"
#include "large/release.h"
#include "large/retain.h"
#include "meta/arena.h"
#include "os/os.h"
#include <string.h>

#define RECORDS_AT_ONCE 16u

/* From twice this on, pages move to the same offset in it: the kernel then moves page tables, not pages. */
#define TABLE_BYTES ((size_t)2 * 1024 * 1024)

/* Ends of at least this size are kept for reuse when a block shrinks; shorter ones are unmapped at once. */
#define KEPT_END_BYTES_MIN ((size_t)1024 * 1024)

/* ---- records ---- */

static bool add_records(void) {
    struct hak_mapping *records = hak_meta_alloc(RECORDS_AT_ONCE * sizeof(struct hak_mapping));
    if (records == NULL) {
        return false;
    }
    hak_lock_acquire(&hak_large_lock);
    hak_mapping_add_spares(records, RECORDS_AT_ONCE);
    hak_lock_release(&hak_large_lock);
    return true;
}

/* A record in transit, without memory; NULL when out of memory. */
static struct hak_mapping *new_record(void) {
    for (;;) {
        hak_lock_acquire(&hak_large_lock);
        struct hak_mapping *mapping = hak_mapping_take_spare();
        hak_lock_release(&hak_large_lock);
        if (mapping != NULL || !add_records()) {
            return mapping;
        }
    }
}

static void drop_record(struct hak_mapping *mapping) {
    hak_lock_acquire(&hak_large_lock);
    hak_mapping_transit_to_spare(mapping);
    hak_lock_release(&hak_large_lock);
}

/* Takes the lock with a spare record at hand for a cut, if memory allows; without one nothing is cut. */
static void lock_with_spare(void) {
    hak_lock_acquire(&hak_large_lock);
    if (!hak_mapping_has_spare()) {
        hak_lock_release(&hak_large_lock);
        (void)add_records();
        hak_lock_acquire(&hak_large_lock);
    }
}

/* ---- moving pages ---- */

/* Where pages may move to: at `offset` in a multiple of `align`. */
struct place {
    size_t align;
    size_t offset;
};

static struct place place_for(const void *from, size_t bytes, size_t align) {
    if (bytes < 2 * TABLE_BYTES || align > HAK_UNIT_BYTES) {
        return (struct place){.align = align, .offset = 0};
    }
    uintptr_t offset = (uintptr_t)from & (TABLE_BYTES - 1);
    return (struct place){.align = TABLE_BYTES, .offset = hak_round_down(offset, HAK_UNIT_BYTES)};
}

/*
 * Reserves room for a block of `bytes`, with the registry leaf of its start; NULL when it cannot be had. Room
 * behind it is reserved for a moment too, so that the block can grow in place for a while.
 */
static void *reserve(struct place place, size_t bytes, size_t slack_bytes) {
    void *reserved;
    size_t page_bytes = hak_os_page_bytes();
    size_t total_bytes;
    if (__builtin_add_overflow(bytes, slack_bytes + place.align - page_bytes, &total_bytes) ||
        hak_os_reserve_aligned(total_bytes, page_bytes, &reserved) != 0) {
        return NULL;
    }
    char *start = reserved;
    char *target = (char *)hak_round_up((uintptr_t)start - place.offset, place.align) + place.offset;
    if (hak_registry_prepare(target, HAK_UNIT_BYTES) != 0) {
        (void)hak_os_unmap(start, total_bytes);
        return NULL;
    }
    size_t lead_bytes = (size_t)(target - start);
    size_t tail_bytes = total_bytes - lead_bytes - bytes;
    /* A failure leaves address space reserved, without memory. */
    if (lead_bytes != 0) {
        (void)hak_os_unmap(start, lead_bytes);
    }
    if (tail_bytes != 0) {
        (void)hak_os_unmap(target + bytes, tail_bytes);
    }
    return target;
}

/* No lock. Returns the new address, or NULL with everything as it was. */
static void *move(void *from, size_t old_bytes, size_t new_bytes, size_t align, size_t slack_bytes) {
    struct place place = place_for(from, new_bytes, align);
    void *target = reserve(place, new_bytes, slack_bytes);
    if (target == NULL && slack_bytes != 0) {
        target = reserve(place, new_bytes, 0);
    }
    if (target != NULL && hak_os_move(from, old_bytes, target, new_bytes) != 0) {
        (void)hak_os_unmap(target, new_bytes);
        target = NULL;
    }
    return target;
}

/* ---- allocation ---- */

/* From a kept piece that is long enough. */
static void *take_kept(size_t bytes, size_t align, size_t *dirty_bytes, uint64_t now_ms) {
    void *p = NULL;
    lock_with_spare();
    hak_retain_touch(now_ms);
    struct hak_mapping *mapping = hak_mapping_best_fit(bytes, align);
    if (mapping != NULL) {
        hak_mapping_kept_to_transit(mapping);
        if (hak_mapping_is_worth_cutting(bytes, mapping->bytes - bytes)) {
            (void)hak_mapping_cut(mapping, bytes);
        }
        p = (void *)mapping->base;
        *dirty_bytes = mapping->dirty_bytes;
        hak_retain_fetched(mapping->bytes - mapping->dirty_bytes, now_ms);
        hak_mapping_transit_to_live(mapping, p, mapping->bytes);
    }
    hak_lock_release(&hak_large_lock);
    return p;
}

/* From a kept piece that is too short, moved to where it can be longer: its pages need no new faults. */
static void *extend_kept(size_t bytes, size_t align, size_t *dirty_bytes, uint64_t now_ms) {
    hak_lock_acquire(&hak_large_lock);
    struct hak_mapping *mapping = hak_mapping_best_to_extend(bytes);
    if (mapping != NULL) {
        hak_mapping_kept_to_transit(mapping);
    }
    hak_lock_release(&hak_large_lock);
    if (mapping == NULL) {
        return NULL;
    }
    void *target = move((void *)mapping->base, mapping->bytes, bytes, align, 0);
    hak_lock_acquire(&hak_large_lock);
    if (target != NULL) {
        *dirty_bytes = mapping->dirty_bytes;
        hak_retain_fetched(bytes - mapping->dirty_bytes, now_ms);
        hak_mapping_sever(mapping);
        hak_mapping_transit_to_live(mapping, target, bytes);
    } else {
        hak_mapping_transit_to_kept(mapping);
    }
    hak_lock_release(&hak_large_lock);
    return target;
}

static void *map_fresh(size_t bytes, size_t align, uint64_t now_ms) {
    void *p;
    struct hak_mapping *mapping = new_record();
    if (mapping == NULL) {
        return NULL;
    }
    if (hak_os_map_aligned(NULL, bytes, align, &p) != 0) {
        drop_record(mapping);
        return NULL;
    }
    if (hak_registry_prepare(p, HAK_UNIT_BYTES) != 0) {
        (void)hak_os_unmap(p, bytes);
        drop_record(mapping);
        return NULL;
    }
    hak_lock_acquire(&hak_large_lock);
    hak_retain_fetched(bytes, now_ms);
    hak_mapping_transit_to_live(mapping, p, bytes);
    hak_lock_release(&hak_large_lock);
    return p;
}

void *hak_mapped_alloc(size_t bytes, size_t align, size_t *dirty_bytes) {
    size_t need_bytes = hak_mapping_round(bytes);
    size_t need_align = align > HAK_UNIT_BYTES ? align : HAK_UNIT_BYTES;
    uint64_t now_ms = hak_os_now_ms();
    void *p = take_kept(need_bytes, need_align, dirty_bytes, now_ms);
    if (p == NULL) {
        p = extend_kept(need_bytes, need_align, dirty_bytes, now_ms);
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

/* Lock held on entry, released here. */
static void unlock_after_free(uint64_t now_ms) {
    bool has_excess = hak_retain_is_over() || hak_mapping_totals.kept_count > hak_large_policy.kept_count_max;
    hak_lock_release(&hak_large_lock);
    if (has_excess) {
        hak_release_excess(now_ms);
    }
}

bool hak_mapped_free(struct hak_mapping *mapping, const void *p) {
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_large_lock);
    if (!is_live_at(mapping, p)) {
        hak_lock_release(&hak_large_lock);
        return false;
    }
    hak_retain_touch(now_ms);
    hak_mapping_live_to_kept(mapping);
    unlock_after_free(now_ms);
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
        unlock_after_free(now_ms);
        return;
    }
    void *end = (char *)mapping->base + bytes;
    hak_mapping_resize_live(mapping, bytes);
    hak_lock_release(&hak_large_lock);
    bool is_unmapped = hak_os_unmap(end, end_bytes) == 0;
    hak_lock_acquire(&hak_large_lock);
    if (is_unmapped) {
        hak_mapping_sever_after(mapping);
    } else {
        hak_mapping_resize_live(mapping, old_bytes);
    }
    hak_lock_release(&hak_large_lock);
}

/* No lock; the block is the caller's and nothing of hakmem's lies behind it in its kernel mapping. */
static bool extend_in_place(struct hak_mapping *mapping, void *p, size_t old_bytes, size_t bytes) {
    if (hak_os_resize(p, old_bytes, bytes) != 0) {
        return false;
    }
    hak_lock_acquire(&hak_large_lock);
    hak_mapping_resize_live(mapping, bytes);
    hak_lock_release(&hak_large_lock);
    return true;
}

static void *move_live(struct hak_mapping *mapping, void *p, size_t old_bytes, size_t bytes) {
    hak_lock_acquire(&hak_large_lock);
    hak_mapping_live_to_transit(mapping);
    hak_lock_release(&hak_large_lock);
    void *target = move(p, old_bytes, bytes, HAK_UNIT_BYTES, hak_mapping_round(bytes / 2));
    hak_lock_acquire(&hak_large_lock);
    if (target != NULL) {
        hak_mapping_transit_to_live(mapping, target, bytes);
    } else {
        hak_mapping_transit_to_live(mapping, p, old_bytes);
    }
    hak_lock_release(&hak_large_lock);
    return target;
}

void *hak_mapped_resize(struct hak_mapping *mapping, void *p, size_t bytes, size_t *old_bytes) {
    size_t need_bytes = hak_mapping_round(bytes);
    uint64_t now_ms = hak_os_now_ms();
    lock_with_spare();
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
    hak_lock_release(&hak_large_lock);
    if (has_room || (is_last && extend_in_place(mapping, p, *old_bytes, need_bytes))) {
        return p;
    }
    return move_live(mapping, p, *old_bytes, need_bytes);
}

/* The pages lie at `stray`, page aligned only; brings them to a block, or back to `p`. */
static void *settle_stray(void *p, void *stray, size_t old_bytes, size_t need_bytes) {
    void *target = move(stray, old_bytes, need_bytes, HAK_UNIT_BYTES, hak_mapping_round(need_bytes / 2));
    if (target == NULL) {
        memcpy(p, stray, old_bytes);
        if (hak_os_unmap(stray, old_bytes) != 0) {
            (void)hak_os_purge(stray, old_bytes); /* the address space is lost, the memory is not */
        }
    }
    return target;
}

void *hak_mapped_adopt(void *p, size_t old_bytes, size_t bytes) {
    size_t need_bytes = hak_mapping_round(bytes);
    void *stray;
    void *target = NULL;
    struct hak_mapping *mapping = new_record();
    if (mapping == NULL) {
        return NULL;
    }
    if (hak_os_detach(p, old_bytes, &stray) == 0) {
        target = settle_stray(p, stray, old_bytes, need_bytes);
    }
    if (target == NULL) {
        drop_record(mapping);
        return NULL;
    }
    hak_lock_acquire(&hak_large_lock);
    hak_mapping_transit_to_live(mapping, target, need_bytes);
    hak_lock_release(&hak_large_lock);
    return target;
}
