/*
 * blocks.h - many blocks of one size, by hakmem's own names; slabs of theirs that are orphans.
 */
#ifndef HAK_TESTS_SUPPORT_BLOCKS_H
#define HAK_TESTS_SUPPORT_BLOCKS_H

#include "hakmem.h"
#include "heap/supply.h"
#include "meta/classes.h"
#include "slab/orphans.h"
#include "support/test.h"

#include <stddef.h>

/* Allocates `count` blocks, or ends the program. */
static inline void blocks_take(void **blocks, size_t count, size_t bytes) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = hak_malloc(bytes);
        CHECK(blocks[i] != NULL);
    }
}

static inline void blocks_free(void *const *blocks, size_t count) {
    for (size_t i = 0; i < count; i++) {
        hak_free(blocks[i]);
    }
}

/* Takes entries straight from slabs, past the cache. */
static inline void blocks_take_refs(struct heap *heap, unsigned class_idx, struct block_ref *refs,
                                    unsigned count) {
    for (unsigned got = 0; got < count;) {
        unsigned taken = hak_supply_take(heap, class_idx, refs + got, count - got);
        CHECK(taken != 0);
        got += taken;
        CHECK(heap->classes[class_idx].warm_count <= HAK_WARM_SLABS_MAX);
    }
}

/* Orphans of the class that has blocks of that size, sparse ones not counted. */
static inline size_t blocks_orphaned_slabs(size_t bytes) {
    size_t slabs = 0;
    for (unsigned side = 0; side < hak_orphan_sides(); side++) {
        /* relaxed: nobody else works */
        slabs += hak_atomic_load_relaxed(&hak_orphans_of(hak_class_of(bytes), side)->count);
    }
    return slabs;
}

#endif
