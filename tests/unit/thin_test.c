/*
 * thin_test.c - slabs of which little is in use: the pages beneath their free blocks go back above the floor,
 * once, and are missed when blocks are taken out again.
 *
 * suite: limit 60 s
 */
#include "sparse_kit.h"

#include "heap/heap.h"
#include "os/os.h"
#include "slab/purge.h"
#include "slab/slab_word.h"
#include "slab/superslab_pool.h"
#include "slab/thin.h"
#include "support/child.h"
#include "support/target.h"

#include <pthread.h>
#include <stdlib.h>

#define CACHED_MAX  1024u /* blocks that caches hold, which count as used */
#define WIDE_BYTES  12288u
#define WIDE_BLOCKS 320u

static int nothing_is_left(void **state) {
    (void)state;
    free_but_every(0);
    (void)hak_trim(0);
    check_heap();
    return 0;
}

static size_t resident_of_slabs(void) {
    static struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    return stats.resident_bytes;
}

static void pages_between_few_live_blocks_go_back(void **state) {
    (void)state;
    hak_purge_set_floor(MIB);
    fill();
    size_t full_bytes = resident_of_slabs();
    free_but_every(BLOCKS_PER_SLAB);
    size_t left_bytes = resident_of_slabs();
    assert_true(full_bytes > SLABS * HAK_UNIT_BYTES);
    /* A page for each block that stays, what caches hold, and the floor. */
    assert_true(left_bytes < (SLABS + CACHED_MAX) * 4096 + MIB + 2 * MIB);
    for (unsigned i = 0; i < BLOCKS; i += BLOCKS_PER_SLAB) {
        assert_int_equal(*(char *)blocks[i], 1);
        assert_int_equal(((char *)blocks[i])[BLOCK_BYTES - 1], 1);
    }
}

static void *fillers[SLABS];

static int compare_addresses(const void *left, const void *right) {
    uintptr_t a = *(const uintptr_t *)left;
    uintptr_t b = *(const uintptr_t *)right;
    return (a > b) - (a < b);
}

/* Slab by slab but for the first block of each, and a filler: 128 frees, as many as go home in one batch. */
static void *free_but_one_a_slab(void *unused) {
    for (unsigned i = 0, slab = 0; i < BLOCKS; i++) {
        if ((uintptr_t)blocks[i] % HAK_UNIT_BYTES != 0) {
            hak_free(blocks[i]);
            blocks[i] = NULL;
        } else if (slab != SLABS) {
            hak_free(fillers[slab++]);
        }
    }
    return unused;
}

/* Each slab goes from full to one block in one step: it is to be listed and it is thin, both at once. */
static void pages_that_another_thread_frees_go_back(void **state) {
    (void)state;
    pthread_t thread;
    hak_purge_set_floor(MIB);
    fill();
    for (unsigned i = 0; i < SLABS; i++) {
        fillers[i] = hak_malloc(16);
    }
    qsort(blocks, BLOCKS, sizeof blocks[0], compare_addresses);
    assert_int_equal(pthread_create(&thread, NULL, free_but_one_a_slab, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(resident_of_slabs() < (SLABS + CACHED_MAX) * 4096 + MIB + 2 * MIB);
}

static void what_is_above_a_sixteenth_is_left_alone(void **state) {
    (void)state;
    hak_purge_set_floor(0);
    fill();
    purge_calls = 0;
    free_but_every(BLOCKS_PER_SLAB / 16);
    assert_int_equal(hak_superslab_count().thin_bytes, 0);
    assert_int_equal(purge_calls, 0);
}

/* Else what is free there would be taken for used and for free at once, and the floor for too high. */
static void what_is_thin_or_purged_is_not_in_use(void **state) {
    (void)state;
    hak_purge_set_floor(GIB);
    fill();
    size_t full_bytes = hak_superslab_pool.retention.used_bytes;
    free_but_every(BLOCKS_PER_SLAB);
    assert_in_range(hak_superslab_pool.retention.used_bytes, 0, full_bytes - SLABS * HAK_UNIT_BYTES / 2);
    hak_purge_set_floor(0);
    for (unsigned step = 0; step < SLABS; step++) {
        (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    }
    assert_in_range(hak_superslab_pool.retention.used_bytes, 0, full_bytes - SLABS * HAK_UNIT_BYTES / 2);
}

/* As in the child of a fork, where slabs go before what is thin in them is forgotten. */
static void no_less_than_nothing_is_in_use(void **state) {
    (void)state;
    size_t thin_bytes = hak_superslab_pool.thin_bytes;
    hak_superslab_pool.thin_bytes = GIB;
    size_t floor_bytes = hak_superslab_floor_bytes(hak_os_now_ms());
    hak_superslab_pool.thin_bytes = thin_bytes;
    assert_in_range(floor_bytes, 0, GIB);
}

static void within_the_floor_thin_slabs_stay(void **state) {
    (void)state;
    hak_purge_set_floor(GIB);
    fill();
    purge_calls = 0;
    free_but_every(BLOCKS_PER_SLAB);
    assert_int_equal(purge_calls, 0);
    assert_true(hak_superslab_count().thin_bytes > SLABS * HAK_UNIT_BYTES / 2);
    hak_purge_set_floor(0);
    (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    unsigned calls = purge_calls;
    assert_in_range(calls, 1, HAK_PURGE_STEP_CALLS);
    for (unsigned step = 0; step < SLABS; step++) {
        (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    }
    assert_int_equal(hak_superslab_count().thin_bytes, 0);
    calls = purge_calls;
    (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    assert_int_equal(purge_calls, calls); /* each was purged once */
}

static void a_slab_that_was_used_again_may_be_thin_again(void **state) {
    (void)state;
    hak_purge_set_floor(GIB);
    fill();
    free_but_every(BLOCKS_PER_SLAB);
    assert_true(hak_superslab_count().thin_bytes > SLABS * HAK_UNIT_BYTES / 2);
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = blocks[i] != NULL ? blocks[i] : hak_malloc(BLOCK_BYTES);
    }
    assert_in_range(hak_superslab_count().thin_bytes, 0, SLABS * HAK_UNIT_BYTES / 8);
    free_but_every(BLOCKS_PER_SLAB);
    assert_true(hak_superslab_count().thin_bytes > SLABS * HAK_UNIT_BYTES / 2);
}

static void taking_blocks_out_again_counts_as_missed(void **state) {
    (void)state;
    hak_purge_set_floor(0);
    fill();
    free_but_every(BLOCKS_PER_SLAB);
    struct retention *retention = &hak_superslab_pool.retention;
    size_t purged_bytes = hak_superslab_pool.purged_bytes;
    retention->missed_bytes = 0;
    assert_true(purged_bytes > SLABS * HAK_UNIT_BYTES / 2);
    for (unsigned i = 1; i < BLOCKS; i += BLOCKS_PER_SLAB / 8) {
        hak_free(blocks[i]);
        blocks[i] = hak_malloc(BLOCK_BYTES);
        CHECK(blocks[i] != NULL);
    }
    assert_true(hak_superslab_pool.purged_bytes < purged_bytes);
    assert_true(retention->missed_bytes > 0 || retention->proofs > 0);
    check_heap();
}

/* What was counted for a slab goes when it ends to be thin, however much of it was handed out since. */
static void blocks_never_used_leave_the_sum_right(void **state) {
    (void)state;
    const unsigned class_of_512 = 15;
    struct block_ref refs[BLOCKS_PER_SLAB];
    hak_purge_set_floor(GIB);
    fill();
    size_t before_bytes = hak_superslab_count().thin_bytes;
    struct slab *slab = hak_superslab_take_units(1, 0);
    CHECK(slab != NULL);
    assert_int_equal(hak_slab_assign(slab, class_of_512, HAK_OWNER_NOBODY), 0);
    assert_int_equal(hak_blocks_take(slab, refs, 20), 20);
    assert_int_equal(hak_slab_release(slab, 20, HAK_PLACE_WARM, HAK_OWNER_NOBODY), HAK_EVENT_NONE);
    struct block_ref last = refs[19];
    (void)hak_blocks_return(refs, 19, HAK_OWNER_NOBODY, hak_heap_handle_event, NULL);
    assert_true(hak_superslab_count().thin_bytes > before_bytes);
    assert_true(hak_slab_lease_any(slab));
    assert_int_equal(hak_blocks_take(slab, refs, 100), 100);
    assert_int_equal(hak_superslab_count().thin_bytes, before_bytes);
    hak_heap_handle_event(slab, hak_slab_release(slab, 100, HAK_PLACE_NOWHERE, HAK_OWNER_NOBODY), NULL);
    (void)hak_blocks_return(refs, 100, HAK_OWNER_NOBODY, hak_heap_handle_event, NULL);
    (void)hak_blocks_return(&last, 1, HAK_OWNER_NOBODY, hak_heap_handle_event, NULL);
}

/* Of a slab of which one page is left, the blocks on that page are taken out first, wherever it lies. */
static void blocks_on_the_page_that_is_left_come_first(void **state) {
    (void)state;
    const unsigned class_of_512 = 15, page_blocks = 4096 / BLOCK_BYTES, kept = 9 * page_blocks - 1;
    struct block_ref refs[BLOCKS_PER_SLAB], live, again[BLOCKS_PER_SLAB];
    unsigned calls = 0;
    hak_purge_set_floor(GIB);
    struct slab *slab = hak_superslab_take_units(1, 0);
    CHECK(slab != NULL);
    assert_int_equal(hak_slab_assign(slab, class_of_512, HAK_OWNER_NOBODY), 0);
    assert_int_equal(hak_blocks_take(slab, refs, BLOCKS_PER_SLAB), BLOCKS_PER_SLAB);
    for (unsigned i = 0, count = 0; i < BLOCKS_PER_SLAB; i++) {
        if (refs[i].header == &slab->map[kept]) {
            live = refs[i];
        } else {
            refs[count++] = refs[i];
        }
    }
    assert_int_equal(hak_slab_release(slab, BLOCKS_PER_SLAB, HAK_PLACE_WARM, HAK_OWNER_NOBODY),
                     HAK_EVENT_NONE);
    (void)hak_blocks_return(refs, BLOCKS_PER_SLAB - 1, HAK_OWNER_NOBODY, hak_heap_handle_event, NULL);
    assert_true(hak_slab_lease_any(slab));
    (void)hak_thin_purge(slab, HAK_THIN_CALLS_MAX, &calls);
    assert_int_equal(calls, 2);
    assert_int_equal(hak_blocks_take(slab, again, 3), 3);
    for (unsigned i = 3; i < page_blocks - 1; i++) { /* one by one they do, too */
        assert_int_equal(hak_blocks_take(slab, &again[i], 1), 1);
    }
    for (unsigned i = 0; i < page_blocks - 1; i++) {
        assert_ptr_equal((void *)((uintptr_t)again[i].block & ~(uintptr_t)4095),
                         (void *)((uintptr_t)live.block & ~(uintptr_t)4095));
    }
    hak_heap_handle_event(slab, hak_slab_release(slab, page_blocks - 1, HAK_PLACE_NOWHERE, HAK_OWNER_NOBODY),
                          NULL);
    (void)hak_blocks_return(again, page_blocks - 1, HAK_OWNER_NOBODY, hak_heap_handle_event, NULL);
    (void)hak_blocks_return(&live, 1, HAK_OWNER_NOBODY, hak_heap_handle_event, NULL);
}

/* Else what a purge gave back would be purged again when the slabs are free, and all that the floor lets stay
 * with it. */
static void of_a_free_slab_what_was_purged_counts_no_more(void **state) {
    (void)state;
    hak_purge_set_floor(0);
    fill();
    free_but_every(BLOCKS_PER_SLAB);
    hak_purge_set_floor(GIB);
    size_t before_bytes = hak_superslab_dirty_bytes();
    free_but_every(0);
    hak_heap_flush(hak_heap_attach(), true);
    assert_in_range(hak_superslab_dirty_bytes() - before_bytes, 1, SLABS * HAK_UNIT_BYTES / 2);
}

static int trim_and_use(void *unused) {
    (void)unused;
    (void)hak_trim(0);
    check_heap();
    free_but_every(0);
    fill();
    check_heap();
    return 0;
}

/* Its pages are counted, not known one by one; no call, or too few for all of them, takes none back. */
static void what_went_from_a_slab_of_several_units_stays_counted(void **state) {
    (void)state;
    static void *wide[WIDE_BLOCKS];
    (void)hak_trim(0);
    fill(); /* in so small a heap none is thin */
    for (unsigned i = 0; i < WIDE_BLOCKS; i++) {
        wide[i] = hak_malloc(WIDE_BYTES);
        CHECK(wide[i] != NULL);
        memset(wide[i], 1, WIDE_BYTES);
    }
    struct slab *slab = hak_slab_of_block(wide[WIDE_BLOCKS / 2]);
    assert_true(slab->units > 1);
    for (unsigned i = 0; i < WIDE_BLOCKS; i++) {
        if (hak_slab_of_block(wide[i]) != slab || ((uintptr_t)wide[i] - slab->base) / WIDE_BYTES % 2 == 0) {
            hak_free(wide[i]);
            wide[i] = NULL;
        }
    }
    (void)hak_trim(0);
    unsigned calls = 0;
    assert_true(hak_slab_lease_any(slab));
    (void)hak_thin_purge(slab, HAK_PURGE_STEP_CALLS, &calls);
    unsigned gone = slab->purged_pages;
    assert_true(gone > 2 * WIDE_BYTES / hak_os_page_bytes() && calls > 2);
    for (unsigned calls_max = 0; calls_max <= 2; calls_max++) {
        assert_int_equal(hak_thin_purge(slab, calls_max, &calls), 0);
        assert_int_equal(slab->purged_pages, gone);
    }
    hak_heap_handle_event(slab, hak_slab_release_any(slab, 0), NULL);
    for (unsigned i = 0; i < WIDE_BLOCKS; i++) {
        hak_free(wide[i]);
    }
}

/* The child forgets what was thin, and can purge and use everything. */
static void a_child_starts_without_thin_slabs(void **state) {
    (void)state;
    hak_purge_set_floor(GIB);
    fill();
    free_but_every(BLOCKS_PER_SLAB);
    assert_function_succeeds(trim_and_use);
}

static void a_small_heap_has_no_thin_slabs(void **state) {
    (void)state;
    void *few[4 * BLOCKS_PER_SLAB];
    hak_purge_set_floor(0);
    for (unsigned i = 0; i < COUNT_OF(few); i++) {
        few[i] = hak_malloc(BLOCK_BYTES);
    }
    for (unsigned i = 0; i < COUNT_OF(few); i++) {
        hak_free(i % BLOCKS_PER_SLAB != 0 ? few[i] : NULL);
    }
    assert_int_equal(hak_superslab_count().thin_bytes, 0);
    for (unsigned i = 0; i < COUNT_OF(few); i += BLOCKS_PER_SLAB) {
        hak_free(few[i]);
    }
}

/* The framework's own blocks may be of this size: what is left of the slab that they are in stays in use. */
static int the_frameworks_slab_is_full(void **state) {
    (void)state;
    uintptr_t first = (uintptr_t)hak_malloc(BLOCK_BYTES), block = first;
    while (first != 0 && block / HAK_UNIT_BYTES == first / HAK_UNIT_BYTES) {
        block = (uintptr_t)hak_malloc(BLOCK_BYTES);
    }
    hak_free((void *)block);
    return first != 0 && block != 0 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(pages_between_few_live_blocks_go_back, nothing_is_left),
        cmocka_unit_test_teardown(pages_that_another_thread_frees_go_back, nothing_is_left),
        cmocka_unit_test_teardown(what_is_above_a_sixteenth_is_left_alone, nothing_is_left),
        cmocka_unit_test_teardown(what_is_thin_or_purged_is_not_in_use, nothing_is_left),
        cmocka_unit_test_teardown(no_less_than_nothing_is_in_use, nothing_is_left),
        cmocka_unit_test_teardown(within_the_floor_thin_slabs_stay, nothing_is_left),
        cmocka_unit_test_teardown(a_slab_that_was_used_again_may_be_thin_again, nothing_is_left),
        cmocka_unit_test_teardown(taking_blocks_out_again_counts_as_missed, nothing_is_left),
        cmocka_unit_test_teardown(blocks_never_used_leave_the_sum_right, nothing_is_left),
        cmocka_unit_test_teardown(blocks_on_the_page_that_is_left_come_first, nothing_is_left),
        cmocka_unit_test_teardown(of_a_free_slab_what_was_purged_counts_no_more, nothing_is_left),
        cmocka_unit_test_teardown(what_went_from_a_slab_of_several_units_stays_counted, nothing_is_left),
        cmocka_unit_test_teardown(a_child_starts_without_thin_slabs, nothing_is_left),
        cmocka_unit_test_teardown(a_small_heap_has_no_thin_slabs, nothing_is_left),
    };
    return cmocka_run_group_tests(tests, the_frameworks_slab_is_full, NULL);
}
