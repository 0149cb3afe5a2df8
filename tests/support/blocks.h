/*
 * blocks.h - many blocks of one size, by hakmem's own names.
 */
#ifndef HAK_TESTS_SUPPORT_BLOCKS_H
#define HAK_TESTS_SUPPORT_BLOCKS_H

#include "hakmem.h"
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

#endif
