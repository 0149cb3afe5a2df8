/*
 * ending_test.c - a cache narrows while the program frees what it may never need again, since each block in
 * it pins an OS page: spills in a row through twice the capacity, or much of all classes together, unless the
 * last such end was less than a second ago and all caches together may keep that much. Time is simulated.
 * Each test has classes of its own, so that it meets them cold.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "heap/heap.h"
#include "heap/unified_cache.h"
#include "heap/width.h"
#include "meta/classes.h"
#include "slab/purge.h"
#include "slab/retention.h"
#include "support/blocks.h"
#include "support/clock.h"
#include "support/target.h"
#include "support/test.h"
#include "width_kit.h"
#include <malloc.h>
#include <pthread.h>

#define LEAST             30u /* entries of a cache that has been narrowed, */
#define LEAST_LARGE       6u  /* and where blocks are large, */
#define LEAST_LARGEST     2u  /* or largest */
#define MANY_THREADS      16u
#define VERY_MANY_THREADS 32u
#define AGAIN_MS          1000u
#define BLOCKS_MAX        8192u

static void *blocks[BLOCKS_MAX];

/* Free memory beyond the floors would narrow caches too. */
static int keep_all(void **state) {
    (void)state;
    hak_purge_set_floor(SIZE_MAX / 2);
    return 0;
}

static void take(unsigned class_idx, unsigned count) {
    CHECK(count <= BLOCKS_MAX);
    blocks_take(blocks, count, hak_class_block_bytes[class_idx]);
}

/* Frees the first `count` of the blocks that are there. */
static void give(unsigned count) {
    static unsigned given;
    blocks_free(&blocks[given], count);
    memset(&blocks[given], 0, count * sizeof blocks[0]);
    given = blocks[given + count < BLOCKS_MAX ? given + count : 0] != NULL ? given + count : 0;
}

/* Whether halving would make it less than the least. */
static bool is_narrow(unsigned class_idx) {
    return capacity(class_idx) >= LEAST && (capacity(class_idx) - 2) / 2 < LEAST;
}

static void what_ends_is_narrowed(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_512, plain = plain_capacity(c);
    take(c, 10 * plain);
    give(2 * plain); /* of which the cache still holds some */
    assert_int_equal(capacity(c), plain);
    give(2 * plain);
    assert_in_range(capacity(c), LEAST, plain / 2);
    give(6 * plain);
    assert_int_equal(capacity(c), LEAST);
    assert_in_range(hak_cache_count(hak_heap_attach(), c), 1, LEAST);
}

static void of_large_blocks_fewer_stay(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_4096;
    assert_int_equal(hak_class_block_bytes[c], 4096);
    take(c, 10 * plain_capacity(c));
    give(10 * plain_capacity(c));
    assert_int_equal(capacity(c), LEAST_LARGE);
}

/* They lie in slabs of several units, each of which one may keep. */
static void of_the_largest_blocks_two_stay(void **state) {
    (void)state;
    const unsigned largest[] = {hak_class_of(16384), hak_class_of(HAK_MID_MAX_BYTES)};
    for (unsigned i = 0; i < HAK_COUNT_OF(largest); i++) {
        clock_ms += AGAIN_MS;
        take(largest[i], 100);
        give(100);
        assert_int_equal(capacity(largest[i]), LEAST_LARGEST);
    }
}

/* Classes of which none spills far, a full cache each, 1.1 MiB together. */
static const unsigned little[] = {1792, 2048, 2560, 3072, 3584, 5120, 6144, 7168, 8192};
#define LITTLE_COUNT HAK_COUNT_OF(little)

static void fill_caches_of_little(void) {
    static void *some[PLAIN_BYTES / 1792];
    for (unsigned i = 0; i < LITTLE_COUNT; i++) {
        unsigned plain = plain_capacity(hak_class_of(little[i]));
        for (unsigned turn = 0; turn < 10; turn++) { /* so that it grows to its bound */
            blocks_take(some, plain, little[i]);
            blocks_free(some, plain);
        }
    }
}

static unsigned count_narrow_of_little(void) {
    unsigned narrow = 0;
    for (unsigned i = 0; i < LITTLE_COUNT; i++) {
        unsigned c = hak_class_of(little[i]);
        narrow +=
            capacity(c) <= hak_width_least_at_end(c) && hak_cache_count(hak_heap_attach(), c) <= capacity(c);
    }
    return narrow;
}

/* One class that ends goes through enough for the thread as a whole. */
static void what_other_classes_have_is_narrowed_too(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_1280, plain = plain_capacity(c);
    take(c, 20 * plain);
    fill_caches_of_little();
    assert_int_equal(count_narrow_of_little(), 0);
    clock_ms += AGAIN_MS;
    give(2 * plain);
    assert_int_equal(count_narrow_of_little(), 0);
    give(18 * plain);
    assert_int_equal(count_narrow_of_little(), LITTLE_COUNT);
    take(c, 20 * plain);
    fill_caches_of_little();
    give(20 * plain); /* too soon after the last one */
    assert_int_equal(count_narrow_of_little(), 0);
}

/* It overflows with each swing, and others' caches are none of that. */
static void a_class_that_swings_ends_nothing_of_others(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_1536, other = CLASS_OF_1024, plain = plain_capacity(c);
    for (unsigned i = 0; i < 20; i++) {
        take(c, 8 * plain);
        give(8 * plain);
    }
    assert_true(capacity(c) > 2 * plain);
    for (unsigned i = 0; i < 3; i++) {
        take(other, plain_capacity(other));
        give(plain_capacity(other));
    }
    unsigned before = capacity(other);
    unsigned swing = 2 * capacity(c); /* of which less than that overflows */
    assert_true(before > LEAST);
    clock_ms += AGAIN_MS;
    take(c, swing);
    give(swing);
    assert_int_equal(capacity(other), before);
}

static void what_is_built_up_again_at_once_keeps_its_cache(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_640, plain = plain_capacity(c);
    for (unsigned i = 0; i < 5; i++) {
        clock_ms += AGAIN_MS - 1;
        take(c, 10 * plain);
        give(10 * plain);
    }
    assert_true(capacity(c) >= plain);
}

static void what_ends_now_and_then_is_narrowed_each_time(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_384, plain = plain_capacity(c);
    for (unsigned i = 0; i < 5; i++) {
        clock_ms += AGAIN_MS;
        take(c, 10 * plain);
        assert_false(is_narrow(c)); /* refills in a row widen it again */
        give(10 * plain);
        assert_true(is_narrow(c));
    }
}

/* Proved swings have widened the cache; what comes after them may be the end all the same. */
static void a_wide_class_that_ends_is_narrowed(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_448, plain = plain_capacity(c);
    for (unsigned i = 0; i < 20; i++) {
        take(c, 6 * plain);
        give(6 * plain);
    }
    assert_true(capacity(c) > 2 * plain);
    clock_ms += AGAIN_MS;
    take(c, BLOCKS_MAX);
    give(BLOCKS_MAX);
    assert_true(is_narrow(c));
    assert_int_equal(hak_heap_attach()->wide & UINT64_C(1) << c, 0);
}

static void a_refill_between_spills_is_no_end(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_896, plain = plain_capacity(c);
    take(c, 2 * plain);
    give(2 * plain);
    unsigned before = capacity(c);
    for (unsigned i = 0; i < 50; i++) {
        clock_ms += AGAIN_MS;
        take(c, 2 * plain);
        give(2 * plain);
    }
    assert_in_range(capacity(c), before, plain);
}

static pthread_barrier_t all_there, over;

static void *be_there(void *unused) {
    (void)hak_heap_attach();
    pthread_barrier_wait(&all_there);
    pthread_barrier_wait(&over);
    return unused;
}

/* What an end narrows a cache to while so many threads, this one with them, have heaps. */
static unsigned narrowed_with_threads(unsigned count) {
    const unsigned c = CLASS_OF_192, blocks_of_end = 8 * plain_capacity(c);
    pthread_t threads[VERY_MANY_THREADS];
    CHECK(pthread_barrier_init(&all_there, NULL, count) == 0);
    CHECK(pthread_barrier_init(&over, NULL, count) == 0);
    for (unsigned i = 1; i < count; i++) {
        CHECK(pthread_create(&threads[i], NULL, be_there, NULL) == 0);
    }
    pthread_barrier_wait(&all_there);
    clock_ms += AGAIN_MS;
    take(c, blocks_of_end);
    give(blocks_of_end);
    unsigned narrowed = capacity(c);
    pthread_barrier_wait(&over);
    for (unsigned i = 1; i < count; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    return narrowed;
}

static void of_many_threads_fewer_stay(void **state) {
    (void)state;
    assert_in_range(narrowed_with_threads(MANY_THREADS - 1), LEAST, 2 * LEAST);
    assert_in_range(narrowed_with_threads(MANY_THREADS), LEAST / 2 - 1, LEAST - 1);
    assert_in_range(narrowed_with_threads(VERY_MANY_THREADS), LEAST_LARGE, 2 * LEAST_LARGE);
    assert_in_range(narrowed_with_threads(1), LEAST, 2 * LEAST); /* the others are gone */
}

static size_t kept(void) {
    return hak_retention_raised_bytes(HAK_RETAINER_CACHES);
}

/* Ends once for good, so that further ends come too soon to narrow. Nothing is kept then. */
static void end_once(unsigned class_idx) {
    (void)malloc_trim(0);
    clock_ms += AGAIN_MS;
    take(class_idx, 8 * plain_capacity(class_idx));
    give(8 * plain_capacity(class_idx));
}

static void what_stays_is_counted_until_it_is_used(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_768, plain = plain_capacity(c);
    end_once(c);
    assert_int_equal(kept(), 0); /* narrowed */
    take(c, 10 * plain);
    give(10 * plain);
    assert_true(capacity(c) >= plain);
    assert_int_equal(kept(), capacity(c) * 4096);
    take(c, capacity(c) + 1); /* which a refill is needed for */
    assert_int_equal(kept(), 0);
    give(capacity(c) + 1);
    take(c, 10 * plain);
    give(10 * plain);
    assert_true(kept() != 0);
    (void)malloc_trim(0);
    assert_int_equal(kept(), 0); /* nor is it when all blocks have gone home */
}

static void what_was_freed_is_all_that_can_be_kept(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_256, plain = plain_capacity(c);
    end_once(c);
    take(c, 5 * plain);
    give(5 * plain);
    assert_in_range(kept(), 2 * plain * 256, 10 * plain * 256); /* of plain * 4096; seen at each doubling */
}

/* Other threads leave room for what the row may keep when it has gone far, not for when it has gone on. */
static void what_all_threads_may_not_keep_is_narrowed_at_once(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_320, plain = plain_capacity(c);
    end_once(c);
    size_t left_bytes = hak_retention_raise_max(HAK_RETAINER_CACHES) - kept();
    size_t others_bytes = left_bytes - (size_t)6 * plain * 320;
    hak_retention_note_wider((ptrdiff_t)others_bytes);
    take(c, 10 * plain);
    give(3 * plain + plain / 2);
    assert_true(capacity(c) >= plain);
    assert_in_range(kept() - others_bytes, 4 * plain * 320, 6 * plain * 320);
    give(6 * plain + plain / 2);
    assert_true(is_narrow(c));
    assert_int_equal(kept(), others_bytes);
    hak_retention_note_wider(-(ptrdiff_t)others_bytes);
    take(c, 10 * plain);
    give(10 * plain);
    assert_true(capacity(c) > plain / 2);
}

#define TEST(name) cmocka_unit_test_teardown(name, heap_is_sound)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_ends_is_narrowed),
        TEST(of_large_blocks_fewer_stay),
        TEST(of_the_largest_blocks_two_stay),
        TEST(what_other_classes_have_is_narrowed_too),
        TEST(a_class_that_swings_ends_nothing_of_others),
        TEST(what_is_built_up_again_at_once_keeps_its_cache),
        TEST(what_ends_now_and_then_is_narrowed_each_time),
        TEST(a_wide_class_that_ends_is_narrowed),
        TEST(a_refill_between_spills_is_no_end),
        TEST(of_many_threads_fewer_stay),
        TEST(what_stays_is_counted_until_it_is_used),
        TEST(what_was_freed_is_all_that_can_be_kept),
        TEST(what_all_threads_may_not_keep_is_narrowed_at_once),
    };
    return cmocka_run_group_tests(tests, keep_all, NULL);
}
