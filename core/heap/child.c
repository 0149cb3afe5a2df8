/*
 * child.c - see child.h.
 */
#include "heap/child.h"
#include "heap/checked.h"
#include "heap/heap.h"
#include "heap/homeward.h"
#include "heap/unified_cache.h"
#include "meta/classes.h"
#include "slab/guests.h"
#include "slab/orphans.h"
#include "slab/ragged.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"

struct hak_lock hak_child_lock = HAK_LOCK_INIT(HAK_RANK_PROCESS);

HAK_READ_MOSTLY _Atomic bool hak_child_waits;

/*
 * Whether another thread may have been at work. It need not have a heap any more: after its heap's end a
 * destructor may still trim, or free a large block, and lease slabs or purge units for that, while its heap
 * is this thread's.
 */
static bool others_had_heaps(void) {
    if (hak_heap_has_changed_hands()) {
        return true;
    }
    for (uint32_t id = 1; id <= hak_heap_last_id(); id++) {
        struct heap *heap = hak_heap_by_id(id);
        if (heap != NULL && heap != hak_tls.heap) {
            return true;
        }
    }
    return false;
}

/* Blocks of the survivor's own caches go home unlisted and uncounted: the rebuild frees and counts them. */
static void empty_own_caches(struct heap *heap) {
    hak_homeward_forget(heap);
    heap->row = (struct spill_row){0};
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        struct class_state *state = &heap->classes[c];
        hak_cache_forget(heap, c);
        state->current = NULL;
        state->warm_count = 0;
    }
}

void hak_child_begin(void) {
    if (!others_had_heaps()) {
        return;
    }
    if (hak_tls.heap != NULL) {
        empty_own_caches(hak_tls.heap);
    }
    hak_heap_abandon_others(hak_tls.heap);
    hak_checked_child_begin();
    for (unsigned i = 0; i < hak_orphan_lists(); i++) {
        hak_slab_list_forget(hak_orphans_at(i));
    }
    hak_atomic_store_relaxed(&hak_child_waits, true); /* relaxed: the child has one thread */
}

/*
 * Whether the thread that had the block is gone with it, or was cut off while it took the block out, or in
 * the middle of a guest's row.
 */
static bool is_lost(const struct slab *slab, unsigned block_idx, unsigned header, unsigned before) {
    unsigned class_idx;
    return header == HAK_HEADER_CACHED || header == HAK_HEADER_CACHED_ZERO || header == HAK_HEADER_NEVER ||
           (header == HAK_HEADER_TAIL && before == HAK_HEADER_FREE) ||
           (header >= HAK_HEADER_LIVE &&
            !hak_header_is_live(&slab->map[block_idx], header, slab->class_idx, &class_idx));
}

/*
 * Of the first use of some blocks that was cut off, carved_blocks may be seen without the headers, or headers
 * without it: whatever lies below either was carved.
 */
static unsigned carved_in_truth(const struct slab *slab) {
    unsigned carved = slab->capacity_blocks;
    /* relaxed: its writers are gone, or this thread */
    while (carved > slab->carved_blocks &&
           hak_atomic_load_relaxed(&slab->map[carved - 1]) == HAK_HEADER_NEVER) {
        carved--;
    }
    return carved;
}

/* What is lost becomes FREE all over the map; returns the number of free blocks. Corrects carved_blocks. */
static unsigned recount(struct slab *slab) {
    unsigned freed = 0;
    unsigned before = HAK_HEADER_NEVER;
    slab->carved_blocks = (uint16_t)carved_in_truth(slab);
    for (unsigned i = 0; i < slab->carved_blocks; i++) {
        unsigned header = hak_atomic_load_relaxed(&slab->map[i]); /* relaxed: as above */
        if (is_lost(slab, i, header, before)) {
            hak_atomic_store_relaxed(&slab->map[i], HAK_HEADER_FREE); /* relaxed: as above */
            header = HAK_HEADER_FREE;
        }
        before = header;
        freed += header == HAK_HEADER_FREE;
    }
    return freed + slab->capacity_blocks - slab->carved_blocks;
}

static void rebuild_slab(struct slab *slab, uint32_t own_id) {
    uint64_t word = hak_atomic_load_relaxed(&slab->word); /* relaxed: its writers are gone, or this thread */
    hak_atomic_store_relaxed(&slab->list, (struct slab_list *)NULL); /* relaxed: the lists were emptied */
    slab->prev = slab->next = NULL;
    if (!hak_slab_word_is_assigned(word)) {
        return;
    }
    if (hak_slab_word_owner(word) != own_id) {
        word = hak_slab_word_with_owner(word, HAK_OWNER_NOBODY);
    }
    word = hak_slab_word_with_count(hak_slab_word_with_place(word, HAK_PLACE_NOWHERE), recount(slab));
    if (slab->carved_blocks < slab->capacity_blocks) {
        /* relaxed: nobody else is there */
        (void)hak_atomic_add_relaxed(&hak_slab_begun_units, hak_slab_begun_share(slab));
    }
    word &= ~(HAK_THIN | HAK_PAGES_DUE); /* hak_superslab_rebuild() forgets them */
    hak_ragged_reset(slab);
    hak_atomic_store_relaxed(&slab->word, word | HAK_LEASED); /* relaxed: released by what follows */
    enum hak_slab_event event = hak_slab_release(slab, 0, HAK_PLACE_NOWHERE, hak_slab_owner(slab));
    if (event == HAK_EVENT_LIST) {
        event = hak_orphans_push(slab);
    }
    if (event == HAK_EVENT_RETIRE) {
        hak_slab_retire(slab);
    }
}

static void rebuild(void) {
    struct slab *slab;
    uint32_t own_id = hak_tls.heap != NULL ? hak_tls.heap->id : HAK_OWNER_NOBODY;
    hak_atomic_store_relaxed(&hak_slab_begun_units, (size_t)0); /* relaxed: nobody else is there */
    for (size_t i = 0; (slab = hak_slab_at(i)) != NULL; i++) {
        rebuild_slab(slab, own_id);
    }
    hak_superslab_rebuild();
    hak_maps_rebuild();
}

static HAK_COLD void rebuild_once(void) {
    hak_lock_acquire(&hak_child_lock);
    if (hak_atomic_load_relaxed(
            &hak_child_waits)) { /* relaxed: written under the lock, or before any second thread */
        rebuild();
        hak_atomic_store_release(&hak_child_waits, false); /* pairs with the load in hak_child_is_pending() */
    }
    hak_lock_release(&hak_child_lock);
}

void hak_child_rebuild_if_pending(void) {
    if (hak_child_is_pending()) {
        rebuild_once();
    }
}
