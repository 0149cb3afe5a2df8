/*
 * huge_test.c - what of a huge SuperSlab nobody has written to goes to slabs of blocks no longer than an OS
 * page alone, as HAKMEM_THP=auto has it: short ones and long ones.
 *
 * suite: limit 60 s
 */
#include "heap/heap.h"
#include "meta/classes.h"
#include "os/os.h"
#include "slab/blocks.h"
#include "slab/thin.h"
#include "superslab_kit.h"

#include <limits.h>

#define HELD_MAX      8192u
#define UNITS_ENOUGH  1280u /* a 20th of so many is more than a SuperSlab */
#define UNITS_DRAINED 26u

static const unsigned short_class = 0;
static unsigned long_class;

/* A test's first line. */
#define REQUIRE_LONG_BLOCKS()                                                                                \
    do {                                                                                                     \
        if (hak_os_page_bytes() >= HAK_MID_MAX_BYTES) {                                                      \
            SKIP_BECAUSE("no block is longer than an OS page");                                              \
        }                                                                                                    \
        long_class = hak_class_of(hak_os_page_bytes() + 1);                                                  \
    } while (0)

/* As if it had been mapped so; none of its units is free. */
static struct superslab *new_full_huge(struct slab **units) {
    struct superslab *s = new_full(units);
    s->is_huge = true;
    return s;
}

/* What is taken of it goes back, after it is a huge page no more. */
static void give_rest(struct superslab *s) {
    (void)hak_superslab_split(s);
    for (unsigned i = 0; i < UNITS; i++) {
        if ((s->free_units >> i & 1) == 0) {
            hak_superslab_give_units(&s->slabs[i], false);
        }
    }
}

static void long_blocks_get_the_units_that_hold_data_alone(void **state) {
    (void)state;
    REQUIRE_LONG_BLOCKS();
    struct superslab *huge = new_full_huge(a);
    give(a, 0, 4, true);
    give(a, 10, 12, false);
    assert_ptr_equal(hak_superslab_take_units(1, long_class), a[10]);
    assert_ptr_equal(hak_superslab_take_units(1, long_class), a[11]);
    struct superslab *other = hak_superslab_of(hak_superslab_take_units(1, long_class));
    assert_ptr_not_equal(other, huge);
    give(a, 4, 5, false);
    assert_ptr_equal(hak_superslab_of(hak_superslab_take_units(2, long_class)), other); /* not half a run */
    assert_ptr_equal(hak_superslab_take_units(1, short_class), a[4]);
    assert_ptr_equal(hak_superslab_take_units(2, short_class), a[0]);
    assert_true(a[0]->is_zero);
    give_rest(huge);
    give_rest(other);
}

static void a_superslab_that_is_no_huge_page_serves_both(void **state) {
    (void)state;
    REQUIRE_LONG_BLOCKS();
    struct superslab *s = new_full(a);
    give(a, 0, 4, true);
    assert_ptr_equal(hak_superslab_take_units(1, long_class), a[0]);
    assert_ptr_equal(hak_superslab_take_units(1, short_class), a[1]);
    give_rest(s);
}

static void so_it_is_where_one_drains(void **state) {
    (void)state;
    REQUIRE_LONG_BLOCKS();
    struct superslab *huge = new_full_huge(a);
    give(a, 0, UNITS_DRAINED, true);
    assert_int_equal(huge->tier, HAK_TIER_DRAINING);
    assert_ptr_equal(hak_superslab_take_units(1, short_class), a[0]);
    give(a, UNITS_DRAINED, UNITS_DRAINED + 1, false);
    assert_ptr_equal(hak_superslab_take_units(1, long_class), a[UNITS_DRAINED]);
    struct superslab *other = hak_superslab_of(hak_superslab_take_units(1, long_class));
    assert_ptr_not_equal(other, huge);
    give_rest(huge);
    give_rest(other);
}

/* An empty one that can serve need not be the newest. */
static void so_it_is_where_one_is_empty(void **state) {
    (void)state;
    REQUIRE_LONG_BLOCKS();
    struct superslab *plain = new_full(b);
    struct superslab *huge = new_full_huge(a);
    give(b, 0, UNITS, true);
    give(a, 0, UNITS, true);
    assert_int_equal(hak_superslab_count().empty, 2);
    struct slab *slab = hak_superslab_take_units(1, short_class);
    assert_ptr_equal(hak_superslab_of(slab), huge);
    hak_superslab_give_units(slab, true);
    slab = hak_superslab_take_units(1, long_class);
    assert_ptr_equal(hak_superslab_of(slab), plain);
    while (plain->free_units != 0) {
        CHECK(hak_superslab_of(hak_superslab_take_units(1, long_class)) == plain);
    }
    struct superslab *other = hak_superslab_of(hak_superslab_take_units(1, long_class));
    assert_ptr_not_equal(other, huge);
    assert_int_equal(huge->tier, HAK_TIER_FREE);
    (void)hak_superslab_split(huge);
    give_rest(plain);
    give_rest(other);
}

static struct slab *held[HELD_MAX];
static unsigned held_count;

static struct superslab *hold(unsigned class_idx) {
    CHECK(held_count < HELD_MAX);
    struct slab *slab = held[held_count++] = hak_superslab_take_units(1, class_idx);
    CHECK(slab != NULL);
    return hak_superslab_of(slab);
}

/* The new one: no more are mapped than serve. */
static struct superslab *hold_until_one_is_mapped(unsigned class_idx) {
    uint64_t births = hak_superslab_births();
    struct superslab *s;
    do {
        s = hold(class_idx);
    } while (hak_superslab_births() == births);
    CHECK(hak_superslab_births() == births + 1);
    return s;
}

static void what_long_blocks_have_allows_no_huge_page(void **state) {
    (void)state;
    REQUIRE_LONG_BLOCKS();
    while (held_count < UNITS_ENOUGH) {
        (void)hold(long_class);
    }
    assert_false(hak_superslab_may_be_huge());
    assert_false(hold_until_one_is_mapped(short_class)->is_huge);
    while (held_count < 2 * UNITS_ENOUGH + UNITS) {
        (void)hold(short_class);
    }
    assert_true(hak_superslab_may_be_huge());
    assert_true(hold_until_one_is_mapped(short_class)->is_huge);
    assert_false(hold_until_one_is_mapped(long_class)->is_huge);
    assert_true(hold_until_one_is_mapped(short_class)->is_huge);
    while (held_count != 0) {
        hak_superslab_give_units(held[--held_count], true);
    }
}

/* A slab with one block in use. */
static struct block_ref use_one_block(struct slab *slab) {
    struct block_ref ref;
    CHECK(hak_slab_assign(slab, hak_class_of(2048), 0) == 0);
    CHECK(hak_blocks_take(slab, &ref, 1) == 1);
    return ref;
}

static void end_slab(struct slab *slab, const struct block_ref *ref) {
    hak_heap_handle_event(slab, hak_slab_release(slab, 1, HAK_PLACE_NOWHERE, 0), NULL);
    (void)hak_blocks_return(ref, 1, 0, hak_heap_handle_event, NULL);
}

/* Of slabs too a huge page has memory where nobody wrote to; another one may be thin when it is split. */
static void what_slabs_of_a_huge_one_never_used_goes_back(void **state) {
    (void)state;
    REQUIRE_LONG_BLOCKS();
    struct superslab *huge = new_full_huge(a);
    struct block_ref refs[] = {use_one_block(a[0]), use_one_block(a[1])};
    unsigned calls = 0;
    const char *why;
    hak_thin_enter(a[1]);
    size_t rest_bytes = HAK_UNIT_BYTES - hak_os_page_bytes();
    assert_int_equal(hak_thin_purge(a[0], UINT_MAX, &calls), rest_bytes);
    assert_false(huge->is_huge);
    assert_true(hak_superslab_verify(&why) || why == hak_superslab_units_are_lost);
    assert_int_equal(hak_thin_purge(a[1], UINT_MAX, &calls), rest_bytes);
    assert_true(hak_superslab_verify(&why) || why == hak_superslab_units_are_lost);
    end_slab(a[0], &refs[0]);
    end_slab(a[1], &refs[1]);
    assert_int_equal(huge->filled_units, ~UINT32_C(3)); /* those that were taken are others' still */
    give(a, 2, UNITS, true);
    assert_int_equal(huge->filled_units | huge->zero_units, 0);
}

/* Nobody wrote to it, but a huge page has all of its memory: the large floor is to give that back. */
static void what_is_lent_of_a_huge_one_holds_memory(void **state) {
    uint32_t zero_units = 1;
    (void)state;
    struct superslab *huge = new_full_huge(a);
    give(a, 0, UNITS, true);
    assert_int_equal(huge->tier, HAK_TIER_FREE);
    assert_ptr_equal(hak_superslab_take_whole(&zero_units), huge);
    assert_int_equal(zero_units, 0);
    (void)hak_superslab_give_whole(huge, zero_units, 0);
    assert_ptr_equal(hak_superslab_take_whole(&zero_units), huge);
    (void)hak_superslab_give_whole(huge, UINT32_MAX, 0);
    assert_ptr_equal(hak_superslab_take_whole(&zero_units), huge);
    assert_int_equal(zero_units, UINT32_MAX); /* it is a huge page no more */
    (void)hak_superslab_give_whole(huge, zero_units, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(long_blocks_get_the_units_that_hold_data_alone),
        TEST(a_superslab_that_is_no_huge_page_serves_both),
        TEST(so_it_is_where_one_drains),
        TEST(so_it_is_where_one_is_empty),
        TEST(what_is_lent_of_a_huge_one_holds_memory),
        TEST(what_slabs_of_a_huge_one_never_used_goes_back),
        TEST(what_long_blocks_have_allows_no_huge_page),
    };
    return cmocka_run_group_tests_name("huge", tests, NULL, heap_is_sound);
}
