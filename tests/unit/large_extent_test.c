/*
 * large_extent_test.c - page runs: placement, joining, growing and shrinking in place, what is known to be
 * zero, purging within bounds, wrong pointers, and every system call failing in turn.
 *
 * suite: limit 120 s
 */
#include "large_kit.h"

#include "large/extent.h"
#include "slab/purge.h"
#include "slab/superslab_pool.h"
#include "support/slots.h"
#include "support/target.h"

#define RUN_MAX_BYTES (1020 * KIB) /* below the map threshold */
#define LOCKED        6u           /* more than are tried in a row */

static size_t page(void) {
    return hak_os_page_bytes();
}

/* ---- random load ---- */

static void random_runs_keep_their_contents(void **state) {
    (void)state;
    enum { SLOTS = 64 };
    static struct slot slots[SLOTS];
    const struct load load = {.low_bytes = 33 * KIB,
                              .high_bytes = RUN_MAX_BYTES,
                              .calloc_parts = 40,
                              .realloc_parts = 90,
                              .memalign_parts = 20};
    struct rng rng = rng_seeded(1);
    for (unsigned round = 0; round < 20000 * test_scale(); round++) {
        slots_step(slots, SLOTS, &load, &rng);
        if (round % 64 == 0) {
            check_sound();
            slots_check_overlap(slots, SLOTS);
            clock_ahead_ms += 100;
        }
    }
    slots_clear(slots, SLOTS);
    check_all_freed();
}

static void the_same_with_pages_of_16_kib(void **state) {
    (void)state;
    run_with_pages(PAGE_VARIABLE "16384");
}

static void the_same_with_pages_of_64_kib(void **state) {
    (void)state;
    run_with_pages(PAGE_VARIABLE "65536");
}

/* ---- placement ---- */

static void usable_size_is_whole_pages_and_all_of_it_can_be_written(void **state) {
    (void)state;
    for (size_t bytes = 32 * KIB + 1; bytes < RUN_MAX_BYTES; bytes = bytes * 5 / 4) {
        char *p = must_alloc(bytes);
        assert_int_equal(usable(p), hak_os_page_round(bytes));
        assert_int_equal(hak_large_good_size(bytes), usable(p));
        memset(p, 1, usable(p));
        release(p);
    }
}

/* Programs ask for usable sizes, and grow strings byte by byte, as often as they free. */
static void a_block_that_keeps_its_length_needs_no_lock(void **state) {
    (void)state;
    char *p = must_alloc(9 * page());
    hak_lock_acquire(&hak_large_lock); /* who waits for it now waits for ever */
    assert_int_equal(usable(p), 9 * page());
    assert_ptr_equal(resize(p, 8 * page() + 1), p);
    assert_true(hak_large_owns(p, word_of(p)));
    assert_false(hak_large_owns(p + page(), word_of(p)));
    assert_false(hak_large_owns(p + 16, word_of(p)));
    hak_lock_release(&hak_large_lock);
    release(p);
}

static void alignments_up_to_a_mebibyte(void **state) {
    (void)state;
    char *held[18];
    unsigned count = 0;
    for (size_t align = 16; align <= MIB; align *= 2) {
        bool is_zero;
        char *p = hak_large_alloc(100 * count + 1, align, &is_zero);
        assert_non_null(p);
        assert_true(hak_is_aligned((uintptr_t)p, align));
        assert_int_equal(hak_word_kind(word_of(p)), HAK_KIND_EXTENT);
        memset(p, 0x5a, usable(p));
        held[count++] = p;
    }
    check_sound();
    while (count != 0) {
        release(held[--count]);
    }
}

static void the_shortest_hole_that_fits_is_taken(void **state) {
    (void)state;
    enum { HOLES = 5 };
    static const unsigned hole_pages[HOLES] = {20, 12, 16, 11, 14};
    char *holes[HOLES], *walls[HOLES];
    for (unsigned i = 0; i < HOLES; i++) {
        holes[i] = must_alloc(hole_pages[i] * page());
        walls[i] = must_alloc(page());
    }
    for (unsigned i = 0; i < HOLES; i++) {
        release(holes[i]);
    }
    assert_ptr_equal(must_alloc(13 * page()), holes[4]); /* 14: leaves one page */
    assert_ptr_equal(must_alloc(11 * page()), holes[3]);
    assert_ptr_equal(must_alloc(11 * page()), holes[1]); /* 12 */
    assert_ptr_equal(must_alloc(15 * page()), holes[2]); /* 16 */
    check_sound();
    for (unsigned i = 0; i < HOLES; i++) {
        if (i != 0) {
            release(holes[i]);
        }
        release(walls[i]);
    }
}

static void free_neighbours_join_in_any_order(void **state) {
    (void)state;
    enum { BLOCKS = 150 };
    char *blocks[BLOCKS];
    struct rng rng = rng_seeded(2);
    size_t before = hak_large_count().live_blocks;
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = must_alloc(33 * KIB + rng_below(&rng, 100 * KIB));
    }
    for (unsigned left = BLOCKS; left != 0; left--) {
        unsigned pick = (unsigned)rng_below(&rng, left);
        release(blocks[pick]);
        blocks[pick] = blocks[left - 1];
        check_sound();
    }
    struct hak_large_counts counts = hak_large_count();
    assert_int_equal(counts.live_blocks, before);
    /* Everything is one run again: the extents that are kept are empty, as many as the floor says and one. */
    assert_in_range(counts.empty_extents, 1, 1 + hak_large_policy.floor_bytes / (HAK_SUPERSLAB_BYTES / 2));
    assert_int_equal(counts.free_run_bytes, counts.empty_extents * HAK_SUPERSLAB_BYTES);
    assert_in_range(counts.dirty_bytes, 0, hak_large_policy.floor_bytes);
}

static void the_last_block_to_and_fro_makes_no_system_call(void **state) {
    (void)state;
    release(must_alloc(40 * KIB));
    uint64_t calls = memory_calls();
    for (unsigned i = 0; i < 1000; i++) {
        release(must_alloc(40 * KIB + i * 16));
    }
    assert_int_equal(memory_calls(), calls);
}

/* One empty extent stays, so that the next block finds it; what is above the floor goes from inside it. */
static void the_last_empty_extent_is_purged_not_closed(void **state) {
    (void)state;
    char *blocks[4];
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = must_alloc(500 * KIB);
    }
    assert_int_equal(hak_large_count().empty_extents, 0);
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        release(blocks[i]);
    }
    pay_debts();
    assert_int_equal(hak_large_count().empty_extents, 1);
    assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes);
    check_sound();
}

/* Empty extents go to the SuperSlab pool. What was purged in them is not dirty there either. */
static void a_superslab_takes_along_which_units_are_zero(void **state) {
    (void)state;
    enum { EXTENTS = 2, PARTS = 4, PURGED_UNITS = 7, LAST_UNITS = 8 }; /* whole ones in a part; begun ones */
    char *blocks[EXTENTS][PARTS];
    struct hak_large_policy policy = hak_large_policy;
    hak_purge_set_floor(64 * MIB); /* what comes to the pool stays there */
    hak_large_policy.floor_live_shift = 63;
    hak_large_policy.proved_live_shift = 63;
    for (unsigned i = 0; i < EXTENTS * PARTS; i++) {
        blocks[i / PARTS][i % PARTS] = must_alloc(500 * KIB);
    }
    char *last = must_alloc(500 * KIB);
    struct hak_superslab_counts before = hak_superslab_count();
    for (unsigned part = 0; part < PARTS; part++) {
        hak_large_policy.floor_bytes = part == 0 ? 0 : 64 * MIB;
        for (unsigned i = 0; i < EXTENTS; i++) {
            release(blocks[i][part]);
        }
        pay_debts();
    }
    assert_int_equal(hak_large_count().empty_extents, EXTENTS);
    size_t returned_bytes = hak_retain.cycles[HAK_LARGE_RUNS].returned_bytes;
    hak_large_policy.floor_bytes = 0;
    release(last);
    pay_debts();
    assert_int_equal(hak_large_count().empty_extents, 1);
    assert_int_equal(hak_retain.cycles[HAK_LARGE_RUNS].returned_bytes - returned_bytes,
                     (PARTS - 1) * 500 * KIB); /* the one that stays */
    struct hak_superslab_counts after = hak_superslab_count();
    /* The free closes the last one's extent; what is above the floor then, one of the others. */
    assert_int_equal(after.dirty_units - before.dirty_units,
                     HAK_UNITS_PER_SUPERSLAB - PURGED_UNITS + LAST_UNITS);
    hak_large_policy = policy;
    hak_superslab_pool.retention.is_set = false;
    check_all_freed();
}

/* Each free gives its own run back, so there is never more at once than that: what is fetched counts. */
static void cycles_that_go_bit_by_bit_raise_the_floor(void **state) {
    (void)state;
    enum { BLOCKS = 8, CYCLES = 4 };
    char *blocks[BLOCKS];
    struct hak_large_policy policy = hak_large_policy;
    hak_large_policy.floor_bytes = 0;
    hak_large_policy.floor_live_shift = 63;
    hak_large_policy.proved_live_shift = 63;
    for (unsigned cycle = 0; cycle < CYCLES; cycle++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            blocks[i] = must_alloc(500 * KIB);
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            release(blocks[i]);
        }
    }
    assert_in_range(hak_retain.raised_bytes, 2 * 500 * KIB, BLOCKS * 500 * KIB);
    hak_large_policy = policy;
    check_all_freed();
}

/* ---- length ---- */

static void a_run_shrinks_and_grows_in_place(void **state) {
    (void)state;
    char *p = must_alloc(40 * page());
    size_t live = hak_large_count().live_bytes;
    pattern_fill(p, 40 * page(), 3);
    assert_ptr_equal(resize(p, 10 * page()), p);
    assert_int_equal(usable(p), 10 * page());
    assert_int_equal(hak_large_count().live_bytes, live - 30 * page());
    check_sound();
    assert_ptr_equal(resize(p, 25 * page() - 7), p);
    assert_int_equal(usable(p), 25 * page());
    assert_true(pattern_holds(p, 10 * page(), 3));
    assert_ptr_equal(resize(p, 25 * page()), p);
    check_sound();
    release(p);
}

static void a_run_without_room_moves_with_its_contents(void **state) {
    (void)state;
    for (unsigned pages = 9; pages * page() < 128 * KIB; pages += 5) {
        char *p = must_alloc(pages * page());
        char *wall = must_alloc(page());
        pattern_fill(p, pages * page(), pages);
        char *moved = resize(p, 2 * pages * page());
        assert_ptr_not_equal(moved, p);
        assert_true(pattern_holds(moved, pages * page(), pages));
        check_sound();
        release(moved);
        release(wall);
    }
}

static void growing_from_128_kib_on_moves_pages_and_faults_none(void **state) {
    (void)state;
    struct hak_run_growth growth = hak_run_growth;
    hak_run_growth.moves_left = 3;
    for (size_t bytes = 128 * KIB; bytes < MIB; bytes *= 2) {
        char *p = must_alloc(bytes);
        char *wall = must_alloc(page());
        pattern_fill(p, bytes, bytes);
        (void)hak_large_count();
        long faults = page_faults();
        char *moved = resize(p, 2 * bytes);
        faults = page_faults() - faults;
        assert_ptr_not_equal(moved, p);
        assert_in_range(faults, 0, 8); /* records and stack at most, of 32 pages and more */
        assert_true(pattern_holds(moved, bytes, bytes));
        assert_int_equal(hak_word_kind(word_of(moved)), HAK_KIND_MAPPED);
        check_sound();
        /* What stayed behind reads as zeros, and is known to. */
        bool is_zero;
        char *again = hak_large_alloc(bytes, 16, &is_zero);
        assert_ptr_equal(again, p);
        assert_true(is_zero);
        assert_true(bytes_are(again, bytes, 0));
        release(again);
        release(moved);
        release(wall);
    }
    assert_int_equal(hak_run_growth.moves_left, 0);
    hak_run_growth = growth;
}

/* A run that cannot grow where it is, after resize() to `bytes`; what kind of block it is then. */
static enum hak_unit_kind grown_kind(size_t old_bytes, size_t bytes) {
    char *p = must_alloc(old_bytes);
    char *wall = must_alloc(page());
    pattern_fill(p, old_bytes, bytes);
    char *grown = resize(p, bytes);
    assert_ptr_not_equal(grown, p);
    assert_true(pattern_holds(grown, old_bytes, bytes));
    enum hak_unit_kind kind = hak_word_kind(word_of(grown));
    check_sound();
    release(grown);
    release(wall);
    return kind;
}

/* Imitates logs and messages that are put together by appending, one after the other. */
static void runs_that_grow_again_and_again_are_copied(void **state) {
    (void)state;
    struct hak_run_growth growth = hak_run_growth;
    hak_run_growth.moves_left = 2;
    assert_int_equal(grown_kind(128 * KIB, 192 * KIB), HAK_KIND_MAPPED);
    assert_int_equal(grown_kind(192 * KIB, 288 * KIB), HAK_KIND_MAPPED);
    assert_int_equal(grown_kind(288 * KIB, 432 * KIB), HAK_KIND_EXTENT);
    assert_int_equal(grown_kind(128 * KIB, 192 * KIB), HAK_KIND_EXTENT);
    long faults = page_faults();
    assert_int_equal(grown_kind(128 * KIB, 192 * KIB), HAK_KIND_EXTENT);
    assert_in_range(page_faults() - faults, 0, 8);
    /* Nothing is copied over and over for a few bytes each time, and nothing long. */
    assert_int_equal(grown_kind(512 * KIB, 512 * KIB + page()), HAK_KIND_MAPPED);
    assert_int_equal(grown_kind(800 * KIB, 1200 * KIB), HAK_KIND_MAPPED);
    hak_run_growth = growth;
    check_all_freed();
}

/* ---- zero ---- */

static void calloc_is_zero_after_any_use(void **state) {
    (void)state;
    enum { BLOCKS = 24 };
    char *blocks[BLOCKS] = {NULL};
    struct rng rng = rng_seeded(4);
    for (unsigned i = 0; i < 2000; i++) {
        char **slot = &blocks[rng_below(&rng, BLOCKS)];
        if (*slot != NULL) {
            release(*slot);
            *slot = NULL;
            continue;
        }
        size_t bytes = 33 * KIB + rng_below(&rng, 300 * KIB);
        *slot = hak_large_calloc(bytes);
        assert_true(bytes_are(*slot, bytes, 0));
        memset(*slot, 0xff, rng_below(&rng, usable(*slot) + 1));
        if (i % 300 == 0) {
            (void)hak_large_trim(0);
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i] != NULL) {
            release(blocks[i]);
        }
    }
}

static void calloc_of_fresh_memory_touches_none_of_it(void **state) {
    (void)state;
    char *warm_up = must_alloc(page());
    long faults = page_faults();
    char *p = hak_large_calloc(900 * KIB);
    assert_in_range(page_faults() - faults, 0, 4); /* of 225 pages */
    memset(p, 1, 900 * KIB);
    release(p);
    faults = page_faults();
    p = hak_large_calloc(900 * KIB);
    assert_in_range(page_faults() - faults, 0, 4); /* resident already */
    assert_true(bytes_are(p, 900 * KIB, 0));
    release(p);
    release(warm_up);
}

static void what_a_trim_purged_is_known_to_be_zero(void **state) {
    (void)state;
    char *wall = must_alloc(page()); /* keeps the extent */
    char *p = must_alloc(600 * KIB);
    memset(p, 1, 600 * KIB);
    release(p);
    assert_in_range(hak_large_trim(0), 600 * KIB, HAK_SUPERSLAB_BYTES);
    assert_int_equal(hak_large_count().dirty_bytes, 0);
    bool is_zero;
    char *again = hak_large_alloc(600 * KIB, 16, &is_zero);
    assert_true(is_zero);
    assert_true(bytes_are(again, 600 * KIB, 0));
    release(again);
    release(wall);
    check_sound();
}

/* ---- purging ---- */

static void no_free_makes_more_than_16_calls_and_the_floor_is_kept(void **state) {
    (void)state;
    enum { BLOCKS = 700 };
    static char *blocks[BLOCKS];
    struct rng rng = rng_seeded(5);
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = must_alloc(36 * KIB);
        memset(blocks[i], 1, 36 * KIB);
    }
    for (unsigned left = BLOCKS; left != 0; left--) {
        unsigned pick = (unsigned)rng_below(&rng, left);
        uint64_t calls = memory_calls();
        release(blocks[pick]);
        blocks[pick] = blocks[left - 1];
        assert_in_range(memory_calls() - calls, 0, HAK_PURGE_STEP_CALLS);
    }
    assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes);
    check_sound();
}

/* The extent that goes with the last of its runs, what waits of slabs' memory, and what is above the floor.
 */
static void a_free_that_closes_an_extent_makes_no_more_than_16_calls_either(void **state) {
    (void)state;
    enum { EXTENTS = 24, BLOCKS = 2 * EXTENTS };
    static char *blocks[BLOCKS];
    struct hak_large_policy policy = hak_large_policy;
    hak_retain_set_floor(64 * MIB);
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = must_alloc(1000 * KIB);
        memset(blocks[i], 1, 1000 * KIB);
    }
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        release(blocks[i]);
    }
    release(blocks[BLOCKS - 1]); /* the empty extent that may stay */
    hak_retain_set_floor(0);
    unsigned most = 0;
    for (unsigned i = 1; i < BLOCKS - 1; i += 2) {
        uint64_t calls = memory_calls();
        release(blocks[i]);
        calls = memory_calls() - calls;
        most = calls > most ? (unsigned)calls : most;
    }
    assert_in_range(most, HAK_PURGE_STEP_CALLS / 2, HAK_PURGE_STEP_CALLS);
    hak_large_policy = policy;
    check_sound();
}

/* A few new pages after each of three returns prove nothing: only the half of what went back would. */
static void fetching_a_little_raises_no_floor(void **state) {
    (void)state;
    enum { EXTENTS = 32, PARTS = 4, STEPS = 3 };
    static char *blocks[EXTENTS][PARTS];
    char *fetched[STEPS][STEPS];
    struct hak_large_policy policy = hak_large_policy;
    hak_large_policy.floor_bytes = 0; /* all goes back, so that what is fetched is new */
    hak_large_policy.floor_live_shift = 63;
    hak_large_policy.proved_live_shift = 63;
    for (unsigned i = 0; i < EXTENTS * PARTS; i++) {
        blocks[i / PARTS][i % PARTS] = must_alloc(500 * KIB);
    }
    for (unsigned step = 0; step < STEPS; step++) {
        for (unsigned i = 0; i < EXTENTS; i++) {
            release(blocks[i][step]);
        }
        pay_debts();
        assert_int_not_equal(hak_retain.cycles[HAK_LARGE_RUNS].returned_bytes, 0);
        for (unsigned i = 0; i < STEPS; i++) {
            fetched[step][i] = must_alloc(450 * KIB);
        }
        assert_int_equal(hak_retain.raised_bytes, 0);
    }
    hak_large_policy = policy;
    for (unsigned i = 0; i < EXTENTS; i++) {
        release(blocks[i][PARTS - 1]);
    }
    for (unsigned i = 0; i < STEPS * STEPS; i++) {
        release(fetched[i / STEPS][i % STEPS]);
    }
    check_all_freed();
}

static void locked_pages_stay_dirty_and_are_zeroed(void **state) {
    (void)state;
    char *wall = must_alloc(page());
    char *p = must_alloc(40 * KIB);
    if (mlock(p, 40 * KIB) != 0) {
        release(p);
        release(wall);
        SKIP_BECAUSE("mlock is not allowed");
    }
    memset(p, 1, 40 * KIB);
    release(p);
    (void)hak_large_trim(0);
    check_sound();
    assert_in_range(hak_large_count().dirty_bytes, 40 * KIB, HAK_SUPERSLAB_BYTES);
    char *again = hak_large_calloc(40 * KIB);
    assert_true(bytes_are(again, 40 * KIB, 0));
    munlock(p, 40 * KIB);
    release(again);
    release(wall);
}

/* Nor for a second time: who trims at once gets what is left. */
static void one_locked_page_keeps_no_other_runs(void **state) {
    (void)state;
    char *blocks[20], *walls[20];
    char *locked = must_alloc(900 * KIB); /* the longest run, which would be the first to go */
    char *wall = must_alloc(page());
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = must_alloc(600 * KIB);
        walls[i] = must_alloc(page());
    }
    os_faults.locked[0] = locked + 100 * KIB;
    release(locked);
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        release(blocks[i]);
    }
    pay_debts();
    assert_in_range(hak_large_count().dirty_bytes, 800 * KIB, 2 * HAK_SUPERSLAB_BYTES);
    (void)hak_large_trim(0);
    assert_in_range(hak_large_count().dirty_bytes, 800 * KIB, HAK_SUPERSLAB_BYTES);
    os_faults.locked[0] = NULL;
    for (unsigned i = 0; i < COUNT_OF(walls); i++) {
        release(walls[i]);
    }
    release(wall);
    check_sound();
}

/* Nor do several, each in an extent of its own, and all of them longer than the others. */
static void some_locked_pages_keep_no_other_runs(void **state) {
    (void)state;
    char *blocks[40], *locked[LOCKED], *walls[40 + LOCKED];
    for (unsigned i = 0; i < LOCKED; i++) {
        locked[i] = must_alloc(900 * KIB);
        walls[i] = must_alloc(1000 * KIB); /* no second one in this extent */
        os_faults.locked[i] = locked[i] + 100 * KIB;
    }
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = must_alloc(600 * KIB);
        walls[LOCKED + i] = must_alloc(page());
    }
    for (unsigned i = 0; i < LOCKED; i++) {
        release(locked[i]);
    }
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        release(blocks[i]);
    }
    for (unsigned i = 0; i < 20; i++) { /* what a program does then, for ten seconds */
        clock_ahead_ms += 500;
        release(must_alloc(300 * KIB));
        pay_debts();
    }
    assert_in_range(hak_large_count().dirty_bytes, LOCKED * 800 * KIB, LOCKED * 900 * KIB + 4 * MIB);
    for (unsigned i = 0; i < LOCKED; i++) {
        os_faults.locked[i] = NULL;
    }
    for (unsigned i = 0; i < COUNT_OF(walls); i++) {
        release(walls[i]);
    }
    check_sound();
}

/* ---- walk, questions ---- */

static int count_visit(void *block, size_t usable_bytes, void *context) {
    size_t *sums = context;
    sums[0]++;
    sums[1] += usable_bytes;
    CHECK(hak_large_owns(block, word_of(block))); /* no lock is held */
    return sums[0] == sums[2] ? 7 : 0;
}

static void a_walk_visits_every_live_block_once(void **state) {
    (void)state;
    char *blocks[20];
    for (unsigned i = 0; i < 20; i++) {
        blocks[i] = must_alloc(33 * KIB + i * 100 * KIB);
    }
    release(blocks[3]);
    release(blocks[17]);
    struct hak_large_counts counts = hak_large_count();
    size_t sums[3] = {0, 0, SIZE_MAX};
    assert_int_equal(hak_large_walk(count_visit, sums), 0);
    assert_int_equal(sums[0], counts.live_blocks);
    assert_int_equal(sums[1], counts.live_bytes);
    size_t until_5[3] = {0, 0, 5};
    assert_int_equal(hak_large_walk(count_visit, until_5), 7);
    assert_int_equal(until_5[0], 5);
    for (unsigned i = 0; i < 20; i++) {
        if (i != 3 && i != 17) {
            release(blocks[i]);
        }
    }
}

static void only_starts_of_live_runs_are_owned(void **state) {
    (void)state;
    char *p = must_alloc(100 * KIB);
    assert_true(hak_large_owns(p, word_of(p)));
    assert_false(hak_large_owns(p + 16, word_of(p + 16)));
    assert_false(hak_large_owns(p + page(), word_of(p + page())));
    hak_word word = word_of(p);
    release(p);
    assert_false(hak_large_owns(p, word));
    assert_false(hak_large_owns(p, word_of(p)));
}

/* ---- fork ---- */

static void runs_that_were_being_purged_are_free_in_the_child(void **state) {
    (void)state;
    struct hak_run run;
    char *wall = must_alloc(page());
    char *p = must_alloc(300 * KIB);
    release(p);
    hak_lock_acquire(&hak_large_lock);
    assert_true(hak_extent_hold_dirtiest(&run, UINT64_MAX));
    hak_lock_release(&hak_large_lock);
    check_sound();
    hak_large_fork_child();
    check_sound();
    char *again = must_alloc(300 * KIB);
    assert_ptr_equal(again, p);
    release(again);
    release(wall);
}

/* ---- wrong pointers ---- */

static int free_twice(void *context) {
    (void)context;
    char *p = must_alloc(100 * KIB);
    announce(p, usable(p));
    release(p);
    release(p);
    return 0;
}

static int free_twice_after_neighbours_joined(void *context) {
    (void)context;
    char *a = must_alloc(100 * KIB);
    char *b = must_alloc(200 * KIB);
    char *c = must_alloc(100 * KIB);
    announce(b, usable(b));
    release(b);
    release(a);
    release(c);
    release(b);
    return 0;
}

static int free_twice_after_the_extent_went(void *context) {
    (void)context;
    char *a = must_alloc(36 * KIB);
    char *b = must_alloc(36 * KIB); /* the second block to start in its unit */
    announce(b, usable(b));
    release(a);
    release(b);
    (void)hak_large_trim(0);
    CHECK(hak_large_count().free_run_bytes == 0);
    CHECK(hak_word_kind(word_of(b)) == HAK_KIND_LARGE_FREED);
    release(b);
    return 0;
}

static int free_inside(void *context) {
    (void)context;
    char *p = must_alloc(300 * KIB);
    announce(p + 16, usable(p));
    release(p + 16);
    return 0;
}

static int free_a_later_page(void *context) {
    (void)context;
    char *p = must_alloc(300 * KIB);
    announce(p + 2 * page(), usable(p));
    release(p + 2 * page());
    return 0;
}

static int free_a_page_of_a_free_run(void *context) {
    (void)context;
    char *wall = must_alloc(page());
    announce(wall + page(), 0);
    release(wall + page());
    return 0;
}

static int free_where_a_freed_block_was_covered(void *context) {
    (void)context;
    char *wall = must_alloc(page());
    char *a = must_alloc(20 * page());
    char *b = must_alloc(20 * page());
    release(a);
    release(b);
    char *whole = must_alloc(40 * page());
    CHECK(whole == a && wall != NULL);
    announce(b, usable(whole));
    release(b);
    return 0;
}

static int resize_freed(void *context) {
    (void)context;
    char *p = must_alloc(100 * KIB);
    announce(p, usable(p));
    release(p);
    (void)!resize(p, 200 * KIB);
    return 0;
}

static int resize_freed_to_an_impossible_size(void *context) {
    (void)context;
    char *p = must_alloc(100 * KIB);
    announce(p, usable(p));
    release(p);
    (void)!resize(p, SIZE_MAX);
    return 0;
}

static int usable_of_freed(void *context) {
    (void)context;
    char *p = must_alloc(100 * KIB);
    announce(p, usable(p));
    release(p);
    (void)!usable(p);
    return 0;
}

static int free_what_was_moved(void *context) {
    (void)context;
    char *p = must_alloc(200 * KIB);
    char *wall = must_alloc(page());
    announce(p, usable(p));
    char *moved = resize(p, 400 * KIB);
    CHECK(moved != p && wall != NULL);
    release(p);
    return 0;
}

static void wrong_pointers_end_in_their_line(void **state) {
    (void)state;
    assert_fatal(free_twice, "free", "double free of");
    assert_fatal(free_twice_after_neighbours_joined, "free", "double free of");
    assert_fatal(free_twice_after_the_extent_went, "free", "double free of");
    assert_fatal(free_inside, "free", "invalid pointer");
    assert_fatal(free_a_later_page, "free", "invalid pointer");
    assert_fatal(free_a_page_of_a_free_run, "free", "invalid pointer");
    assert_fatal(free_where_a_freed_block_was_covered, "free", "invalid pointer");
    assert_fatal(resize_freed, "realloc", "use of freed block");
    assert_fatal(resize_freed_to_an_impossible_size, "realloc", "use of freed block");
    assert_fatal(usable_of_freed, "malloc_usable_size", "use of freed block");
    assert_fatal(free_what_was_moved, "free", "double free of");
}

/* ---- system calls that fail ---- */

/*
 * A fixed course of operations on runs, checked throughout; what cannot be had is done without. Ends with
 * nothing live.
 */
static void course_of_runs(void) {
    enum { BLOCKS = 12 };
    char *blocks[BLOCKS];
    size_t bytes[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        bytes[i] = 150 * KIB + i * 70 * KIB;
        blocks[i] = i % 3 == 0 ? hak_large_calloc(bytes[i]) : alloc(bytes[i]);
        if (blocks[i] != NULL) {
            CHECK(i % 3 != 0 || bytes_are(blocks[i], bytes[i], 0));
            pattern_fill(blocks[i], bytes[i], i);
        }
    }
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        size_t new_bytes = i % 4 == 0 ? bytes[i] * 2 : bytes[i] / 3;
        char *moved = blocks[i] == NULL ? NULL : resize(blocks[i], new_bytes);
        if (moved != NULL) {
            blocks[i] = moved;
            CHECK(pattern_holds(moved, new_bytes < bytes[i] ? new_bytes : bytes[i], i));
            bytes[i] = new_bytes;
            pattern_fill(moved, new_bytes, i);
        }
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i] != NULL) {
            CHECK(pattern_holds(blocks[i], bytes[i], i));
            release(blocks[i]);
        }
    }
}

static void every_system_call_may_fail(void **state) {
    (void)state;
    unsigned calls = UINT_MAX;
    for (unsigned n = 1; n <= calls; n++) {
        (void)start_clean(NULL);
        (void)hak_large_trim(0);
        arm_faults(n, n);
        course_of_runs();
        calls = disarm_faults() + 1;
        check_all_freed();
    }
    assert_in_range(calls, 8, 10000);
}

static void all_system_calls_from_one_on_may_fail(void **state) {
    (void)state;
    unsigned calls = UINT_MAX;
    for (unsigned n = 1; n <= calls && n < 60; n++) {
        (void)start_clean(NULL);
        arm_faults(n, UINT_MAX);
        course_of_runs();
        unsigned made = disarm_faults();
        calls = made < n ? 0 : UINT_MAX;
        check_all_freed();
    }
    course_of_runs(); /* and all can be had again */
    check_sound();
}

#define TEST(name) cmocka_unit_test_setup(name, start_clean)

int main(void) {
    const struct CMUnitTest for_any_page[] = {
        TEST(random_runs_keep_their_contents),
        TEST(usable_size_is_whole_pages_and_all_of_it_can_be_written),
        TEST(a_block_that_keeps_its_length_needs_no_lock),
        TEST(alignments_up_to_a_mebibyte),
        TEST(the_last_block_to_and_fro_makes_no_system_call),
        TEST(calloc_is_zero_after_any_use),
        TEST(what_a_trim_purged_is_known_to_be_zero),
        TEST(a_walk_visits_every_live_block_once),
        TEST(only_starts_of_live_runs_are_owned),
        TEST(runs_that_were_being_purged_are_free_in_the_child),
        TEST(every_system_call_may_fail),
        TEST(all_system_calls_from_one_on_may_fail),
    };
    const struct CMUnitTest for_pages_of_the_kernel[] = {
        TEST(the_same_with_pages_of_16_kib),
        TEST(the_same_with_pages_of_64_kib),
        TEST(the_shortest_hole_that_fits_is_taken),
        TEST(free_neighbours_join_in_any_order),
        TEST(a_run_shrinks_and_grows_in_place),
        TEST(a_run_without_room_moves_with_its_contents),
        TEST(growing_from_128_kib_on_moves_pages_and_faults_none),
        TEST(runs_that_grow_again_and_again_are_copied),
        TEST(calloc_of_fresh_memory_touches_none_of_it),
        TEST(no_free_makes_more_than_16_calls_and_the_floor_is_kept),
        TEST(a_free_that_closes_an_extent_makes_no_more_than_16_calls_either),
        TEST(the_last_empty_extent_is_purged_not_closed),
        TEST(a_superslab_takes_along_which_units_are_zero),
        TEST(cycles_that_go_bit_by_bit_raise_the_floor),
        TEST(fetching_a_little_raises_no_floor),
        TEST(locked_pages_stay_dirty_and_are_zeroed),
        TEST(one_locked_page_keeps_no_other_runs),
        TEST(some_locked_pages_keep_no_other_runs),
        TEST(wrong_pointers_end_in_their_line),
    };
    int failed = cmocka_run_group_tests(for_any_page, NULL, NULL);
    return failed != 0 || !has_real_pages() ? failed
                                            : cmocka_run_group_tests(for_pages_of_the_kernel, NULL, NULL);
}
