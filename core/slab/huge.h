/*
 * huge.h - whether the kernel gives huge pages quickly enough to be worth asking for.
 *
 * It fills one at its first touch: 0.2 ms, where as many small pages take 1 to 1.5. But where the host of a
 * virtual machine has taken free memory back, or memory must be moved together first, it takes 5 to 10, and
 * small pages come of what was used last. Nothing tells which of the two it will be, and that touch is the
 * program's. So a heap that was given a new huge SuperSlab looks at the clock when it comes for blocks next,
 * by when the program has written to those that it had, and once more the time after that, when there was
 * nothing new to touch: a first stretch that is long beside the second was the huge page. After two slow ones
 * in a row a number of SuperSlabs have small pages, then one is tried again.
 *
 * A watch is its heap's, a pace is the SuperSlab lock's. Plain data and arithmetic.
 */
#ifndef HAK_SLAB_HUGE_H
#define HAK_SLAB_HUGE_H

#include "base/compiler.h"
#include <stdint.h>

/* Owner: the heap's thread. */
struct huge_watch {
    uint64_t since_ns; /* when the stretch began; 0: nothing is watched */
    uint64_t first_ns; /* how long the first one was; 0: it is the first */
};

enum hak_huge_speed {
    HAK_HUGE_UNKNOWN, /* not to be told, or not yet */
    HAK_HUGE_FAST,
    HAK_HUGE_SLOW,
};

/* A huge SuperSlab was mapped for the heap. */
void hak_huge_watch_begin(struct huge_watch *watch, uint64_t now_ns);

/* The heap comes for blocks, if something is watched. */
enum hak_huge_speed hak_huge_watch_end_stretch(struct huge_watch *watch, uint64_t now_ns);

HAK_INLINE bool hak_huge_is_watched(const struct huge_watch *watch) {
    return watch->since_ns != 0;
}

/* Zero: nothing is known yet. */
struct huge_pace {
    unsigned slow_in_row;
    unsigned pause; /* SuperSlabs that are to have small pages, */
    unsigned left;  /* and those of them that are still to come */
};

void hak_huge_pace_note(struct huge_pace *pace, enum hak_huge_speed speed);

/* Whether the next SuperSlab that could be a huge page is to be one. Counts it. */
bool hak_huge_pace_allows(struct huge_pace *pace);

#endif
