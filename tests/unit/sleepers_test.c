/*
 * sleepers_test.c - slabs whose owner sleeps are handed on to who would take new ones; those of an owner who
 * works are not. Time is simulated.
 *
 * A sleeper fills slabs; the main thread frees most of what is in them, and allocates.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "heap/heap.h"
#include "heap/homeward.h"
#include "heap/reclaim.h"
#include "heap/sleepers.h"
#include "meta/classes.h"
#include "slab/superslab.h"
#include "support/blocks.h"
#include "support/clock.h"
#include "support/stepper.h"
#include "support/target.h"
#include "support/test.h"

#define BLOCK_BYTES 512u
#define PER_SLAB    128u
#define SLABS       40u
#define FEWER_SLABS 30u /* not a multiple of what is handed on at a time */
#define BLOCKS      (SLABS * PER_SLAB)
#define SLEEPERS    2u
#define STAYS       8u  /* one block in so many stays */
#define ASLEEP_MS   10u /* after which the owner of slabs that wait counts as asleep */
#define GROWN_MS    2u  /* the same while the program has grown by */
#define GROWN_BY    2u  /* SuperSlabs */
#define AT_A_TIME   16u /* slabs that are handed on for one that is missed */
#define LOOKED_AT   16u /* heaps, by one visit */
#define OTHERS      20u /* more than those */
#define AHEAD       3u  /* slabs taken beside the one that was missed */
#define WORK_BLOCKS (2 * PER_SLAB)
#define GROWN_BYTES 32768u

static void *blocks[SLEEPERS][BLOCKS];
static void *mine[SLEEPERS * BLOCKS];
static unsigned mine_count;
static void *works[WORK_BLOCKS];
static void *grown[1024];
static unsigned grown_count;
static struct stepper sleepers[SLEEPERS];
static struct heap *heaps[SLEEPERS];
static unsigned current; /* sleeper: the one that fills slabs, and whose slabs are counted */

static void fill_slabs(void) {
    heaps[current] = hak_heap_attach();
    blocks_take(blocks[current], BLOCKS, BLOCK_BYTES);
}

/* More than the caches hold, so that its list is looked at. */
static void work(void) {
    blocks_take(works, WORK_BLOCKS, BLOCK_BYTES);
}

static void work_no_more(void) {
    blocks_free(works, WORK_BLOCKS);
}

static void attach(void) {
    (void)hak_heap_attach();
}

static size_t waiting_for(unsigned sleeper) {
    return hak_atomic_load_relaxed(&heaps[sleeper]->remote.count);
}

static size_t waiting(void) {
    return waiting_for(current);
}

static size_t waiting_for_both(void) {
    return waiting_for(0) + waiting_for(1);
}

static uint64_t new_slabs(void) {
    return hak_atomic_load_relaxed(&hak_heap_attach()->classes[hak_class_of(BLOCK_BYTES)].counters.new_slabs);
}

/* Most of what is in so many of the current sleeper's slabs. */
static void free_most(unsigned slabs) {
    for (unsigned i = 0; i < slabs * PER_SLAB; i++) {
        if (i % STAYS != 0) {
            hak_free(blocks[current][i]);
        }
    }
    hak_homeward_flush(hak_heap_attach());
}

static void free_most_of_all(void) {
    free_most(SLABS);
}

/* A sleeper fills slabs, and most of what is in so many of them is freed: they wait for it then. */
static void start_sleeper(unsigned number, unsigned slabs) {
    current = number;
    stepper_start(&sleepers[number]);
    stepper_do(&sleepers[number], fill_slabs);
    free_most(slabs);
    assert_in_range(waiting(), slabs > 3 ? slabs - 3 : 1, slabs);
}

static void allocate(unsigned count) {
    CHECK(count <= COUNT_OF(mine) - mine_count);
    blocks_take(&mine[mine_count], count, BLOCK_BYTES);
    mine_count += count;
}

/* Until a slab more than now was missed: one new one at least, or more that were handed on. */
static void miss_a_slab(void) {
    uint64_t slabs = new_slabs();
    size_t before = waiting();
    while (new_slabs() == slabs && waiting() == before) {
        allocate(1);
    }
}

static void grow_by(unsigned superslabs) {
    size_t before = hak_superslab_count().mapped;
    for (; hak_superslab_count().mapped < before + superslabs; grown_count++) {
        CHECK(grown_count < COUNT_OF(grown));
        blocks_take(&grown[grown_count], 1, GROWN_BYTES);
    }
}

static void free_grown(void) {
    blocks_free(grown, grown_count);
    grown_count = 0;
}

static void free_rest(unsigned number, unsigned slabs) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (i % STAYS == 0 || i >= slabs * PER_SLAB) {
            hak_free(blocks[number][i]);
        }
    }
    blocks_free(mine, mine_count);
    mine_count = 0;
    hak_heap_flush(hak_heap_attach(), true); /* what is cached would leave slabs to the next test */
}

static void end_sleeper(unsigned number, unsigned slabs) {
    free_rest(number, slabs);
    stepper_end(&sleepers[number]);
}

static void what_a_sleepers_slabs_have_free_is_handed_on(void **state) {
    (void)state;
    start_sleeper(0, SLABS);
    miss_a_slab(); /* sees that they wait */
    clock_ms += ASLEEP_MS - 1;
    size_t before = waiting();
    miss_a_slab();
    assert_int_equal(waiting(), before);
    clock_ms += 1;
    uint64_t slabs = new_slabs();
    miss_a_slab();
    assert_int_equal(before - waiting(), AT_A_TIME);
    allocate((SLABS / 2) * PER_SLAB);
    assert_int_equal(before - waiting(), 2 * AT_A_TIME);
    assert_int_equal(new_slabs(), slabs);
    end_sleeper(0, SLABS);
}

static void an_owner_who_works_keeps_its_slabs(void **state) {
    (void)state;
    start_sleeper(0, SLABS);
    miss_a_slab();
    clock_ms += ASLEEP_MS - 1;
    size_t before = waiting();
    stepper_do(&sleepers[0], work);
    assert_true(waiting() < before && waiting() > AT_A_TIME);
    before = waiting();
    clock_ms += 1;
    miss_a_slab(); /* sees anew that some wait */
    assert_int_equal(waiting(), before);
    clock_ms += ASLEEP_MS;
    miss_a_slab();
    assert_int_equal(before - waiting(), AT_A_TIME);
    stepper_do(&sleepers[0], work_no_more);
    end_sleeper(0, SLABS);
}

/* Who waits for one that sleeps fills new memory meanwhile. */
static void while_the_program_grows_less_is_waited(void **state) {
    (void)state;
    start_sleeper(0, SLABS);
    miss_a_slab();
    size_t before = waiting();
    grow_by(GROWN_BY);
    clock_ms += GROWN_MS - 1;
    miss_a_slab();
    assert_int_equal(waiting(), before);
    clock_ms += 1;
    miss_a_slab();
    assert_int_equal(before - waiting(), AT_A_TIME);
    free_grown();
    end_sleeper(0, SLABS);
}

static void a_little_growth_hurries_nobody(void **state) {
    (void)state;
    start_sleeper(0, SLABS);
    miss_a_slab();
    size_t before = waiting();
    grow_by(GROWN_BY - 1);
    clock_ms += ASLEEP_MS - 1;
    miss_a_slab();
    assert_int_equal(waiting(), before);
    free_grown();
    end_sleeper(0, SLABS);
}

static struct stepper others[OTHERS];

static void start_others(void) {
    for (unsigned i = 0; i < OTHERS; i++) {
        stepper_start(&others[i]);
        stepper_do(&others[i], attach);
    }
}

static void end_others(void) {
    for (unsigned i = 0; i < OTHERS; i++) {
        stepper_end(&others[i]);
    }
}

/* Each look goes on with the heap after the last. */
static void a_sleeper_among_many_heaps_is_found(void **state) {
    (void)state;
    start_sleeper(0, SLABS);
    start_others();
    size_t before = waiting();
    for (unsigned looks = 0; looks < 2 && waiting() == before; looks++) {
        miss_a_slab();
        miss_a_slab();
        clock_ms += ASLEEP_MS;
    }
    assert_int_equal(before - waiting(), AT_A_TIME);
    end_sleeper(0, SLABS);
    end_others();
}

/* Whether a visit that begins so many heaps before the sleeper sees that its list waits. */
static bool is_seen_from(uint32_t heaps_before) {
    struct heap *own = hak_heap_attach(), *sleeper = heaps[current];
    uint32_t all = hak_heap_last_id();
    own->looked_at = (sleeper->id - 1 + all - heaps_before) % all + 1;
    hak_atomic_store_relaxed(&sleeper->remote_waits_since_ms, 0); /* relaxed: nobody else works */
    (void)hak_sleepers_hand_on(own);
    return hak_atomic_load_relaxed(&sleeper->remote_waits_since_ms) != 0; /* relaxed: as above */
}

static void a_visit_looks_at_so_many_heaps(void **state) {
    (void)state;
    start_sleeper(0, SLABS);
    start_others();
    assert_true(is_seen_from(1));
    assert_true(is_seen_from(LOOKED_AT));
    assert_false(is_seen_from(LOOKED_AT + 1));
    end_sleeper(0, SLABS);
    end_others();
}

/* What is missed once gets so many slabs and no more, from however many heaps. */
static void sleepers_together_hand_on_no_more(void **state) {
    (void)state;
    start_sleeper(1, FEWER_SLABS);
    start_sleeper(0, SLABS);
    miss_a_slab();
    clock_ms += ASLEEP_MS;
    while (waiting_for_both() >= AT_A_TIME) {
        size_t before = waiting_for_both();
        allocate(1);
        size_t taken = before - waiting_for_both();
        assert_true(taken == 0 || taken == AT_A_TIME);
    }
    end_sleeper(0, SLABS);
    end_sleeper(1, FEWER_SLABS);
}

static void one_slab_that_waits_is_used(void **state) {
    (void)state;
    start_sleeper(0, 1);
    size_t before = waiting();
    miss_a_slab();
    clock_ms += ASLEEP_MS;
    uint64_t slabs = new_slabs();
    miss_a_slab();
    assert_int_equal(before, 1);
    assert_int_equal(waiting(), 0);
    assert_in_range(new_slabs(), slabs, slabs + AHEAD); /* a class that keeps missing takes some ahead */
    end_sleeper(0, 1);
}

/* Before an allocation fails nothing waits; but of the slabs that are full there is nothing to be had. */
static void slabs_are_shared_when_memory_is_short(void **state) {
    (void)state;
    start_sleeper(0, SLABS / 2);
    size_t before = blocks_orphaned_slabs(BLOCK_BYTES), waited = waiting();
    hak_reclaim_blocks(hak_heap_attach());
    assert_int_equal(waiting(), 0);
    assert_in_range(blocks_orphaned_slabs(BLOCK_BYTES) - before, waited,
                    waited + 1); /* and the one that it allocates from */
    end_sleeper(0, SLABS / 2);
}

/* Behind the last heap the first is looked at. */
static void miss_a_slab_behind_the_last(void) {
    hak_heap_attach()->looked_at = hak_heap_last_id();
    miss_a_slab();
}

/* The main thread's heap is the first; another thread comes by it twice. */
static void the_first_heap_is_looked_at_again(void **state) {
    (void)state;
    struct stepper thief;
    current = 0;
    fill_slabs();
    assert_int_equal(heaps[0]->id, 1);
    stepper_start(&thief);
    stepper_do(&thief, free_most_of_all);
    size_t before = waiting();
    stepper_do(&thief, miss_a_slab_behind_the_last);
    assert_int_equal(waiting(), before);
    clock_ms += ASLEEP_MS;
    stepper_do(&thief, miss_a_slab_behind_the_last);
    assert_int_equal(before - waiting(), AT_A_TIME);
    stepper_end(&thief);
    free_rest(0, SLABS);
}

#define TEST(name) cmocka_unit_test_teardown(name, heap_is_sound)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_a_sleepers_slabs_have_free_is_handed_on),
        TEST(an_owner_who_works_keeps_its_slabs),
        TEST(while_the_program_grows_less_is_waited),
        TEST(a_little_growth_hurries_nobody),
        TEST(sleepers_together_hand_on_no_more),
        TEST(one_slab_that_waits_is_used),
        TEST(slabs_are_shared_when_memory_is_short),
        TEST(a_sleeper_among_many_heaps_is_found),
        TEST(a_visit_looks_at_so_many_heaps),
        TEST(the_first_heap_is_looked_at_again),
    };
    return cmocka_run_group_tests_name("sleepers", tests, NULL, NULL);
}
