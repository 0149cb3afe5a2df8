/*
 * homeward.c - see homeward.h.
 */
#include "heap/homeward.h"
#include "conf/options.h"
#include "meta/arena.h"
#include "meta/classes.h"
#include "slab/purge.h"

#define BATCH_BLOCKS  128u
#define BATCH_IN_DEBT 4u /* while memory is being given back: each block may be the last of its slab */
#define ARRAY_BYTES   (BATCH_BLOCKS * sizeof(struct block_ref))

/* Bytes of blocks that a batch may hold back, by profile. */
static const size_t bound_bytes[] = {
    [HAK_PROFILE_DEFAULT] = (size_t)64 * 1024,
    [HAK_PROFILE_CONSERVATIVE] = (size_t)8 * 1024,
    [HAK_PROFILE_THROUGHPUT] = (size_t)128 * 1024,
};

static void return_batch(struct heap *heap) {
    unsigned count = heap->homeward.count;
    heap->homeward.count = 0;
    heap->homeward.bytes = 0;
    (void)hak_blocks_return(heap->homeward.refs, count, heap->id, hak_heap_handle_event, heap);
}

void hak_homeward_add(struct heap *heap, struct block_ref ref, unsigned class_idx) {
    struct homeward *homeward = &heap->homeward;
    heap->classes[class_idx].is_used = true;
    HAK_COUNT(&heap->classes[class_idx].counters, remote_frees, 1);
    if (homeward->refs == NULL) {
        homeward->refs = hak_meta_alloc(ARRAY_BYTES);
        if (homeward->refs == NULL) {
            (void)hak_blocks_return(&ref, 1, heap->id, hak_heap_handle_event, heap);
            return;
        }
    }
    homeward->refs[homeward->count++] = ref;
    homeward->bytes += hak_class_block_bytes[class_idx];
    unsigned limit_blocks = hak_purge_is_owed() ? BATCH_IN_DEBT : BATCH_BLOCKS;
    if (homeward->count >= limit_blocks || homeward->bytes >= bound_bytes[hak_options.tiny_profile]) {
        return_batch(heap);
    }
}

void hak_homeward_flush(struct heap *heap, bool keep_array) {
    if (heap->homeward.refs != NULL) {
        return_batch(heap);
    }
    if (!keep_array) {
        hak_homeward_forget(heap);
    }
}

void hak_homeward_forget(struct heap *heap) {
    if (heap->homeward.refs != NULL) {
        hak_meta_free(heap->homeward.refs, ARRAY_BYTES);
    }
    heap->homeward = (struct homeward){0};
}
