/*
 * homeward.c - see homeward.h.
 */
#include "heap/homeward.h"
#include "conf/options.h"
#include "meta/classes.h"
#include "slab/purge.h"
#include <string.h>

#define BATCH_BLOCKS  128u
#define BATCH_IN_DEBT 4u /* while memory is being given back: each block may be the last of its slab */

/* Bytes of blocks that may be uncounted, by profile: they may be all that keeps their slabs from retiring. */
static const size_t bound_bytes[] = {
    [HAK_PROFILE_DEFAULT] = (size_t)64 * 1024,
    [HAK_PROFILE_CONSERVATIVE] = (size_t)8 * 1024,
    [HAK_PROFILE_THROUGHPUT] = (size_t)128 * 1024,
};

void hak_homeward_flush(struct heap *heap) {
    struct homeward *homeward = &heap->homeward;
    hak_tally_settle(&homeward->tally);
    hak_atomic_store_relaxed(&homeward->count, 0); /* relaxed: for hak_homeward_uncounted() */
    homeward->bytes = 0;
    if (hak_purge_is_owed()) {
        hak_purge_step();
    }
}

void hak_homeward_add(struct heap *heap, const void *block, unsigned class_idx) {
    struct homeward *homeward = &heap->homeward;
    heap->classes[class_idx].is_used = true;
    HAK_COUNT(&heap->classes[class_idx].counters, remote_frees, 1);
    hak_tally_add(&homeward->tally, block);
    unsigned count = hak_atomic_load_relaxed(&homeward->count) + 1; /* relaxed: written here alone */
    hak_atomic_store_relaxed(&homeward->count, count);              /* relaxed: as in the flush */
    homeward->bytes += hak_class_block_bytes[class_idx];
    unsigned limit_blocks = hak_purge_is_owed() ? BATCH_IN_DEBT : BATCH_BLOCKS;
    if (count >= limit_blocks || homeward->bytes >= bound_bytes[hak_options.tiny_profile]) {
        hak_homeward_flush(heap);
    }
}

void hak_homeward_forget(struct heap *heap) {
    heap->homeward.tally.used = 0;
    memset(heap->homeward.tally.samples, 0, sizeof heap->homeward.tally.samples);
    hak_atomic_store_relaxed(&heap->homeward.count, 0); /* relaxed: one thread */
    heap->homeward.bytes = 0;
}

size_t hak_homeward_uncounted(void) {
    size_t sum = 0;
    for (uint32_t id = 1; id <= hak_heap_last_id(); id++) {
        const struct heap *heap = hak_heap_by_id(id);
        sum += heap != NULL ? hak_atomic_load_relaxed(&heap->homeward.count) : 0; /* relaxed: a moment's */
    }
    return sum;
}
