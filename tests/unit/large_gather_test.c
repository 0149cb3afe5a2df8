/*
 * large_gather_test.c - blocks put together from kept pieces: they cost no faults and no memory, they are
 * zero where calloc wants it, and they move, grow, shrink, are cut and joined as other blocks are.
 *
 * suite: limit 120 s
 */
#include "large_kit.h"

#include "large/mapping.h"
#include "support/target.h"

/* Nothing goes back by itself, whatever is free. */
static void keep_everything(void) {
    start_clean(NULL);
    hak_retain_set_floor(SIZE_MAX / 2);
}

static void use(char *p, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += 4096) {
        p[offset] = 1;
    }
}

/* Leaves `count` kept pieces of `bytes` bytes each, all of whose pages are resident, and nothing else. */
static void keep_pieces(unsigned count, size_t bytes) {
    char *blocks[16];
    keep_everything();
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = must_alloc(bytes);
        use(blocks[i], bytes);
    }
    for (unsigned i = 0; i < count; i++) {
        release(blocks[i]);
    }
    assert_int_equal(hak_large_count().kept_bytes, count * bytes);
}

/* A block of `bytes` bytes that is made of pieces of 2 MiB. */
static char *gathered_block(size_t bytes) {
    keep_pieces((unsigned)(bytes / (2 * MIB)), 2 * MIB);
    long faults = page_faults();
    char *p = must_alloc(bytes);
    use(p, bytes);
    assert_in_range(page_faults() - faults, 0, 40); /* page tables and records at most */
    assert_int_equal(hak_large_count().kept_bytes, 0);
    return p;
}

static void pieces_make_a_block_without_faults(void **state) {
    (void)state;
    char *p = gathered_block(12 * MIB);
    check_sound();
    pattern_fill(p, 12 * MIB, 1);
    assert_true(pattern_holds(p, 12 * MIB, 1));
    release(p);
    assert_int_equal(hak_large_count().kept_blocks, 1);
    check_sound();
}

static void what_the_pieces_lack_is_new(void **state) {
    (void)state;
    keep_pieces(3, 2 * MIB);
    long faults = page_faults();
    char *p = must_alloc(10 * MIB);
    use(p, 6 * MIB);
    assert_in_range(page_faults() - faults, 0, 40);
    assert_true(bytes_are(p + 6 * MIB, 4 * MIB, 0));
    check_sound();
    release(p);
}

static void of_the_last_piece_only_what_is_missing_is_taken(void **state) {
    (void)state;
    keep_pieces(3, 4 * MIB);
    char *p = must_alloc(9 * MIB);
    assert_int_equal(usable(p), 9 * MIB);
    assert_int_equal(hak_large_count().kept_bytes, 3 * MIB);
    check_sound();
    release(p);
    check_sound();
}

/* Each seam is a kernel mapping more: a program needs some for itself, and moving the block takes a call
 * each. */
static void seams_are_bounded_for_a_block_and_for_all(void **state) {
    (void)state;
    keep_pieces(8, MIB);
    char *p = must_alloc(7 * MIB);
    assert_int_equal(hak_mapping_totals.seams, 6); /* the eighth piece stays: 7 MiB in 7 parts */
    release(p);
    p = must_alloc(8 * MIB); /* of one piece with six seams, and one without */
    assert_int_equal(hak_mapping_totals.seams, 7);
    release(p);
    char *lead = must_alloc(2 * MIB); /* the piece is cut: two parts here, six behind */
    char *q = must_alloc(6 * MIB);
    assert_int_equal(hak_mapping_totals.seams, 7);
    release(lead);
    release(q);
    check_sound();
    assert_true(hak_large_trim(0) != 0);
    assert_int_equal(hak_mapping_totals.seams, 0);

    struct hak_large_policy policy = hak_large_policy;
    hak_large_policy.seams_count_max = 3;
    char *blocks[4];
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        keep_pieces(4, MIB);
        blocks[i] = must_alloc(3 * MIB);
    }
    assert_int_equal(hak_mapping_totals.seams, 4); /* two blocks of three pieces each, then no more */
    hak_large_policy = policy;
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        release(blocks[i]);
    }
    check_sound();
}

/* Half a MiB between two seams on average, or moving the parts costs more than new pages. */
static void a_block_has_few_seams_for_its_length(void **state) {
    (void)state;
    char *blocks[40];
    char *walls[40];
    size_t threshold = hak_large_map_threshold;
    keep_everything();
    hak_large_map_threshold = 256 * KIB;
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = must_alloc(320 * KIB);
        use(blocks[i], 320 * KIB);
        walls[i] = must_alloc(256 * KIB);
    }
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        release(blocks[i]);
    }
    hak_large_map_threshold = threshold;
    char *p = must_alloc(4 * MIB);
    assert_in_range(hak_mapping_totals.seams, 6, 7);
    release(p);
    for (unsigned i = 0; i < COUNT_OF(walls); i++) {
        release(walls[i]);
    }
    check_sound();
}

static void calloc_of_a_gathered_block_is_zero(void **state) {
    (void)state;
    for (unsigned count = 1; count < 4; count++) {
        keep_pieces(count, 3 * MIB);
        char *p = hak_large_calloc(5 * MIB);
        assert_true(bytes_are(p, 5 * MIB, 0));
        release(p);
    }
    check_sound();
}

static void a_gathered_block_grows_by_moving_its_pages(void **state) {
    (void)state;
    char *p = gathered_block(12 * MIB);
    char *wall = must_alloc(MIB);
    pattern_fill(p, 12 * MIB, 2);
    long faults = page_faults();
    for (size_t bytes = 24 * MIB; bytes < 200 * MIB; bytes *= 2) {
        p = resize(p, bytes);
        assert_in_range(page_faults() - faults, 0, 40);
        check_sound();
    }
    assert_true(pattern_holds(p, 12 * MIB, 2));
    assert_true(bytes_are(p + 12 * MIB, MIB, 0));
    release(p);
    release(wall);
    check_sound();
}

/* When some part cannot be moved, those before it come back and the block is copied. */
static void every_part_may_refuse_to_move(void **state) {
    (void)state;
    unsigned calls = UINT_MAX;
    for (unsigned n = 1; n <= calls; n++) {
        char *p = gathered_block(8 * MIB);
        pattern_fill(p, 8 * MIB, n);
        arm_faults(n, n);
        char *moved = resize(p, 20 * MIB);
        calls = disarm_faults() + 1;
        assert_non_null(moved);
        assert_true(pattern_holds(moved, 8 * MIB, n));
        release(moved);
        check_all_freed();
    }
    assert_in_range(calls, 4, 30);
}

static void every_part_may_refuse_to_be_gathered(void **state) {
    (void)state;
    unsigned calls = UINT_MAX;
    for (unsigned n = 1; n <= calls; n++) {
        keep_pieces(4, 2 * MIB);
        arm_faults(n, n);
        char *p = hak_large_calloc(3 * MIB);
        char *q = alloc(5 * MIB);
        calls = disarm_faults() + 1;
        assert_non_null(p);
        assert_non_null(q);
        assert_true(bytes_are(p, 3 * MIB, 0));
        use(q, 5 * MIB);
        release(p);
        release(q);
        check_all_freed();
        assert_true(hak_large_trim(0) != 0);
        assert_int_equal(hak_large_count().kept_bytes, 0);
    }
    assert_in_range(calls, 4, 30);
}

static void seams_go_with_the_parts_of_a_cut_block(void **state) {
    (void)state;
    char *whole = gathered_block(12 * MIB);
    release(whole);
    char *a = must_alloc(3 * MIB);
    char *b = must_alloc(4 * MIB);
    char *c = must_alloc(5 * MIB);
    assert_ptr_equal(b, a + 3 * MIB);
    assert_ptr_equal(c, b + 4 * MIB);
    check_sound();
    pattern_fill(b, 4 * MIB, 3);
    release(c);
    assert_ptr_equal(resize(b, 7 * MIB), b); /* over what was c */
    assert_true(pattern_holds(b, 4 * MIB, 3));
    check_sound();
    char *wall = must_alloc(2 * MIB);
    assert_ptr_equal(wall, b + 7 * MIB);
    long faults = page_faults();
    b = resize(b, 30 * MIB);
    assert_in_range(page_faults() - faults, 0, 40); /* of 1792: part by part, as the seams say */
    assert_true(pattern_holds(b, 4 * MIB, 3));
    check_sound();
    release(wall);
    release(a);
    release(b);
    check_sound();
}

static void a_block_grows_over_all_of_a_piece_before_a_live_one(void **state) {
    (void)state;
    release(gathered_block(12 * MIB));
    char *a = must_alloc(3 * MIB);
    char *b = must_alloc(4 * MIB);
    char *c = must_alloc(5 * MIB);
    pattern_fill(a, 3 * MIB, 5);
    pattern_fill(c, 5 * MIB, 6);
    assert_ptr_equal(b, a + 3 * MIB);
    release(b);
    assert_ptr_equal(resize(a, 7 * MIB), a);
    assert_int_equal(hak_large_count().kept_bytes, 0);
    check_sound();
    assert_true(pattern_holds(a, 3 * MIB, 5));
    assert_true(pattern_holds(c, 5 * MIB, 6));
    release(a);
    release(c); /* joins what was a, whose neighbour it is now */
    assert_int_equal(hak_large_count().kept_blocks, 1);
    check_sound();
}

static void a_gathered_block_shrinks(void **state) {
    (void)state;
    char *p = gathered_block(12 * MIB);
    pattern_fill(p, 5 * MIB, 4);
    assert_ptr_equal(resize(p, 12 * MIB - 64 * KIB), p); /* a short end goes back at once */
    assert_ptr_equal(resize(p, 5 * MIB), p);
    check_sound();
    char *wall = must_alloc(3 * MIB);
    p = resize(p, 40 * MIB);
    assert_true(pattern_holds(p, 5 * MIB, 4));
    check_sound();
    release(p);
    release(wall);
    (void)hak_large_trim(0);
    assert_int_equal(hak_large_count().kept_bytes, 0);
}

/* Buffers of 5 to 25 MiB come and go: after a while hardly a page is new, and no memory is held but what was
 * live at the peak. */
static void blocks_of_5_to_25_mib_use_the_pages_of_those_before(void **state) {
    (void)state;
    enum { BLOCKS = 8 };
    char *blocks[BLOCKS] = {NULL};
    struct rng rng = rng_seeded(17);
    size_t peak_bytes = 0, held_peak_bytes = 0;
    long faults = 0;
    keep_everything();
    for (unsigned i = 0; i < 600; i++) {
        char **slot = &blocks[rng_below(&rng, BLOCKS)];
        size_t bytes = 5 * MIB + rng_below(&rng, 20 * MIB);
        if (*slot != NULL) {
            release(*slot);
        }
        if (i == 300) {
            faults = page_faults();
        }
        *slot = must_alloc(bytes);
        use(*slot, bytes);
        struct hak_large_counts counts = hak_large_count();
        size_t held_bytes = counts.live_bytes + counts.dirty_bytes;
        peak_bytes = counts.live_bytes > peak_bytes ? counts.live_bytes : peak_bytes;
        held_peak_bytes = held_bytes > held_peak_bytes ? held_bytes : held_peak_bytes;
    }
    assert_in_range(page_faults() - faults, 0, 300 * 100); /* of 300 times 3840 pages */
    assert_in_range(held_peak_bytes, 0, peak_bytes + peak_bytes / 8);
    check_sound();
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i] != NULL) {
            release(blocks[i]);
        }
    }
    check_all_freed();
}

#define TEST(name) cmocka_unit_test_setup(name, start_clean)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(pieces_make_a_block_without_faults),
        TEST(what_the_pieces_lack_is_new),
        TEST(of_the_last_piece_only_what_is_missing_is_taken),
        TEST(seams_are_bounded_for_a_block_and_for_all),
        TEST(a_block_has_few_seams_for_its_length),
        TEST(calloc_of_a_gathered_block_is_zero),
        TEST(a_gathered_block_grows_by_moving_its_pages),
        TEST(every_part_may_refuse_to_move),
        TEST(every_part_may_refuse_to_be_gathered),
        TEST(seams_go_with_the_parts_of_a_cut_block),
        TEST(a_block_grows_over_all_of_a_piece_before_a_live_one),
        TEST(a_gathered_block_shrinks),
        TEST(blocks_of_5_to_25_mib_use_the_pages_of_those_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
