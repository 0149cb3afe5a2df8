/*
 * large_aligned_test.c - runs at more than the OS page's alignment: which hole they get, and how many are
 * looked at for it.
 */
#include "large_kit.h"

#include "large/run_index.h"
#include "support/target.h"

#define ALIGN_BYTES (64 * KIB)

static char *must_alloc_aligned(size_t bytes) {
    bool is_zero;
    char *p = hak_large_alloc(bytes, ALIGN_BYTES, &is_zero);
    CHECK(p != NULL && hak_is_aligned((uintptr_t)p, ALIGN_BYTES));
    return p;
}

/* ---- blocks ---- */

/* With pages of 4 KiB the hole is 16 pages long, and 31 have room for such a block wherever they start. */
static void a_block_gets_the_hole_of_one_like_it(void **state) {
    (void)state;
    enum { BLOCKS = 8 };
    char *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = must_alloc_aligned(ALIGN_BYTES);
    }
    for (unsigned i = 1; i + 1 < BLOCKS; i++) {
        release(blocks[i]);
        assert_ptr_equal(must_alloc_aligned(ALIGN_BYTES), blocks[i]);
        check_sound();
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        release(blocks[i]);
    }
    check_all_freed();
}

static void what_was_purged_there_does_not_hide_the_hole(void **state) {
    (void)state;
    char *first = must_alloc_aligned(ALIGN_BYTES);
    char *p = must_alloc_aligned(ALIGN_BYTES);
    char *last = must_alloc_aligned(ALIGN_BYTES);
    release(p);
    (void)hak_large_trim(0);
    assert_ptr_equal(must_alloc_aligned(ALIGN_BYTES), p);
    release(first);
    release(p);
    release(last);
    check_all_freed();
}

/* ---- looks ---- */

#define LOOKS_MAX 64u

static struct hak_run_index runs;
static struct hak_run_node nodes[LOOKS_MAX + 2];

/* Makes a run of the index; that of a number no smaller than that of any other of its length comes first. */
static struct hak_run_node *insert(unsigned number, unsigned page, unsigned pages) {
    nodes[number] = (struct hak_run_node){.page = (uint16_t)page, .pages = (uint16_t)pages};
    hak_run_index_insert(&runs, &nodes[number]);
    return &nodes[number];
}

static int start_empty(void **state) {
    (void)state;
    memset(&runs, 0, sizeof runs);
    return 0;
}

/* Eight pages at a multiple of four: eleven have room for them wherever they start. */
static struct hak_run_node *find_8_at_4(void) {
    return hak_run_index_best_aligned(&runs, 8, 4);
}

static void the_shortest_run_with_an_aligned_place_is_taken(void **state) {
    (void)state;
    assert_null(find_8_at_4());
    (void)insert(0, 1, 8);
    (void)insert(1, 4, 7);
    assert_null(find_8_at_4());
    struct hak_run_node *long_enough = insert(2, 101, 20);
    assert_ptr_equal(find_8_at_4(), long_enough);
    struct hak_run_node *with_room_inside = insert(3, 51, 10); /* from 52 to 59 */
    assert_ptr_equal(find_8_at_4(), with_room_inside);
    struct hak_run_node *exact = insert(4, 40, 8);
    (void)insert(5, 42, 8);
    assert_ptr_equal(find_8_at_4(), exact);
    assert_ptr_equal(hak_run_index_best_aligned(&runs, 8, 1), &nodes[5]);
}

static void the_longest_run_that_may_be_too_short_is_the_last(void **state) {
    (void)state;
    unsigned pages = HAK_EXTENT_PAGES_MAX - 3;
    (void)insert(0, 1, HAK_EXTENT_PAGES_MAX - 1); /* from page 4 on it has three less */
    assert_null(hak_run_index_best_aligned(&runs, pages, 4));
    struct hak_run_node *whole = insert(1, 0, HAK_EXTENT_PAGES_MAX);
    assert_ptr_equal(hak_run_index_best_aligned(&runs, pages, 4), whole);
}

/* A request must not take the longer the more holes there are. */
static void so_many_runs_are_looked_at_and_not_one_more(void **state) {
    (void)state;
    struct hak_run_node *exact = insert(0, 4, 8);
    struct hak_run_node *long_enough = insert(1, 201, 11);
    for (unsigned i = 2; i < LOOKS_MAX + 1; i++) {
        (void)insert(i, 1, 8);
    }
    assert_ptr_equal(find_8_at_4(), exact);
    (void)insert(LOOKS_MAX + 1, 1, 8);
    assert_ptr_equal(find_8_at_4(), long_enough);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_block_gets_the_hole_of_one_like_it, start_clean),
        cmocka_unit_test_setup(what_was_purged_there_does_not_hide_the_hole, start_clean),
        cmocka_unit_test_setup(the_shortest_run_with_an_aligned_place_is_taken, start_empty),
        cmocka_unit_test_setup(the_longest_run_that_may_be_too_short_is_the_last, start_empty),
        cmocka_unit_test_setup(so_many_runs_are_looked_at_and_not_one_more, start_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
