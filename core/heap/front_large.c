/*
 * front_large.c - see front_large.h.
 */
#include "heap/front_large.h"
#include "heap/reclaim.h"
#include "large/large.h"

static void *try_large(size_t bytes, bool is_zeroed) {
    return is_zeroed ? hak_large_calloc(bytes) : hak_large_alloc_other(bytes);
}

void *hak_front_alloc_large(size_t bytes, bool is_zeroed) {
    if (bytes > HAK_BLOCK_BYTES_MAX) {
        return hak_front_out_of_memory();
    }
    struct heap *heap = hak_front_heap();
    hak_upkeep_if_due(heap);
    void *block = try_large(bytes, is_zeroed);
    if (HAK_UNLIKELY(block == NULL)) {
        hak_reclaim_everything(heap);
        block = try_large(bytes, is_zeroed);
    }
    return HAK_LIKELY(block != NULL) ? block : hak_front_out_of_memory();
}
