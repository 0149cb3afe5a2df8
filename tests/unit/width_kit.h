/*
 * width_kit.h - what the suites of how wide a cache is share: a class's bound and its capacity now. A cache
 * of blocks of 64 bytes has 2046 of them at most, one of 1024 bytes 128 KiB.
 */
#ifndef HAK_TESTS_UNIT_WIDTH_KIT_H
#define HAK_TESTS_UNIT_WIDTH_KIT_H

#include "heap/heap.h"
#include "meta/classes.h"
#include "support/classes.h"
#include "support/test.h"

#define PLAIN_BYTES (128 * KIB)

/* After so many doublings of the bound. */
static inline unsigned wide_capacity(unsigned class_idx, unsigned doublings) {
    return (unsigned)((PLAIN_BYTES << doublings) / hak_class_block_bytes[class_idx]);
}

static inline unsigned plain_capacity(unsigned class_idx) {
    return wide_capacity(class_idx, 0);
}

/* This thread's. */
static inline unsigned capacity(unsigned class_idx) {
    return hak_heap_attach()->classes[class_idx].capacity_blocks;
}

#endif
