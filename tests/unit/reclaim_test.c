/*
 * reclaim_test.c - what is done before an allocation is refused comes by every slab and every extent.
 */
#include "hakmem.h"
#include "heap/heap.h"
#include "heap/reclaim.h"
#include "large/large.h"
#include "slab/blocks.h"
#include "slab/superslab.h"
#include "support/blocks.h"
#include "support/stepper.h"
#include "support/target.h"
#include "support/test.h"

#define BLOCK_BYTES 512u
#define PER_SLAB    128u
#define SLABS       20u
#define RUN_BYTES   ((size_t)100 * 1024)
#define RUNS        8u

static void *blocks[SLABS * PER_SLAB]; /* the first that the process has */

/* They wait for the main thread, which does not come. */
static void free_one_of_each_slab_and_share(void) {
    for (unsigned slab = 0; slab < SLABS; slab++) {
        hak_free(blocks[slab * PER_SLAB]);
    }
    hak_reclaim_blocks(hak_heap_attach());
}

static void a_single_free_block_is_shared_from_the_first_slab_on(void **state) {
    struct stepper other;
    (void)state;
    assert_ptr_equal(hak_slab_of_block(blocks[0]), hak_slab_at(0));
    assert_int_equal(blocks_orphaned_slabs(BLOCK_BYTES), 0);
    stepper_start(&other);
    stepper_do(&other, free_one_of_each_slab_and_share);
    assert_int_equal(blocks_orphaned_slabs(BLOCK_BYTES), SLABS);
    stepper_end(&other);
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        if (i % PER_SLAB != 0) {
            hak_free(blocks[i]);
        }
    }
}

/* Without pages, but not given up. */
static void leave_an_empty_extent(void) {
    void *runs[RUNS];
    blocks_take(runs, RUNS, RUN_BYTES);
    blocks_free(runs, RUNS);
    (void)hak_reclaim_pages(1);
    assert_in_range(hak_large_count().empty_extents, 1, RUNS);
}

static void no_empty_extent_stays(void **state) {
    (void)state;
    leave_an_empty_extent();
    hak_reclaim_everything(hak_heap_attach());
    assert_int_equal(hak_large_count().empty_extents, 0);
    leave_an_empty_extent();
    hak_reclaim_blocks(hak_heap_attach());
    assert_int_equal(hak_large_count().empty_extents, 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, heap_is_sound)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_single_free_block_is_shared_from_the_first_slab_on),
        TEST(no_empty_extent_stays),
    };
    blocks_take(blocks, COUNT_OF(blocks), BLOCK_BYTES);
    return cmocka_run_group_tests_name("reclaim", tests, NULL, NULL);
}
