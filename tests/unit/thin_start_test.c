/*
 * thin_start_test.c - a thread's first slab of a small class begins with few pages where there is such a
 * unit, so that a thread that needs few blocks of many classes holds few pages; what it takes next, and what
 * has fewer blocks a slab, lies on pages that are there.
 */
#include "hakmem.h"
#include "meta/classes.h"
#include "os/os.h"
#include "slab/purge.h"
#include "slab/slab.h"
#include "slab/superslab.h"
#include "support/blocks.h"
#include "support/stepper.h"
#include "support/target.h"
#include "support/test.h"

#include <string.h>

#define FILL_BYTES    1024u
#define OF_A_UNIT     (HAK_UNIT_BYTES / FILL_BYTES)
#define FILL_BLOCKS   ((HAK_UNITS_PER_SUPERSLAB + SECOND_UNITS) * OF_A_UNIT)
#define SECOND_UNITS  16u /* of a second SuperSlab that are filled, and of them */
#define KEPT_UNITS    10u /* that stay in use: more than one that drains has */
#define CLEAN_UNITS   12u /* of it at least that hold no pages: more than the tests take */
#define BLOCKS        11u
#define CLASS_OF_MORE 3u /* of block_bytes[] */
#define OF_A_SLAB     (HAK_UNIT_BYTES / 64)

static const size_t block_bytes[BLOCKS] = {16, 32, 48, 64, 80, 96, 112, 512, 640, 768, 896};
static const bool is_small[BLOCKS] = {true, true, true, true, true, true, true, true, false, false, false};

static void *fill[FILL_BLOCKS];
static void *blocks[BLOCKS];
static void *more[OF_A_SLAB];

/* Whether at most a quarter of the slab's pages are in memory. */
static bool has_few_pages(const void *block) {
    size_t resident_bytes = 0;
    CHECK(hak_os_resident((void *)hak_slab_of_block(block)->base, HAK_UNIT_BYTES, &resident_bytes) == 0);
    return resident_bytes <= HAK_LIGHT_BYTES;
}

/* The SuperSlab that units come from has free ones that hold pages and others that hold none. */
static int make_dirty_units(void **state) {
    (void)state;
    hak_purge_set_floor(PTRDIFF_MAX);
    blocks_take(fill, FILL_BLOCKS, FILL_BYTES);
    const struct superslab *second = hak_superslab_of(hak_slab_of_block(fill[FILL_BLOCKS - 1]));
    for (size_t i = 0; i < FILL_BLOCKS; i++) {
        memset(fill[i], 1, FILL_BYTES);
        const struct slab *slab = hak_slab_of_block(fill[i]);
        if (hak_superslab_of(slab) == second && slab->unit_idx >= KEPT_UNITS) {
            hak_free(fill[i]);
            fill[i] = NULL;
        }
    }
    (void)hak_trim(PTRDIFF_MAX); /* gives nothing back but what is cached */
    struct hak_superslab_counts counts = hak_superslab_count();
    CHECK(counts.empty == 0 && counts.dirty_units != 0);
    CHECK(counts.free_units >= counts.dirty_units + CLEAN_UNITS);
    return 0;
}

static int give_all_back(void **state) {
    blocks_free(fill, FILL_BLOCKS);
    return heap_is_sound(state);
}

static void take_one_of_each(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks_take(&blocks[i], 1, block_bytes[i]);
    }
}

static void free_one_of_each(void) {
    blocks_free(blocks, BLOCKS);
}

static void take_more(void) {
    blocks_take(more, OF_A_SLAB, block_bytes[CLASS_OF_MORE]);
    for (unsigned i = 0; i < OF_A_SLAB; i++) {
        memset(more[i], 1, block_bytes[CLASS_OF_MORE]);
    }
}

static void free_more(void) {
    blocks_free(more, OF_A_SLAB);
}

static void a_threads_first_slabs_of_small_classes_have_few_pages(void **state) {
    (void)state;
    struct stepper thread;
    stepper_start(&thread);
    stepper_do(&thread, take_one_of_each);
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_int_equal(has_few_pages(blocks[i]), is_small[i]);
    }
    stepper_do(&thread, free_one_of_each);
    stepper_end(&thread);
}

static void its_second_has_all(void **state) {
    (void)state;
    struct stepper thread;
    stepper_start(&thread);
    stepper_do(&thread, take_one_of_each);
    const struct slab *first = hak_slab_of_block(blocks[CLASS_OF_MORE]);
    assert_true(has_few_pages(blocks[CLASS_OF_MORE]));
    stepper_do(&thread, take_more);
    const void *of_second = NULL;
    for (unsigned i = 0; i < OF_A_SLAB; i++) {
        of_second = hak_slab_of_block(more[i]) != first ? more[i] : of_second;
    }
    assert_non_null(of_second);
    assert_false(has_few_pages(of_second));
    stepper_do(&thread, free_more);
    stepper_do(&thread, free_one_of_each);
    stepper_end(&thread);
}

static void take_one(void) {
    blocks_take(blocks, 1, 512);
}

static void free_it(void) {
    blocks_free(blocks, 1);
}

/* Of a heap it is the thread's first slab that counts, not the heap's. */
static void the_next_thread_begins_anew(void **state) {
    (void)state;
    struct stepper thread;
    stepper_start(&thread);
    stepper_do(&thread, take_more); /* all of a slab, which stays in use */
    stepper_end(&thread);
    stepper_start(&thread);
    stepper_do(&thread, take_one_of_each);
    assert_ptr_not_equal(hak_slab_of_block(blocks[CLASS_OF_MORE]), hak_slab_of_block(more[0]));
    assert_true(has_few_pages(blocks[CLASS_OF_MORE]));
    stepper_do(&thread, free_one_of_each);
    stepper_end(&thread);
    free_more();
}

/* Threads that come and go use the same pages one after the other. */
static void the_next_threads_first_is_the_last_ones(void **state) {
    (void)state;
    const struct slab *first = NULL;
    for (unsigned i = 0; i < 3; i++) {
        struct stepper thread;
        stepper_start(&thread);
        stepper_do(&thread, take_one);
        assert_true(has_few_pages(blocks[0]));
        assert_true(first == NULL || hak_slab_of_block(blocks[0]) == first);
        first = hak_slab_of_block(blocks[0]);
        stepper_do(&thread, free_it);
        stepper_end(&thread);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        /* first, while no unit that has few pages had a slab of its class */
        cmocka_unit_test(the_next_thread_begins_anew),
        cmocka_unit_test(a_threads_first_slabs_of_small_classes_have_few_pages),
        cmocka_unit_test(its_second_has_all),
        cmocka_unit_test(the_next_threads_first_is_the_last_ones),
    };
    return cmocka_run_group_tests(tests, make_dirty_units, give_all_back);
}
