/*
 * guest_search_test.c - how hosts are looked for: searches in vain put the next ones off, and what a search
 * takes out of a slab is known to all who ask the slab.
 *
 * suite: limit 60 s
 */
#include "guest_kit.h"

#define WANT       64u
#define WANT_MANY  1024u
#define VAIN_MANY  200u
#define SKIPS_MOST 15u
#define RARE_BYTES (60 * SMALL_BYTES) /* one row of so many in 500 blocks */

static struct block_ref refs[WANT_MANY];

static unsigned search_for(size_t bytes, unsigned want) {
    struct heap *heap = hak_heap_attach();
    return hak_guests_take(hak_class_of(bytes), heap->id, refs, want, hak_heap_handle_event, heap);
}

static unsigned search(void) {
    return search_for(BIG_BYTES, WANT);
}

static void give_back(unsigned count) {
    struct heap *heap = hak_heap_attach();
    (void)hak_blocks_return(refs, count, heap->id, hak_heap_handle_event, heap);
}

/* Searches until one finds something; how many did not. */
static unsigned searches_in_vain(void) {
    unsigned count = 0;
    unsigned got;
    while ((got = search()) == 0) {
        count++;
        CHECK(count <= VAIN_MANY);
    }
    give_back(got);
    return count;
}

/* In a heap without holes; each comes round all slabs, of which there are few. */
static void search_in_vain(unsigned times) {
    for (unsigned i = 0; i < times; i++) {
        assert_int_equal(search(), 0);
    }
}

static void after_three_rounds_in_vain_none_is_skipped(void **state) {
    (void)state;
    fill_smalls();
    search_in_vain(3);
    thin_smalls_out();
    assert_int_equal(searches_in_vain(), 0);
}

static void after_more_rounds_in_vain_some_are_skipped(void **state) {
    (void)state;
    fill_smalls();
    search_in_vain(4); /* one is to be skipped, */
    search_in_vain(1); /* which is this; */
    search_in_vain(1); /* in vain again: three are */
    thin_smalls_out();
    assert_int_equal(searches_in_vain(), 3);
    assert_int_equal(searches_in_vain(), 0);
}

static void no_more_are_skipped_than_that(void **state) {
    (void)state;
    fill_smalls();
    search_in_vain(VAIN_MANY);
    thin_smalls_out();
    assert_in_range(searches_in_vain(), 0, SKIPS_MOST);
    assert_int_equal(searches_in_vain(), 0);
}

/* Less than a quarter is as good as nothing. */
static void after_rounds_that_found_little_some_are_skipped(void **state) {
    (void)state;
    unsigned searches = 0;
    unsigned got;
    while ((got = search_for(RARE_BYTES, WANT_MANY)) != 0) {
        assert_in_range(got, 1, WANT_MANY / 4 - 1);
        give_back(got);
        assert_true(++searches < VAIN_MANY);
    }
    assert_true(searches > 3);
}

/* Whose guests are freed again is to wait for its turn again. */
static void a_host_may_be_ragged_again(void **state) {
    (void)state;
    for (unsigned i = 0; i < kept; i++) {
        hak_slab_of_block(smalls[i])->ragged_blocks = 0; /* as after its turn */
    }
    unsigned got = search();
    assert_int_equal(got, WANT);
    for (unsigned i = 0; i < got; i++) {
        assert_true(hak_slab_of_block(refs[i].block)->ragged_blocks > 0);
    }
    give_back(got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(after_three_rounds_in_vain_none_is_skipped, nothing_is_left),
        cmocka_unit_test_teardown(after_more_rounds_in_vain_some_are_skipped, nothing_is_left),
        cmocka_unit_test_teardown(no_more_are_skipped_than_that, nothing_is_left),
        cmocka_unit_test_setup_teardown(after_rounds_that_found_little_some_are_skipped, leave_survivors,
                                        nothing_is_left),
        cmocka_unit_test_setup_teardown(a_host_may_be_ragged_again, leave_survivors, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
