// The loops that run over malloc and over the floor alike: random_mixed and larson.
//
// Does: keep both sides of that comparison the same, to the instruction, apart from allocate and release,
// which are constant function arguments of an always_inline function: the compiler inlines them.
// Does not: time anything.
#ifndef BENCH_LIB_LOOPS_H
#define BENCH_LIB_LOOPS_H

#include "block.h"
#include "rng.h"

#include <stdlib.h>

typedef void *allocate_fn(void *heap, size_t bytes);
typedef void release_fn(void *heap, void *block, size_t bytes);

static inline void *libc_allocate(void *heap, size_t bytes) {
    (void)heap;
    return bench_opaque(malloc(bytes));
}

static inline void libc_release(void *heap, void *block, size_t bytes) {
    (void)heap;
    (void)bytes;
    free(block);
}

enum {
    RANDOM_MIXED_MIN_BYTES = 16,
    RANDOM_MIXED_MAX_BYTES = 1024,
    LARSON_MIN_BYTES = 8,
    LARSON_MAX_BYTES = 128,
};

// One iteration: pick a slot at random, free its block and put a new one of random size there. All slots are
// filled beforehand: whether to allocate or to free is never a coin's toss, whose mispredicted branch would
// cost as much as both calls.
static inline __attribute__((always_inline)) void
replace_loop(struct slot *slots, uint64_t slot_count, uint64_t iterations, uint32_t min_bytes,
             uint32_t max_bytes, struct rng *rng, void *heap, allocate_fn *allocate, release_fn *release) {
    for (uint64_t i = 0; i < iterations; i++) {
        uint32_t idx = rng_below(rng, (uint32_t)slot_count);
        struct slot *slot = &slots[idx];
        block_check(slot->block, slot->bytes, idx);
        release(heap, slot->block, slot->bytes);
        size_t bytes = rng_between(rng, min_bytes, max_bytes);
        slot_fill(slot, allocate(heap, bytes), bytes, idx);
    }
}

static inline __attribute__((always_inline)) void fill_slots(struct slot *slots, uint64_t slot_count,
                                                             uint32_t min_bytes, uint32_t max_bytes,
                                                             struct rng *rng, void *heap,
                                                             allocate_fn *allocate) {
    for (uint64_t i = 0; i < slot_count; i++) {
        size_t bytes = rng_between(rng, min_bytes, max_bytes);
        slot_fill(&slots[i], allocate(heap, bytes), bytes, i);
    }
}

#endif
