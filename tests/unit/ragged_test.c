/*
 * ragged_test.c - slabs with free pages between their blocks: they go back when the heap takes a new slab,
 * and with time, not while everything is freed; blocks beside those in use are taken first; where pages are
 * missed, turns are skipped.
 *
 * suite: limit 60 s
 */
#include "sparse_kit.h"

#include "heap/heap.h"
#include "meta/classes.h"
#include "os/os.h"
#include "slab/orphans.h"
#include "slab/purge.h"
#include "slab/ragged.h"
#include "slab/slab_word.h"
#include "slab/superslab_pool.h"
#include "support/child.h"
#include "support/classes.h"
#include "support/clock.h"
#include "support/debt.h"
#include "support/target.h"

#include <pthread.h>

#define EVERY        16u /* of as many blocks one stays: a page in two is free */
#define NEW_BYTES    8192u
#define NEW_PER_SLAB 8u
#define NEW_SLABS    260u  /* each gives two of the others their turn */
#define AHEAD_BYTES  1024u /* of a class whose slabs are fetched ahead */
#define MOST_SKIPS   1023u
#define CACHED_SLABS 16u /* that blocks in caches may keep from being ragged */
#define HOT_BYTES    100u
#define HOT_PAIRS    5000u /* more than from one upkeep to the next while slabs wait */
#define LOOKS_MAX    64u   /* slabs that one turn looks at */

static void *new_blocks[NEW_SLABS * NEW_PER_SLAB];

static size_t waiting(void) {
    return hak_superslab_pool.ragged.waiting;
}

static void take_new_slabs(unsigned slabs) {
    for (unsigned i = 0; i < slabs * NEW_PER_SLAB; i++) {
        new_blocks[i] = hak_malloc(NEW_BYTES);
        CHECK(new_blocks[i] != NULL);
    }
}

/* In a slab's worth of them. */
static unsigned most_calls_of_one_malloc(void) {
    unsigned most = 0;
    for (unsigned i = 0; i < NEW_PER_SLAB; i++) {
        purge_calls = 0;
        new_blocks[i] = hak_malloc(NEW_BYTES);
        CHECK(new_blocks[i] != NULL);
        most = purge_calls > most ? purge_calls : most;
    }
    return most;
}

static int nothing_is_left(void **state) {
    (void)state;
    free_but_every(0);
    for (unsigned i = 0; i < COUNT_OF(new_blocks); i++) {
        hak_free(new_blocks[i]);
        new_blocks[i] = NULL;
    }
    (void)hak_trim(0);
    check_heap();
    hak_superslab_pool.ragged = (struct ragged){.waiting = waiting()};
    return 0;
}

/* The first purge of a process makes a call of its own, to try it. */
static int purge_for_the_first_time(void **state) {
    (void)state;
    void *page;
    CHECK(hak_os_map(NULL, hak_os_page_bytes(), &page) == 0);
    CHECK(hak_os_purge(page, hak_os_page_bytes()) == 0);
    return hak_os_unmap(page, hak_os_page_bytes());
}

static int begin(void **state) {
    (void)state;
    hak_purge_set_floor(0);
    purge_calls = 0;
    return 0;
}

static void a_new_slab_gives_free_pages_back(void **state) {
    (void)state;
    fill();
    free_but_every(EVERY);
    assert_in_range(waiting(), SLABS - CACHED_SLABS, SLABS);
    size_t before_bytes = hak_superslab_pool.purged_bytes;
    assert_in_range(most_calls_of_one_malloc(), 1, HAK_PURGE_STEP_CALLS);
    take_new_slabs(NEW_SLABS);
    size_t purged_bytes = hak_superslab_pool.purged_bytes - before_bytes;
    assert_true(purged_bytes > (SLABS - 2 * CACHED_SLABS) * HAK_UNIT_BYTES / 2);
    for (unsigned i = 0; i < BLOCKS; i += EVERY) {
        assert_int_equal(*(char *)blocks[i], 1);
        assert_int_equal(((char *)blocks[i])[BLOCK_BYTES - 1], 1);
    }
    check_heap();
}

/* Also where one that keeps missing would fetch slabs ahead. */
static void a_refill_makes_no_more_calls_than_one_step(void **state) {
    (void)state;
    unsigned most_calls = 0;
    fill();
    free_but_every(EVERY);
    for (unsigned i = 0; i < COUNT_OF(new_blocks); i++) {
        purge_calls = 0;
        new_blocks[i] = hak_malloc(AHEAD_BYTES);
        CHECK(new_blocks[i] != NULL);
        most_calls = purge_calls > most_calls ? purge_calls : most_calls;
    }
    assert_in_range(most_calls, 1, HAK_PURGE_STEP_CALLS);
}

/* Frees alone do not look at slabs that are on their way to be empty. */
static void what_is_freed_to_the_end_costs_no_looks(void **state) {
    (void)state;
    fill();
    purge_calls = 0;
    free_but_every(EVERY);
    assert_int_equal(purge_calls, 0);
    free_but_every(0);
    assert_in_range(waiting(), 0, CACHED_SLABS);
}

static void what_the_program_wants_to_keep_stays(void **state) {
    (void)state;
    fill();
    free_but_every(EVERY);
    hak_purge_set_floor(GIB);
    purge_calls = 0;
    take_new_slabs(NEW_SLABS);
    assert_int_equal(purge_calls, 0);
}

static struct slab *slab_of(const void *block) {
    return hak_slab_of_block(block);
}

/* A refill that finds enough blocks on pages in memory leaves the others without. */
static void blocks_beside_those_in_use_come_first(void **state) {
    (void)state;
    struct block_ref refs[EVERY];
    fill();
    free_but_every(EVERY);
    take_new_slabs(NEW_SLABS);
    struct slab *slab = NULL;
    for (unsigned i = 0; i < BLOCKS && slab == NULL; i += EVERY) {
        bool is_purged = slab_of(blocks[i])->purged_pages >= 4;
        slab = is_purged && hak_slab_lease_any(slab_of(blocks[i])) ? slab_of(blocks[i]) : NULL;
    }
    assert_non_null(slab);
    unsigned purged_pages = slab->purged_pages;
    unsigned got = hak_blocks_take(slab, refs, EVERY);
    assert_int_equal(got, EVERY);
    assert_int_equal(slab->purged_pages, purged_pages);
    for (unsigned i = 0; i < got; i++) {
        size_t page = ((uintptr_t)refs[i].block - slab->base) / 4096;
        assert_false(slab->purged_mask >> page & 1u);
    }
    hak_heap_handle_event(slab, hak_slab_release(slab, got, HAK_PLACE_NOWHERE, hak_slab_owner(slab)), NULL);
    (void)hak_blocks_return(refs, got, HAK_OWNER_NOBODY, hak_heap_handle_event, NULL);
}

static void where_pages_are_missed_turns_are_skipped(void **state) {
    (void)state;
    struct ragged *ragged = &hak_superslab_pool.ragged;
    hak_ragged_note_purged(MIB);
    hak_ragged_note_missed(MIB / 4, clock_ms);
    assert_int_equal(ragged->skips, 0);
    hak_ragged_note_missed(MIB / 4, clock_ms);
    unsigned first = ragged->skips;
    assert_in_range(first, 2, MOST_SKIPS / 2);
    for (unsigned skips = 2 * first + 1; skips <= MOST_SKIPS; skips = 2 * skips + 1) {
        hak_ragged_note_purged(MIB);
        hak_ragged_note_missed(MIB, clock_ms);
        assert_int_equal(ragged->skips, skips);
    }
    hak_ragged_note_purged(MIB);
    hak_ragged_note_missed(MIB, clock_ms);
    assert_int_equal(ragged->skips, MOST_SKIPS);
    for (unsigned i = 0; i < 64; i++) {
        hak_ragged_note_purged(MIB);
    }
    assert_int_equal(ragged->skips, 0);
    /* A skipped turn is a turn without a call. */
    fill();
    free_but_every(EVERY);
    ragged->skips = UINT16_MAX;
    purge_calls = 0;
    take_new_slabs(8);
    assert_int_equal(purge_calls, 0);
}

static unsigned most_calls;

static void note_calls(void) {
    most_calls = purge_calls > most_calls ? purge_calls : most_calls;
    purge_calls = 0;
}

/* The most calls of a malloc or free of so many pairs that the cache serves. */
static unsigned most_calls_of_hot_pairs(unsigned pairs) {
    most_calls = purge_calls = 0;
    for (unsigned i = 0; i < pairs; i++) {
        void *block = hak_malloc(HOT_BYTES);
        note_calls();
        hak_free(block);
        note_calls();
    }
    return most_calls;
}

/* Slabs wait, and this thread looks after them at its next allocation. */
static void wait_for_time(void) {
    fill();
    (void)most_calls_of_hot_pairs(100); /* it is hot */
    free_but_every(EVERY);
    hak_tls.until_slow = 0;
}

static void time_gives_turns_to_who_works_on(void **state) {
    (void)state;
    unsigned most = 0;
    wait_for_time();
    size_t before_bytes = hak_superslab_pool.purged_bytes;
    for (unsigned turns = 0; waiting() != 0 && turns < SLABS; turns++) {
        clock_ms += HAK_RAGGED_TURN_MS;
        unsigned calls = most_calls_of_hot_pairs(HOT_PAIRS);
        most = calls > most ? calls : most;
    }
    assert_int_equal(waiting(), 0);
    assert_in_range(most, 1, HAK_PURGE_STEP_CALLS);
    size_t purged_bytes = hak_superslab_pool.purged_bytes - before_bytes;
    assert_true(purged_bytes > (SLABS - 2 * CACHED_SLABS) * HAK_UNIT_BYTES / 2);
    check_heap();
}

/* One slab of 128 blocks, all in use, which the test frees as a thread does whose cache is full. The first
 * lie on every other page. */
static struct slab *own_slab;
static struct block_ref own_refs[BLOCKS_PER_SLAB];

static void take_own(enum hak_place place) {
    struct block_ref refs[BLOCKS_PER_SLAB];
    own_slab = hak_superslab_take_units(1, 0);
    assert_int_equal(hak_slab_assign(own_slab, CLASS_OF_512, hak_heap_attach()->id), 0);
    assert_int_equal(hak_blocks_take(own_slab, refs, BLOCKS_PER_SLAB), BLOCKS_PER_SLAB);
    for (unsigned i = 0; i < BLOCKS_PER_SLAB; i++) {
        own_refs[i] = refs[i * EVERY % BLOCKS_PER_SLAB + i * EVERY / BLOCKS_PER_SLAB];
    }
    assert_int_equal(hak_slab_release(own_slab, BLOCKS_PER_SLAB, place, hak_heap_attach()->id),
                     HAK_EVENT_NONE);
}

static void free_own(unsigned from, unsigned to) {
    (void)hak_blocks_return(own_refs + from, to - from, hak_heap_attach()->id, hak_heap_handle_event, NULL);
}

static bool is_own_thin(void) {
    return (hak_superslab_of(own_slab)->thin_slabs >> own_slab->unit_idx & 1u) != 0;
}

static bool does_own_wait(void) {
    return (hak_superslab_of(own_slab)->ragged_slabs >> own_slab->unit_idx & 1u) != 0;
}

/* The free that would have made the slab thin or ragged found it leased: who has the lease sees to it. */
static void what_is_freed_during_a_lease_is_seen_at_its_end(void **state) {
    (void)state;
    static const struct {
        unsigned left_blocks;
        bool is_thin;
    } cases[] = {{8, false}, {1, true}};
    fill();
    hak_purge_set_floor(GIB);
    for (unsigned i = 0; i < 2 * COUNT_OF(cases); i++) {
        unsigned left = cases[i / 2].left_blocks;
        bool is_listed = i % 2 != 0;
        take_own(is_listed ? HAK_PLACE_NOWHERE : HAK_PLACE_WARM);
        assert_true(hak_slab_lease_any(own_slab));
        free_own(left, BLOCKS_PER_SLAB);
        assert_false(is_own_thin() || does_own_wait());
        if (is_listed) {
            assert_int_equal(hak_orphans_push(own_slab), HAK_EVENT_NONE);
        } else {
            hak_heap_handle_event(own_slab, hak_slab_release_any(own_slab, 0), NULL);
        }
        assert_int_equal(is_own_thin(), cases[i / 2].is_thin);
        assert_true(does_own_wait());
        free_own(0, left);
    }
}

/* In the last of the calls that the turn makes for the pages between them. */
static void free_all_but_one(void) {
    if (purge_calls == EVERY / 2) {
        during_purge = NULL;
        free_own(1, EVERY / 2);
    }
}

/* When the first two runs between the three blocks that are left have gone. */
static void free_one_of_thin(void) {
    if (purge_calls == 2) {
        during_purge = NULL;
        free_own(1, 2);
    }
}

/* Also of a slab that was thin already, which this does not make thin again. */
static void what_is_freed_during_the_purge_of_a_thin_slab_is_seen_at_its_end(void **state) {
    (void)state;
    fill();
    take_own(HAK_PLACE_WARM);
    free_own(3, BLOCKS_PER_SLAB);
    assert_true(is_own_thin());
    purge_calls = 0;
    during_purge = free_one_of_thin;
    (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    assert_null(during_purge);
    assert_true(is_own_thin() || own_slab->purged_pages == HAK_UNIT_BYTES / hak_os_page_bytes() - 2);
    free_own(0, 1);
    free_own(2, 3);
}

static void what_is_freed_during_a_purge_is_seen_at_its_end(void **state) {
    (void)state;
    fill();
    take_own(HAK_PLACE_WARM);
    free_own(EVERY / 2, BLOCKS_PER_SLAB);
    assert_true(does_own_wait() && !is_own_thin());
    purge_calls = 0;
    during_purge = free_all_but_one;
    hak_purge_ragged();
    assert_null(during_purge);
    assert_true(is_own_thin() || own_slab->purged_pages == HAK_UNIT_BYTES / hak_os_page_bytes() - 1);
    free_own(0, 1);
}

/* Turns of time until no slab waits any more, or those that so many seconds give. */
static unsigned turns_until_none_waits(unsigned seconds) {
    unsigned turns = 0;
    while (waiting() != 0 && turns < seconds * 1000 / HAK_RAGGED_TURN_MS) {
        clock_ms += HAK_RAGGED_TURN_MS;
        (void)most_calls_of_hot_pairs(HOT_PAIRS);
        turns++;
    }
    return turns;
}

/* As after many swings: a heap that shrinks for good then is not skipped for as long as it lives. */
static void misses_of_long_ago_are_forgotten(void **state) {
    (void)state;
    wait_for_time();
    hak_superslab_pool.ragged.skips = MOST_SKIPS;
    size_t before_bytes = hak_superslab_pool.purged_bytes;
    (void)turns_until_none_waits(30);
    assert_int_equal(waiting(), 0);
    size_t purged_bytes = hak_superslab_pool.purged_bytes - before_bytes;
    assert_true(purged_bytes > (SLABS - 2 * CACHED_SLABS) * HAK_UNIT_BYTES / 2);
}

static void misses_that_go_on_are_not_forgotten(void **state) {
    (void)state;
    struct ragged *ragged = &hak_superslab_pool.ragged;
    wait_for_time();
    ragged->skips = MOST_SKIPS;
    for (unsigned seconds = 0; seconds < 30; seconds++) {
        hak_ragged_note_purged(MIB);
        hak_ragged_note_missed(MIB, clock_ms);
        (void)turns_until_none_waits(1);
        assert_in_range(ragged->skips, MOST_SKIPS / 2, MOST_SKIPS);
    }
    /* Too few to have more skipped, but no fewer: above a quarter of what went back, once a second. */
    unsigned skips = ragged->skips;
    for (unsigned seconds = 0; seconds < 30; seconds++) {
        hak_ragged_note_purged(MIB);
        hak_ragged_note_missed(MIB * 3 / 8, clock_ms);
        (void)turns_until_none_waits(1);
        assert_int_equal(ragged->skips, skips);
    }
}

/* Pages of a slab of small blocks between which no block is in use, and that were not given back. */
static unsigned pages_left(const struct slab *slab) {
    unsigned used_mask = slab->purged_mask;
    for (unsigned i = 0; i < slab->carved_blocks; i++) {
        unsigned header = slab->map[i];
        bool is_free = header == HAK_HEADER_FREE || header == HAK_HEADER_NEVER;
        used_mask |= is_free ? 0 : 1u << i * BLOCK_BYTES / hak_os_page_bytes();
    }
    return hak_popcount32(hak_mask32(HAK_UNIT_BYTES / hak_os_page_bytes()) & ~used_mask);
}

/* Whatever the number of runs that a slab has: of one that was cut off for want of calls the rest goes too.
 */
static void no_free_page_is_left_when_none_waits(void **state) {
    (void)state;
    static const unsigned distances[] = {12, 14, 18, 20, 24};
    for (unsigned d = 0; d < COUNT_OF(distances); d++) {
        unsigned left = 0;
        fill();
        (void)most_calls_of_hot_pairs(100);
        free_but_every(distances[d]);
        hak_tls.until_slow = 0;
        for (unsigned turns = 0; waiting() != 0 && turns < SLABS; turns++) {
            clock_ms += HAK_RAGGED_TURN_MS;
            assert_in_range(most_calls_of_hot_pairs(HOT_PAIRS), 0, HAK_PURGE_STEP_CALLS);
        }
        assert_int_equal(waiting(), 0);
        for (unsigned i = 0; i < BLOCKS; i += distances[d] * BLOCKS_PER_SLAB) {
            left += pages_left(hak_slab_of_block(blocks[i]));
        }
        assert_in_range(left, 0, 8); /* beneath blocks in caches, which may go after a turn */
        free_but_every(0);
        hak_superslab_pool.ragged = (struct ragged){.waiting = waiting()};
    }
}

static void time_that_has_not_come_gives_none(void **state) {
    (void)state;
    wait_for_time();
    clock_ms += HAK_RAGGED_TURN_MS;
    assert_in_range(most_calls_of_hot_pairs(HOT_PAIRS), 1, HAK_PURGE_STEP_CALLS);
    clock_ms += HAK_RAGGED_TURN_MS - 1;
    assert_int_equal(most_calls_of_hot_pairs(10 * HOT_PAIRS), 0);
}

/* A thread that comes by seldom asks again soon, so that it gets each turn that there is. */
static void a_thread_with_little_to_do_gets_them_too(void **state) {
    (void)state;
    unsigned turns = 0;
    wait_for_time();
    for (unsigned i = 0; i < 100; i++) {
        clock_ms += HAK_RAGGED_TURN_MS;
        turns += most_calls_of_hot_pairs(HOT_PAIRS / 50) != 0;
    }
    assert_in_range(turns, 50, 100);
}

/* There may be something to pay each time, and nothing come of it. */
static void a_debt_that_is_none_keeps_nobody_from_a_turn(void **state) {
    (void)state;
    wait_for_time();
    (void)most_calls_of_hot_pairs(HOT_PAIRS);
    for (unsigned i = 0; i < 10; i++) {
        clock_ms += HAK_RAGGED_TURN_MS;
        debt_note();
        hak_tls.until_slow = 0;
        assert_in_range(most_calls_of_hot_pairs(1), 1, HAK_PURGE_STEP_CALLS);
    }
}

/* From the first look on: none makes each allocation a slow one. */
static void *check_gap(void *unused) {
    hak_free(hak_malloc(HOT_BYTES));
    unsigned gap = hak_heap_attach()->ragged_gap;
    CHECK(gap >= HOT_PAIRS / 100 && gap <= HOT_PAIRS);
    return unused;
}

static void a_new_thread_comes_by_no_sooner(void **state) {
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, check_gap, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Also where they do not come out even: the slab that is cut off goes on in the next turn. */
static void a_turn_uses_all_its_calls(void **state) {
    (void)state;
    const unsigned every = 24; /* six runs a slab, or five */
    fill();
    free_but_every(every);
    for (unsigned turn = 0; turn < 10; turn++) {
        purge_calls = 0;
        hak_purge_ragged();
        assert_int_equal(purge_calls, HAK_PURGE_STEP_CALLS);
    }
}

/* What is in use again costs no call, but a look. */
static void a_turn_looks_at_a_bounded_number(void **state) {
    (void)state;
    fill();
    free_but_every(EVERY);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i] == NULL) {
            blocks[i] = hak_malloc(BLOCK_BYTES);
        }
    }
    size_t before = waiting();
    assert_true(before > 2 * LOOKS_MAX);
    hak_purge_ragged();
    assert_in_range(waiting(), before - LOOKS_MAX, before - 1);
}

static int use_without_ragged_slabs(void *unused) {
    (void)unused;
    take_new_slabs(NEW_SLABS);
    check_heap();
    free_but_every(0);
    fill();
    check_heap();
    return 0;
}

static void a_child_starts_without_ragged_slabs(void **state) {
    (void)state;
    fill();
    free_but_every(EVERY);
    assert_function_succeeds(use_without_ragged_slabs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_slab_gives_free_pages_back, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(a_refill_makes_no_more_calls_than_one_step, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(what_is_freed_to_the_end_costs_no_looks, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(what_the_program_wants_to_keep_stays, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(blocks_beside_those_in_use_come_first, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(where_pages_are_missed_turns_are_skipped, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(time_gives_turns_to_who_works_on, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(what_is_freed_during_a_lease_is_seen_at_its_end, begin,
                                        nothing_is_left),
        cmocka_unit_test_setup_teardown(what_is_freed_during_a_purge_is_seen_at_its_end, begin,
                                        nothing_is_left),
        cmocka_unit_test_setup_teardown(what_is_freed_during_the_purge_of_a_thin_slab_is_seen_at_its_end,
                                        begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(misses_of_long_ago_are_forgotten, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(misses_that_go_on_are_not_forgotten, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(no_free_page_is_left_when_none_waits, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(time_that_has_not_come_gives_none, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(a_thread_with_little_to_do_gets_them_too, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(a_debt_that_is_none_keeps_nobody_from_a_turn, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(a_new_thread_comes_by_no_sooner, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(a_turn_uses_all_its_calls, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(a_turn_looks_at_a_bounded_number, begin, nothing_is_left),
        cmocka_unit_test_setup_teardown(a_child_starts_without_ragged_slabs, begin, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, purge_for_the_first_time, NULL);
}
