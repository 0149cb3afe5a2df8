// The floor: the least that an allocator of these loops could do. Nothing can pass it.
//
// Does: one array stack of block pointers for each 16-byte size class, all inline; the caller names the size
// when it frees. Carves new blocks from one mapping and never gives memory back.
// Does not: check anything, serve any size above 1024, share between threads, or survive a block that is
// freed to another heap than it came from. It is no allocator, only the bound for random_mixed and larson.
#ifndef BENCH_LIB_FLOOR_ALLOC_H
#define BENCH_LIB_FLOOR_ALLOC_H

#include "bench.h"

enum {
    FLOOR_CLASS_SHIFT = 4,
    FLOOR_MAX_BYTES = 1024,
    FLOOR_CLASSES = (FLOOR_MAX_BYTES >> FLOOR_CLASS_SHIFT) + 1,
};

// Owned by one thread at a time. Per class: blocks in its stack + blocks the program holds == blocks carved.
struct floor_heap {
    void **tops[FLOOR_CLASSES];
    void **bases[FLOOR_CLASSES];
    unsigned char *fresh; // next byte not yet carved
};

// `blocks` is the most blocks alive at once: then no class ever carves, or stacks, more than that.
static inline void floor_heap_init(struct floor_heap *heap, size_t blocks) {
    void **stacks = bench_map(FLOOR_CLASSES * blocks * sizeof(void *));
    for (size_t k = 0; k < FLOOR_CLASSES; k++) {
        heap->bases[k] = heap->tops[k] = stacks + k * blocks;
    }
    // The sum over classes of (blocks x class size) bounds what can be carved; untouched pages cost nothing.
    heap->fresh = bench_map(blocks * FLOOR_CLASSES * (FLOOR_CLASSES + 1) / 2 << FLOOR_CLASS_SHIFT);
}

static inline void *floor_malloc(struct floor_heap *heap, size_t bytes) {
    size_t k = (bytes + (1u << FLOOR_CLASS_SHIFT) - 1) >> FLOOR_CLASS_SHIFT;
    if (__builtin_expect(heap->tops[k] != heap->bases[k], 1)) {
        return *--heap->tops[k];
    }
    void *block = heap->fresh;
    heap->fresh += k << FLOOR_CLASS_SHIFT;
    return block;
}

static inline void floor_free(struct floor_heap *heap, void *block, size_t bytes) {
    size_t k = (bytes + (1u << FLOOR_CLASS_SHIFT) - 1) >> FLOOR_CLASS_SHIFT;
    *heap->tops[k]++ = block;
}

#endif
