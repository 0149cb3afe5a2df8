/*
 * superslab_test.c - who gets which units: fullest SuperSlab first, dirty units first, little used ones
 * drain; what comes back is free; whole SuperSlabs.
 *
 * Each test begins with every mapped unit taken, so that what it takes lies in SuperSlabs of its own.
 *
 * suite: limit 60 s
 */
#include "meta/classes.h"
#include "superslab_kit.h"

#include <string.h>

#define RUNS        64u
#define RUN_MAX     8u
#define RANDOM_OPS  20000u
#define RANDOM_HELD 200u

static void the_fullest_superslab_is_asked_first(void **state) {
    (void)state;
    struct superslab *fuller = new_full(a);
    struct superslab *emptier = new_full(b);
    give(a, 0, 4, false);
    give(b, 0, 10, false);
    struct slab *run = hak_superslab_take_units(5, 0); /* more than the fuller one has */
    assert_ptr_equal(hak_superslab_of(run), emptier);
    hak_superslab_give_units(run, false);
    for (unsigned i = 0; i < 4; i++) {
        assert_ptr_equal(hak_superslab_of(hak_superslab_take_units(1, 0)), fuller);
    }
    for (unsigned i = 0; i < 10; i++) {
        assert_ptr_equal(hak_superslab_of(hak_superslab_take_units(1, 0)), emptier);
    }
    /* The other way round. */
    give(a, 0, 10, false);
    give(b, 0, 4, false);
    struct slab *one = hak_superslab_take_units(1, 0);
    assert_ptr_equal(hak_superslab_of(one), emptier);
    hak_superslab_give_units(one, false);
    give(a, 10, UNITS, false);
    give(b, 4, UNITS, false);
}

static void runs_are_contiguous_and_disjoint(void **state) {
    (void)state;
    struct slab *runs[RUNS];
    for (unsigned i = 0; i < RUNS; i++) {
        unsigned units = i * 5 % RUN_MAX + 1;
        struct slab *run = runs[i] = hak_superslab_take_units(units, 0);
        assert_non_null(run);
        assert_int_equal(run->units, units);
        assert_true(run->unit_idx + units <= UNITS);
        assert_int_equal(run->base, hak_superslab_of(run)->base + run->unit_idx * HAK_UNIT_BYTES);
        assert_true(run->is_zero);
        for (unsigned j = 0; j < i; j++) {
            assert_true(run->base >= runs[j]->base + runs[j]->units * HAK_UNIT_BYTES ||
                        runs[j]->base >= run->base + units * HAK_UNIT_BYTES);
        }
        memset((void *)run->base, 1, units * HAK_UNIT_BYTES);
    }
    for (unsigned i = 0; i < RUNS; i++) {
        hak_superslab_give_units(runs[i], false);
    }
}

static void dirty_units_are_preferred(void **state) {
    (void)state;
    (void)new_full(a);
    give(a, 0, 4, true);
    give(a, 10, 12, false);
    give(a, 20, 21, false);
    struct slab *run = hak_superslab_take_units(2, 0);
    assert_int_equal(run->unit_idx, 10);
    assert_false(run->is_zero);
    struct slab *one = hak_superslab_take_units(1, 0);
    assert_int_equal(one->unit_idx, 20);
    assert_false(one->is_zero);
    struct slab *untouched = hak_superslab_take_units(2, 0);
    assert_int_equal(untouched->unit_idx, 0);
    assert_true(untouched->is_zero);
    hak_superslab_give_units(run, false);
    hak_superslab_give_units(one, false);
    hak_superslab_give_units(untouched, true);
    give(a, 4, 10, false);
    give(a, 12, 20, false);
    give(a, 21, UNITS, false);
}

/* A dirty unit of an emptier SuperSlab, and one without pages of a fuller one: which is handed out? */
static bool is_dirty_one_taken(void) {
    struct superslab *fuller = new_full(a);
    struct superslab *emptier = new_full(b);
    give(a, 0, 2, true);
    give(b, 0, 4, true);
    give(b, 4, 6, false);
    struct slab *unit = hak_superslab_take_units(1, 0);
    bool is_of_fuller = hak_superslab_of(unit) == fuller && unit->is_zero;
    bool is_dirty = hak_superslab_of(unit) == emptier && !unit->is_zero;
    assert_true(is_of_fuller != is_dirty);
    hak_superslab_give_units(unit, unit->is_zero);
    give(a, 2, UNITS, false);
    give(b, 6, UNITS, false);
    return is_dirty;
}

static void without_proved_cycles_the_fullest_comes_first(void **state) {
    (void)state;
    assert_int_equal(hak_superslab_pool.retention.raised_bytes, 0);
    assert_false(is_dirty_one_taken());
}

static void where_cycles_are_proved_units_with_pages_come_first(void **state) {
    (void)state;
    hak_superslab_pool.retention.raised_bytes = MIB;
    bool is_dirty = is_dirty_one_taken();
    hak_superslab_pool.retention.raised_bytes = 0;
    assert_true(is_dirty);
}

/* As if all of it, or one block of it, had been handed out. */
static void use_all(struct slab *unit) {
    unit->carved_blocks = (uint16_t)hak_class_capacity(unit->class_idx);
}

static void use_little(struct slab *unit) {
    unit->carved_blocks = 1;
}

static void a_unit_with_few_pages_is_to_be_had_while_there_is_one(void **state) {
    (void)state;
    (void)new_full(a);
    for (unsigned i = 0; i < 4; i++) {
        use_all(a[i]);
    }
    give(a, 0, 4, false);
    assert_null(hak_superslab_take_light());
    assert_int_equal(hak_superslab_count().free_units, 4); /* and nothing was mapped for it */
    give(a, 20, 22, true);
    use_little(a[25]);
    give(a, 25, 26, false);
    assert_ptr_equal(hak_superslab_take_light(), a[25]);
    assert_false(a[25]->is_zero);
    for (unsigned i = 20; i < 22; i++) {
        assert_ptr_equal(hak_superslab_take_light(), a[i]);
        assert_true(a[i]->is_zero);
        assert_int_equal(a[i]->units, 1);
    }
    assert_null(hak_superslab_take_light());
    use_little(a[25]); /* once more */
    give(a, 25, 26, false);
    assert_ptr_equal(hak_superslab_take_light(), a[25]);
    use_all(a[25]); /* and to the full: from now on it holds all its pages */
    give(a, 25, 26, false);
    assert_null(hak_superslab_take_light());
    (void)hak_superslab_trim(0);
    assert_ptr_equal(hak_superslab_take_light(), a[0]);
    give(a, 0, 1, true);
    give(a, 4, 25, false);
    give(a, 26, UNITS, false);
}

/* A light unit counts for the pages that it may hold. */
static void light_units_are_less_dirt(void **state) {
    (void)state;
    (void)new_full(a);
    size_t before = hak_superslab_dirty_bytes();
    use_little(a[0]);
    use_all(a[1]);
    give(a, 0, 1, false);
    assert_int_equal(hak_superslab_dirty_bytes() - before, HAK_LIGHT_BYTES);
    give(a, 1, 2, false);
    assert_int_equal(hak_superslab_dirty_bytes() - before, HAK_LIGHT_BYTES + HAK_UNIT_BYTES);
    give(a, 2, UNITS, false);
}

/* Whether they are purged or unmapped with all the rest: else a cycle of the latter proves too much. */
static void light_units_are_less_to_give_back(void **state) {
    (void)state;
    struct retention *retention = &hak_superslab_pool.retention;
    (void)new_full(a);
    (void)new_full(b);
    for (unsigned i = 0; i < UNITS; i++) {
        use_little(a[i]);
        use_little(b[i]);
    }
    retention->purged_bytes = 0;
    give(b, 0, UNITS - 1, false);
    (void)hak_superslab_trim(0);
    assert_int_equal(retention->purged_bytes, (UNITS - 1) * HAK_LIGHT_BYTES);
    retention->purged_bytes = 0;
    give(a, 0, UNITS, false);
    assert_int_equal(hak_superslab_count().empty, 1);
    (void)hak_superslab_trim(0);
    assert_int_equal(hak_superslab_count().empty, 0);
    assert_int_equal(retention->purged_bytes, UNITS * HAK_LIGHT_BYTES);
    retention->purged_bytes = 0;
    give(b, UNITS - 1, UNITS, false);
}

/* When one is handed out, most of its pages have yet to be faulted in, as of a unit without any. */
static void light_units_are_missed_in_part(void **state) {
    (void)state;
    struct retention *retention = &hak_superslab_pool.retention;
    (void)new_full(a);
    use_little(a[0]);
    use_all(a[1]);
    give(a, 0, 2, false);
    hak_retention_note_purged(retention, GIB, hak_os_now_ms());
    retention->missed_bytes = 0;
    assert_ptr_equal(hak_superslab_take_units(1, 0), a[0]);
    assert_int_equal(retention->missed_bytes, HAK_UNIT_BYTES - HAK_LIGHT_BYTES);
    assert_ptr_equal(hak_superslab_take_units(1, 0), a[1]);
    assert_int_equal(retention->missed_bytes, HAK_UNIT_BYTES - HAK_LIGHT_BYTES);
    retention->purged_bytes = 0;
    give(a, 0, UNITS, false);
}

/* What the large floor had for itself it may have written to. */
static void a_whole_superslab_comes_back_without_light_units(void **state) {
    (void)state;
    uint32_t zero_units;
    (void)new_full(a);
    give(a, 0, UNITS, false);
    struct superslab *s = hak_superslab_take_whole(&zero_units);
    assert_ptr_equal(s, hak_superslab_of(a[0]));
    (void)hak_superslab_give_whole(s, 0, HAK_PURGE_STEP_CALLS);
    struct slab *slab = hak_superslab_take_units(1, 0); /* so that it is not empty */
    assert_ptr_equal(hak_superslab_of(slab), s);
    assert_null(hak_superslab_take_light());
    hak_superslab_give_units(slab, false);
}

/* A record that had other memory before says nothing of its units. */
static void a_new_superslab_has_no_light_units(void **state) {
    (void)state;
    struct superslab *s = new_full(a);
    give(a, 0, UNITS, false);
    (void)hak_superslab_trim(0);
    assert_int_equal(s->tier, HAK_TIER_NONE);
    struct slab *slab = hak_superslab_take_units(1, 0);
    assert_ptr_equal(hak_superslab_of(slab), s);
    assert_int_equal(s->light_units, (uint32_t)1 << slab->unit_idx);
    hak_superslab_give_units(slab, false);
}

static void a_slab_lies_where_one_of_its_class_lay(void **state) {
    (void)state;
    (void)new_full(a);
    a[12]->class_idx = 7;
    a[20]->class_idx = 7;
    a[29]->class_idx = 9;
    give(a, 10, 14, false);
    give(a, 20, 21, true); /* without pages: of no use */
    give(a, 28, 30, false);
    struct slab *same = hak_superslab_take_units(1, 7);
    assert_int_equal(same->unit_idx, 12);
    struct slab *lowest = hak_superslab_take_units(1, 7);
    assert_int_equal(lowest->unit_idx, 10);
    struct slab *run = hak_superslab_take_units(2, 9); /* from unit 29 on there is one */
    assert_int_equal(run->unit_idx, 28);
    hak_superslab_give_units(same, false);
    hak_superslab_give_units(lowest, false);
    hak_superslab_give_units(run, false);
    give(a, 0, 10, false);
    give(a, 14, 20, false);
    give(a, 21, 28, false);
    give(a, 30, UNITS, false);
}

static void what_is_given_back_is_free_and_dirty_unless_untouched(void **state) {
    (void)state;
    (void)new_full(a);
    give(a, 0, 1, true);
    assert_int_equal(hak_superslab_count().free_units, 1);
    assert_int_equal(hak_superslab_count().dirty_units, 0);
    assert_ptr_equal(hak_superslab_take_units(1, 0), a[0]);
    assert_true(a[0]->is_zero);
    give(a, 0, 1, false);
    assert_int_equal(hak_superslab_count().free_units, 1);
    assert_int_equal(hak_superslab_count().dirty_units, 1);
    give(a, 1, 2, true);
    assert_int_equal(hak_superslab_count().free_units, 2);
    assert_int_equal(hak_superslab_count().dirty_units, 1);
    /* Half of it is dirty. */
    struct slab *run = hak_superslab_take_units(2, 0);
    assert_ptr_equal(run, a[0]);
    assert_false(run->is_zero);
    assert_int_equal(hak_superslab_count().free_units, 0);
    assert_int_equal(hak_superslab_count().dirty_units, 0);
    hak_superslab_give_units(run, false);
    assert_int_equal(hak_superslab_count().dirty_units, 2);
    give(a, 2, UNITS, false);
}

static void a_little_used_superslab_drains(void **state) {
    (void)state;
    struct superslab *draining = new_full(a);
    b[0] = hak_superslab_take_units(1, 0);
    struct superslab *hot = hak_superslab_of(b[0]);
    assert_ptr_not_equal(hot, draining);
    give(a, 0, 23, false);
    assert_int_equal(draining->tier, HAK_TIER_HOT);
    give(a, 23, 24, false);
    assert_int_equal(draining->tier, HAK_TIER_DRAINING);
    assert_int_equal(hot->tier, HAK_TIER_HOT);
    for (unsigned i = 1; i < UNITS; i++) { /* although it is the emptier one at first */
        b[i] = hak_superslab_take_units(1, 0);
        assert_ptr_equal(hak_superslab_of(b[i]), hot);
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(draining->tier, HAK_TIER_DRAINING);
        assert_ptr_equal(hak_superslab_of(hak_superslab_take_units(1, 0)), draining);
    }
    assert_int_equal(draining->tier, HAK_TIER_HOT);
    for (unsigned i = 0; i < UNITS; i++) {
        if ((draining->free_units >> i & 1) == 0) {
            hak_superslab_give_units(a[i], false);
        }
    }
    assert_int_equal(draining->tier, HAK_TIER_FREE);
    assert_int_equal(hak_superslab_count().empty, 1);
    give(b, 0, UNITS, false);
}

static void trim_leaves_nothing_dirty(void **state) {
    (void)state;
    (void)new_full(a);
    (void)new_full(b);
    memset((void *)a[0]->base, 1, 8 * HAK_UNIT_BYTES);
    for (unsigned i = 0; i < 8; i++) {
        use_all(a[i]);
    }
    size_t mapped = hak_superslab_count().mapped;
    give(a, 0, 8, false);
    give(b, 0, UNITS, false);
    assert_int_equal(hak_superslab_count().dirty_units, 8 + UNITS);
    assert_int_equal(hak_superslab_trim(0), (8 + UNITS) * HAK_UNIT_BYTES);
    assert_int_equal(hak_superslab_count().dirty_units, 0);
    assert_int_equal(hak_superslab_count().empty, 0);
    assert_int_equal(hak_superslab_count().mapped, mapped - 1);
    assert_int_equal(hak_superslab_count().free_units, 8);
    struct slab *run = hak_superslab_take_units(8, 0);
    assert_ptr_equal(run, a[0]);
    assert_true(run->is_zero);
    for (size_t i = 0; i < 8 * HAK_UNIT_BYTES; i += sizeof(uint64_t)) {
        assert_int_equal(*(uint64_t *)(run->base + i), 0);
    }
    hak_superslab_give_units(run, true);
    give(a, 8, UNITS, false);
}

static void whole_superslabs_are_lent_and_come_back(void **state) {
    (void)state;
    uint32_t zero_units = 0;
    struct hak_superslab_counts before = hak_superslab_count();
    struct superslab *whole = hak_superslab_take_whole(&zero_units);
    assert_non_null(whole);
    assert_int_equal(zero_units, UINT32_MAX);
    assert_int_equal(whole->base % HAK_SUPERSLAB_BYTES, 0);
    assert_int_equal(hak_superslab_count().whole, before.whole + 1);
    assert_int_equal(hak_superslab_count().mapped, before.mapped + 1);
    assert_int_equal(hak_superslab_count().free_units, 0);
    assert_true(hak_superslab_covers((char *)whole->base + HAK_SUPERSLAB_BYTES - 1));
    struct slab *elsewhere = hak_superslab_take_units(1, 0);
    assert_ptr_not_equal(hak_superslab_of(elsewhere), whole);
    memset((void *)whole->base, 1, HAK_SUPERSLAB_BYTES);
    (void)hak_superslab_give_whole(whole, 0, HAK_PURGE_STEP_CALLS);
    assert_int_equal(hak_superslab_count().whole, before.whole);
    assert_int_equal(hak_superslab_count().empty, 1);
    assert_int_equal(hak_superslab_count().dirty_units, UNITS);
    assert_ptr_equal(hak_superslab_take_whole(&zero_units), whole);
    assert_int_equal(zero_units, 0);
    (void)hak_superslab_give_whole(whole, ~(uint32_t)5,
                                   HAK_PURGE_STEP_CALLS); /* two units are dirty, and stay so */
    assert_int_equal(hak_superslab_count().dirty_units, 2);
    assert_ptr_equal(hak_superslab_take_whole(&zero_units), whole);
    assert_int_equal(zero_units, ~(uint32_t)5);
    (void)hak_superslab_give_whole(whole, 0, HAK_PURGE_STEP_CALLS);
    hak_superslab_give_units(elsewhere, false);
}

/* ---- random ---- */

static uint32_t seed = 20240229;

static uint32_t random_below(uint32_t bound) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % bound;
}

static size_t used_units(void) {
    struct hak_superslab_counts counts = hak_superslab_count();
    return (counts.mapped - counts.whole) * UNITS - counts.free_units;
}

static struct slab *take_checked(bool *is_written) {
    struct slab *slab = hak_superslab_take_units(random_below(RUN_MAX) + 1, random_below(HAK_CLASS_COUNT));
    CHECK(slab != NULL);
    char *last = (char *)slab->base + slab->units * HAK_UNIT_BYTES - 1;
    if (slab->is_zero) {
        CHECK(*(char *)slab->base == 0 && *last == 0);
    }
    *is_written = !slab->is_zero;
    if (random_below(2) == 0) {
        *(char *)slab->base = *last = 1;
        *is_written = true;
    }
    return slab;
}

static void the_invariants_hold_after_any_sequence(void **state) {
    (void)state;
    static struct slab *held[RANDOM_HELD];
    static bool is_written[RANDOM_HELD];
    const char *why;
    size_t expected = used_units();
    size_t at_start = expected;
    for (unsigned op = 0; op < RANDOM_OPS; op++) {
        /* Phases of growing and of shrinking, so that every tier is visited. */
        unsigned i = random_below(op / 1000 % 2 == 0 ? RANDOM_HELD : RANDOM_HELD / 2);
        if (held[i] == NULL && (op / 500 % 2 == 0 || random_below(4) == 0)) {
            held[i] = take_checked(&is_written[i]);
            expected += held[i]->units;
        } else if (held[i] != NULL) {
            expected -= held[i]->units;
            hak_superslab_give_units(held[i], !is_written[i]);
            held[i] = NULL;
        }
        if (random_below(500) == 0) {
            (void)hak_superslab_trim(0);
            assert_int_equal(hak_superslab_count().dirty_units, 0);
        }
        assert_true(hak_superslab_verify(&why) || why == hak_superslab_units_are_lost);
        assert_int_equal(used_units(), expected);
    }
    for (unsigned i = 0; i < RANDOM_HELD; i++) {
        if (held[i] != NULL) {
            hak_superslab_give_units(held[i], !is_written[i]);
        }
    }
    assert_int_equal(used_units(), at_start);
    assert_true(hak_superslab_verify(&why) || why == hak_superslab_units_are_lost);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_fullest_superslab_is_asked_first),
        TEST(runs_are_contiguous_and_disjoint),
        TEST(dirty_units_are_preferred),
        TEST(without_proved_cycles_the_fullest_comes_first),
        TEST(where_cycles_are_proved_units_with_pages_come_first),
        TEST(a_unit_with_few_pages_is_to_be_had_while_there_is_one),
        TEST(light_units_are_less_dirt),
        TEST(light_units_are_less_to_give_back),
        TEST(light_units_are_missed_in_part),
        TEST(a_whole_superslab_comes_back_without_light_units),
        TEST(a_new_superslab_has_no_light_units),
        TEST(a_slab_lies_where_one_of_its_class_lay),
        TEST(what_is_given_back_is_free_and_dirty_unless_untouched),
        TEST(a_little_used_superslab_drains),
        TEST(trim_leaves_nothing_dirty),
        TEST(whole_superslabs_are_lent_and_come_back),
        TEST(the_invariants_hold_after_any_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
