/*
 * guest_kit.h - what the suites of guests share: survivors of 48 bytes, one in ten, in slabs that are full of
 * holes, and blocks of 200 bytes that find room there. Included once by each suite.
 */
#ifndef HAK_TESTS_UNIT_GUEST_KIT_H
#define HAK_TESTS_UNIT_GUEST_KIT_H

#include "header_kit.h"
#include "heap/heap.h"
#include "slab/guests.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <string.h>

#define SMALL_BYTES 48u
#define SMALLS      400000u
#define KEPT_OF_100 10u
#define BIG_BYTES   200u
#define BIGS        16000u

static void *smalls[SMALLS];
static void *bigs[BIGS];
static unsigned kept;

static inline unsigned class_of_slab(const void *block) {
    return hak_word_row(hak_registry_word(block))->class_idx;
}

static inline bool is_guest(const void *block, size_t bytes) {
    return class_of_slab(block) != hak_class_of(bytes);
}

static inline uint64_t guests_made(size_t bytes) {
    struct front_counts counts = {0};
    hak_heap_sum_counters(hak_class_of(bytes), &counts);
    return counts.guests;
}

static inline void fill_smalls(void) {
    for (unsigned i = 0; i < SMALLS; i++) {
        smalls[i] = hak_malloc(SMALL_BYTES);
        CHECK(smalls[i] != NULL);
    }
}

/* The same survivors each time, in slabs that are full of holes. */
static inline void thin_smalls_out(void) {
    struct rng rng = rng_seeded(7);
    kept = 0;
    for (unsigned i = 0; i < SMALLS; i++) {
        if (rng_below(&rng, 100) < KEPT_OF_100) {
            memset(smalls[i], (int)(kept % 251), SMALL_BYTES);
            smalls[kept++] = smalls[i];
        } else {
            hak_free(smalls[i]);
        }
    }
}

static inline int leave_survivors(void **state) {
    (void)state;
    fill_smalls();
    thin_smalls_out();
    return 0;
}

static inline void fill_big(unsigned i) {
    memset(bigs[i], (int)(i % 241), BIG_BYTES);
}

static inline unsigned allocate_bigs(unsigned count) {
    unsigned guests = 0;
    for (unsigned i = 0; i < count; i++) {
        bigs[i] = hak_malloc(BIG_BYTES);
        CHECK(bigs[i] != NULL);
        fill_big(i);
        guests += is_guest(bigs[i], BIG_BYTES);
    }
    return guests;
}

static inline bool is_filled_with(const void *block, size_t bytes, unsigned value) {
    const unsigned char *at = block;
    return at[0] == value && memcmp(at, at + 1, bytes - 1) == 0;
}

static inline void check_contents(unsigned count) {
    for (unsigned i = 0; i < kept; i++) {
        CHECK(is_filled_with(smalls[i], SMALL_BYTES, i % 251));
    }
    for (unsigned i = 0; i < count; i++) {
        CHECK(bigs[i] == NULL || is_filled_with(bigs[i], BIG_BYTES, i % 241));
    }
}

static inline int nothing_is_left(void **state) {
    (void)state;
    for (unsigned i = 0; i < BIGS; i++) {
        hak_free(bigs[i]);
        bigs[i] = NULL;
    }
    for (unsigned i = 0; i < kept; i++) {
        hak_free(smalls[i]);
    }
    kept = 0;
    (void)hak_trim(0);
    check_heap();
    return 0;
}

/* A guest among the bigs. */
static inline void *any_guest(void) {
    unsigned i = 0;
    while (!is_guest(bigs[i], BIG_BYTES)) {
        i++;
        CHECK(i < BIGS && bigs[i] != NULL);
    }
    return bigs[i];
}

static inline void on_thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

#endif
