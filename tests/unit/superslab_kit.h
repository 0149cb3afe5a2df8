/*
 * superslab_kit.h - what the suites of placement share: each test begins with every mapped unit taken, so
 * that what it takes lies in SuperSlabs of its own, and may make two that are full, a and b.
 */
#ifndef HAK_TESTS_UNIT_SUPERSLAB_KIT_H
#define HAK_TESTS_UNIT_SUPERSLAB_KIT_H

#include "slab/purge.h"
#include "slab/superslab.h"
#include "slab/superslab_pool.h"
#include "support/target.h"
#include "support/test.h"

#define UNITS       HAK_UNITS_PER_SUPERSLAB
#define FILLERS_MAX 4096u

static struct slab *fillers[FILLERS_MAX];
static unsigned filler_count;

static inline int take_what_is_mapped(void **state) {
    (void)state;
    hak_purge_set_floor(PTRDIFF_MAX); /* steps keep everything */
    (void)hak_superslab_trim(0);
    for (filler_count = 0; hak_superslab_count().free_units != 0; filler_count++) {
        CHECK(filler_count < FILLERS_MAX);
        fillers[filler_count] = hak_superslab_take_units(1, 0);
    }
    CHECK(hak_superslab_count().empty == 0);
    hak_superslab_pool.retention.raised_bytes = 0; /* what tests give back and take again proves cycles */
    hak_superslab_pool.retention.proofs = 0;
    return 0;
}

static inline int give_it_back(void **state) {
    while (filler_count != 0) {
        hak_superslab_give_units(fillers[--filler_count], false);
    }
    const char *why;
    /* Units that this suite took and made no slabs of are nobody's. */
    CHECK(hak_superslab_verify(&why) || why == hak_superslab_units_are_lost);
    return heap_is_sound(state);
}

/* A new SuperSlab, all of its units taken: units[i] is unit i. */
static inline struct superslab *new_full(struct slab **units) {
    CHECK(hak_superslab_count().free_units == 0);
    for (unsigned i = 0; i < UNITS; i++) {
        units[i] = hak_superslab_take_units(1, 0);
        CHECK(units[i] != NULL && units[i]->unit_idx == i);
        CHECK(hak_superslab_of(units[i]) == hak_superslab_of(units[0]));
    }
    return hak_superslab_of(units[0]);
}

static inline void give(struct slab **units, unsigned from, unsigned to, bool is_zero) {
    for (unsigned i = from; i < to; i++) {
        hak_superslab_give_units(units[i], is_zero);
    }
}

static struct slab *a[UNITS], *b[UNITS];

#define TEST(name) cmocka_unit_test_setup_teardown(name, take_what_is_mapped, give_it_back)

#endif
