/*
 * width_kit.h - what the suites of how wide a cache is share: classes by their block sizes, a class's bound
 * and its capacity now.
 */
#ifndef HAK_TESTS_UNIT_WIDTH_KIT_H
#define HAK_TESTS_UNIT_WIDTH_KIT_H

#include "heap/heap.h"
#include "meta/classes.h"
#include "support/test.h"

#define CLASS_OF_64   3u /* a cache has 2046 blocks at most */
#define CLASS_OF_192  9u
#define CLASS_OF_256  11u
#define CLASS_OF_320  12u
#define CLASS_OF_384  13u
#define CLASS_OF_448  14u
#define CLASS_OF_512  15u
#define CLASS_OF_640  16u
#define CLASS_OF_768  17u
#define CLASS_OF_896  18u
#define CLASS_OF_1024 19u /* a cache has 128 KiB of them at most */
#define CLASS_OF_1280 20u
#define CLASS_OF_1536 21u
#define CLASS_OF_4096 27u
#define PLAIN_BYTES   (128 * KIB)

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
