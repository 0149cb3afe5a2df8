/*
 * large_growth_test.c - what blocks that grow again and again cost: copies into memory that has its pages,
 * and a floor that learns from growth too.
 */
#include "large_kit.h"

/* Policy and state as at the start, but for what a test sets; put back by its end. */
static struct hak_large_policy policy_before;
static struct hak_run_growth growth_before;

static void begin(size_t floor_bytes) {
    policy_before = hak_large_policy;
    growth_before = hak_run_growth;
    hak_large_policy.floor_bytes = floor_bytes;
    hak_large_policy.floor_live_shift = 63;
    hak_large_policy.proved_live_shift = 63;
    hak_run_growth = (struct hak_run_growth){.moves_left = 0};
}

static void end(void) {
    hak_large_policy = policy_before;
    hak_run_growth = growth_before;
    check_all_freed();
}

static char *alloc_filled(size_t bytes) {
    char *p = must_alloc(bytes);
    memset(p, 0x5a, bytes);
    return p;
}

/* An array that is appended to, from 64 KiB to `bytes`; freed in the end. */
static void grow_by_half(size_t bytes) {
    size_t now_bytes = 64 * KIB;
    char *p = alloc_filled(now_bytes);
    while (now_bytes < bytes) {
        size_t more_bytes = now_bytes + now_bytes / 2 < bytes ? now_bytes / 2 : bytes - now_bytes;
        pattern_fill(p, now_bytes, now_bytes);
        p = resize(p, now_bytes + more_bytes);
        assert_true(pattern_holds(p, now_bytes, now_bytes));
        memset(p + now_bytes, 0x5a, more_bytes);
        now_bytes += more_bytes;
    }
    release(p);
    check_sound();
}

/* Page faults of one array more, after so many. */
static long faults_after(unsigned times, void (*grow)(size_t bytes), size_t bytes) {
    long faults = 0;
    for (unsigned i = 0; i <= times; i++) {
        faults = page_faults();
        grow(bytes);
    }
    return page_faults() - faults;
}

/* Above the floor each time, and wanted again at once: by growth, not by a request. */
static void arrays_that_grow_in_place_raise_the_floor(void **state) {
    (void)state;
    begin(64 * KIB);
    assert_in_range(faults_after(4, grow_by_half, 1000 * KIB), 0, 16); /* of 250 pages */
    assert_in_range(hak_retain.raised_bytes, 800 * KIB, 2 * MIB);
    end();
}

/* After so many arrays one more faults little, and little stays of it. */
static void check_reuse(unsigned times, void (*grow)(size_t bytes), size_t bytes, long faults_max,
                        size_t kept_max_bytes) {
    begin(64 * KIB);
    assert_in_range(faults_after(times, grow, bytes), 0, faults_max);
    assert_in_range(hak_retain.dirty_bytes, 0, kept_max_bytes);
    end();
}

static void arrays_that_grow_beyond_runs_reuse_what_they_had(void **state) {
    (void)state;
    check_reuse(12, grow_by_half, 6 * MIB, 500, 20 * MIB); /* of 1536 pages */
}

static void append_up_to(size_t bytes) {
    char *p = alloc_filled(64 * KIB);
    for (size_t now_bytes = 80 * KIB; now_bytes <= bytes; now_bytes += 16 * KIB) {
        p = resize(p, now_bytes);
        memset(p + now_bytes - 16 * KIB, 0x5a, 16 * KIB);
    }
    release(p);
    check_sound();
}

static void so_do_those_that_grow_by_little(void **state) {
    (void)state;
    check_reuse(8, append_up_to, 2200 * KIB, 200, 8 * MIB); /* of 550 pages */
}

/* A buffer of 5 MiB that turns out to be too short; freed in the end. */
static void grow_at_once(size_t bytes) {
    char *p = alloc_filled(5 * MIB);
    p = resize(p, bytes);
    memset(p + 5 * MIB, 0x5a, bytes - 5 * MIB);
    release(p);
    check_sound();
}

static void grow_by_sixteenths(size_t bytes) {
    size_t now_bytes = 5 * MIB;
    char *p = alloc_filled(now_bytes);
    while (now_bytes < bytes) {
        size_t more_bytes = hak_smaller(now_bytes / 16, bytes - now_bytes);
        p = resize(p, now_bytes + more_bytes);
        memset(p + now_bytes, 0x5a, more_bytes);
        now_bytes += more_bytes;
    }
    release(p);
    check_sound();
}

static void so_do_those_that_are_too_long_to_be_copied(void **state) {
    (void)state;
    check_reuse(4, grow_at_once, 20 * MIB, 200, 24 * MIB); /* of 5120 pages */
}

static void long_ones_that_grow_by_little_do_too(void **state) {
    (void)state;
    check_reuse(4, grow_by_sixteenths, 20 * MIB, 200, 24 * MIB); /* of 5120 pages */
}

/* A kept piece of 5 MiB whose pages are there, and a block of 2 MiB that has no room behind it. */
static char *block_beside_kept(char **wall) {
    char *whole = alloc_filled(8 * MIB);
    release(whole);
    char *p = must_alloc(2 * MIB);
    *wall = must_alloc(MIB);
    assert_ptr_equal(p, whole);
    assert_ptr_equal(*wall, whole + 2 * MIB);
    pattern_fill(p, 2 * MIB, 7);
    return p;
}

static void a_block_grows_into_a_kept_piece_with_its_pages(void **state) {
    (void)state;
    begin(16 * MIB);
    char *wall;
    char *p = block_beside_kept(&wall);
    long faults = page_faults();
    char *grown = resize(p, 4 * MIB);
    memset(grown + 2 * MIB, 1, 2 * MIB);
    assert_in_range(page_faults() - faults, 0, 8); /* of 512 */
    assert_ptr_equal(grown, wall + MIB);
    assert_true(pattern_holds(grown, 2 * MIB, 7));
    check_sound();
    release(grown);
    release(wall);
    end();
}

/* Nor for a few bytes, over and over. */
static void a_block_that_grows_by_little_is_not_copied(void **state) {
    (void)state;
    begin(16 * MIB);
    char *wall;
    char *p = block_beside_kept(&wall);
    size_t dirty_bytes = hak_retain.dirty_bytes;
    char *grown = resize(p, 2 * MIB + 128 * KIB);
    assert_ptr_not_equal(grown, p);
    assert_int_equal(hak_retain.dirty_bytes, dirty_bytes); /* its pages moved, nothing was freed */
    assert_true(pattern_holds(grown, 2 * MIB, 7));
    release(grown);
    release(wall);
    end();
}

static void a_run_grows_into_a_kept_piece_with_its_pages(void **state) {
    (void)state;
    begin(16 * MIB);
    release(alloc_filled(4 * MIB));
    char *p = must_alloc(800 * KIB);
    char *wall = must_alloc(500 * KIB);
    pattern_fill(p, 800 * KIB, 9);
    size_t dirty_bytes = hak_retain.dirty_bytes;
    long faults = page_faults();
    char *grown = resize(p, 1300 * KIB);
    memset(grown + 800 * KIB, 1, 500 * KIB);
    assert_in_range(page_faults() - faults, 0, 8); /* of 125 */
    assert_int_equal(hak_word_kind(word_of(grown)), HAK_KIND_MAPPED);
    assert_true(pattern_holds(grown, 800 * KIB, 9));
    assert_in_range(hak_retain.dirty_bytes, dirty_bytes - 1400 * KIB + 800 * KIB, dirty_bytes);
    release(grown);
    release(wall);
    end();
}

/* What was never touched has no pages, and is not to get any. */
static void a_block_that_holds_nothing_is_not_copied(void **state) {
    (void)state;
    begin(16 * MIB);
    char *wall;
    char *p = block_beside_kept(&wall);
    release(p);
    p = hak_large_calloc(300 * KIB);
    char *behind = must_alloc(100 * KIB);
    memset(p, 1, 100 * KIB);
    char *grown = resize(p, 500 * KIB);
    assert_int_equal(hak_word_kind(word_of(grown)), HAK_KIND_MAPPED);
    assert_true(bytes_are(grown, 100 * KIB, 1) && bytes_are(grown + 100 * KIB, 200 * KIB, 0));
    memset(grown, 1, 300 * KIB);
    release(grown);
    release(behind);
    release(wall);
    end();
}

/* All stay, so what a copy leaves is too short for the next one. */
static void copies_that_find_no_pages_are_given_up(void **state) {
    (void)state;
    enum { ARRAYS = 40 };
    char *arrays[ARRAYS], *walls[ARRAYS];
    unsigned copies = 0;
    begin(16 * MIB);
    for (unsigned i = 0; i < ARRAYS; i++) {
        arrays[i] = alloc_filled(300 * KIB);
        walls[i] = must_alloc(40 * KIB);
        arrays[i] = resize(arrays[i], 900 * KIB);
        copies += hak_word_kind(word_of(arrays[i])) == HAK_KIND_EXTENT;
    }
    assert_in_range(copies, 4, ARRAYS - 10);
    assert_in_range(hak_run_growth.moves_left, 1, 64);
    for (unsigned i = 0; i < ARRAYS; i++) {
        release(arrays[i]);
        release(walls[i]);
    }
    end();
}

/* ---- shrinking ---- */

/* Imitates a file that is read into a large buffer, which then is made as long as the file is. */
static void a_block_that_shrinks_to_a_run_leaves_its_mapping_whole(void **state) {
    (void)state;
    begin(16 * MIB);
    char *first = alloc_filled(2 * MIB);
    for (size_t bytes = 100 * KIB; bytes <= 500 * KIB; bytes += 100 * KIB) {
        char *p = must_alloc(2 * MIB);
        assert_int_equal(hak_word_kind(word_of(p)), HAK_KIND_MAPPED);
        pattern_fill(p, bytes, bytes);
        char *shrunk = resize(p, bytes);
        assert_int_equal(hak_word_kind(word_of(shrunk)), HAK_KIND_EXTENT);
        assert_true(pattern_holds(shrunk, bytes, bytes));
        char *again = must_alloc(2 * MIB);
        assert_ptr_equal(again, p);
        release(again);
        release(shrunk);
    }
    release(first);
    end();
}

static void a_block_that_shrinks_by_less_stays(void **state) {
    (void)state;
    begin(16 * MIB);
    char *p = alloc_filled(2 * MIB);
    assert_ptr_equal(resize(p, 1700 * KIB), p);
    assert_ptr_equal(resize(p, 900 * KIB), p);
    assert_int_equal(hak_word_kind(word_of(p)), HAK_KIND_MAPPED);
    assert_int_equal(hak_retain.dirty_bytes, 2 * MIB - usable(p)); /* the ends are kept */
    release(p);
    end();
}

#define TEST(name) cmocka_unit_test_setup(name, start_clean)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(arrays_that_grow_in_place_raise_the_floor),
        TEST(arrays_that_grow_beyond_runs_reuse_what_they_had),
        TEST(so_do_those_that_grow_by_little),
        TEST(so_do_those_that_are_too_long_to_be_copied),
        TEST(long_ones_that_grow_by_little_do_too),
        TEST(a_block_grows_into_a_kept_piece_with_its_pages),
        TEST(a_block_that_grows_by_little_is_not_copied),
        TEST(a_run_grows_into_a_kept_piece_with_its_pages),
        TEST(a_block_that_holds_nothing_is_not_copied),
        TEST(copies_that_find_no_pages_are_given_up),
        TEST(a_block_that_shrinks_to_a_run_leaves_its_mapping_whole),
        TEST(a_block_that_shrinks_by_less_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
