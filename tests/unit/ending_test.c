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
#include "meta/arena.h"
#include "meta/classes.h"
#include "slab/purge.h"
#include "slab/retention.h"
#include "support/blocks.h"
#include "support/clock.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"
#include "width_kit.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

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

static unsigned given; /* of those that were taken */

static void take(unsigned class_idx, unsigned count) {
    CHECK(count <= BLOCKS_MAX);
    blocks_take(blocks, count, hak_class_block_bytes[class_idx]);
    given = 0;
}

/* Frees the first `count` of the blocks that are there. */
static void give(unsigned count) {
    CHECK(given + count <= BLOCKS_MAX);
    blocks_free(&blocks[given], count);
    given += count;
}

/* The blocks [first, end) are given in an order that has nothing to do with where they lie. */
static void shuffle(unsigned first, unsigned end) {
    struct rng rng = rng_seeded(end);
    rng_shuffle(&rng, &blocks[first], end - first);
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
        narrow += capacity(c) <= hak_width_least(c) && hak_cache_count(hak_heap_attach(), c) <= capacity(c);
    }
    return narrow;
}

/* Frees what is too much for all caches together. */
static void end_all(void) {
    const unsigned c = CLASS_OF_1280, plain = plain_capacity(c);
    take(c, 20 * plain);
    fill_caches_of_little();
    give(20 * plain);
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
    end_all(); /* too soon after the last one */
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

static void on_thread(void *(*run)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static struct heap *heap_of_first;

static void *end_all_first(void *unused) {
    heap_of_first = hak_heap_attach();
    end_all();
    CHECK(count_narrow_of_little() == LITTLE_COUNT);
    return unused;
}

static void *end_all_next(void *unused) {
    CHECK(hak_heap_attach() == heap_of_first);
    end_all();
    CHECK(count_narrow_of_little() == LITTLE_COUNT);
    return unused;
}

/* The heap is the same, the thread is not. */
static void an_end_of_another_thread_does_not_matter(void **state) {
    (void)state;
    clock_ms += AGAIN_MS;
    on_thread(end_all_first);
    on_thread(end_all_next);
}

static void *begin_a_class_at_the_end(void *unused) {
    void *few[20]; /* too few for a cache, but not with their frees */
    const unsigned c = hak_class_of(12288);
    blocks_take(few, HAK_COUNT_OF(few), 12288);
    CHECK(capacity(c) == 0);
    end_all();
    blocks_free(few, HAK_COUNT_OF(few));
    CHECK(capacity(c) == LEAST_LARGEST);
    return unused;
}

static void a_cache_that_begins_at_the_end_is_narrow(void **state) {
    (void)state;
    clock_ms += AGAIN_MS;
    on_thread(begin_a_class_at_the_end);
}

static void *grow_a_cache(void *unused) {
    const unsigned c = CLASS_OF_640, blocks_of_growth = 100;
    take(c, blocks_of_growth);
    unsigned before = capacity(c), room = before - hak_cache_count(hak_heap_attach(), c);
    CHECK(hak_heap_attach()->classes[c].refills_in_row != 0);
    give(room + 1);
    CHECK(capacity(c) > before);
    CHECK(hak_heap_attach()->row.bytes == 0);
    give(blocks_of_growth - room - 1);
    CHECK(hak_heap_attach()->row.bytes != 0);
    return unused;
}

/* Where a cache becomes wider nothing leaves it. */
static void growth_is_no_spill(void **state) {
    (void)state;
    on_thread(grow_a_cache);
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

/* Ends once for good, of this class and of all, so that further ends come too soon to narrow. Nothing is kept
 * then. */
static void end_once(unsigned class_idx, unsigned capacities) {
    const unsigned blocks_of_end = capacities * plain_capacity(class_idx);
    (void)malloc_trim(0);
    clock_ms += AGAIN_MS;
    take(class_idx, blocks_of_end);
    give(blocks_of_end);
}

static void what_stays_is_counted_until_it_is_used(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_768, plain = plain_capacity(c);
    end_once(c, 12);
    assert_int_equal(kept(), 0); /* narrowed */
    take(c, 10 * plain);
    shuffle(0, 10 * plain);
    give(10 * plain);
    assert_true(capacity(c) >= plain);
    assert_int_equal(kept(), capacity(c) * 4096);
    unsigned more = capacity(c) + 1;
    take(c, more); /* which a refill is needed for */
    assert_int_equal(kept(), 0);
    give(more);
    take(c, 10 * plain);
    give(10 * plain);
    assert_true(kept() != 0);
    (void)malloc_trim(0);
    assert_int_equal(kept(), 0); /* nor is it when all blocks have gone home */
}

static void what_was_freed_is_all_that_can_be_kept(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_256, plain = plain_capacity(c);
    end_once(c, 12);
    take(c, 5 * plain);
    give(5 * plain);
    assert_in_range(kept(), 2 * plain * 256, 10 * plain * 256); /* of plain * 4096; seen at each doubling */
}

/* A spill of blocks that were freed as they lie has few units beneath it, and so has the cache. */
static void what_lies_together_keeps_its_units_alone(void **state) {
    (void)state;
    const unsigned c = hak_class_of(160), plain = plain_capacity(c);
    end_once(c, 10);
    take(c, 10 * plain);
    give(10 * plain);
    assert_true(capacity(c) >= plain);
    assert_in_range(kept(), plain * 160, (size_t)2 * 3 * HAK_UNIT_BYTES); /* a half may touch three */
    size_t together = kept();
    take(c, 10 * plain);
    shuffle(0, 10 * plain); /* over twenty units */
    give(10 * plain);
    assert_in_range(kept(), 3 * together, plain * 4096);
}

/* The row has gone far and was looked at; now it reaches what lies farther apart. */
static void what_comes_to_lie_farther_apart_is_seen(void **state) {
    (void)state;
    const unsigned c = hak_class_of(128), plain = plain_capacity(c), half = plain / 2;
    assert_int_equal(plain, 1024);
    end_once(c, 6);
    take(c, 6 * plain);
    shuffle(5 * half, 12 * half);
    give(plain + 3 * half + 1); /* the fourth half is spilled: a look, and none before the eighth */
    size_t together = kept();
    assert_in_range(together, 1, (size_t)2 * 3 * HAK_UNIT_BYTES);
    give(2 * half); /* the sixth, which is the first that lies apart */
    assert_int_equal(kept(), together);
    give(half);
    assert_in_range(kept(), 2 * 6 * half * 128, 2 * 7 * half * 128);
}

/* Other threads leave room for what the row may keep when it has gone far, not for when it has gone on. */
static void what_all_threads_may_not_keep_is_narrowed_at_once(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_320, plain = plain_capacity(c);
    end_once(c, 12);
    size_t left_bytes = hak_retention_raise_max(HAK_RETAINER_CACHES) - kept();
    size_t others_bytes = left_bytes - (size_t)6 * plain * 320;
    hak_retention_note_wider((ptrdiff_t)others_bytes);
    take(c, 10 * plain);
    shuffle(0, 10 * plain);
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

static size_t pages_of_little(void) {
    size_t bytes = 0;
    for (unsigned i = 0; i < LITTLE_COUNT; i++) {
        unsigned c = hak_class_of(little[i]);
        bytes += hak_cache_count(hak_heap_attach(), c) * (little[i] > 4096 ? little[i] : 4096) / 1024 * 1024;
    }
    return bytes;
}

static void *keep_what_ends_again(void *unused) {
    end_all();
    CHECK(kept() == 0);
    end_all();
    CHECK(count_narrow_of_little() == 0);
    CHECK(kept() >= pages_of_little());
    void *one = hak_malloc(little[0]); /* out of a cache that is not empty */
    CHECK(kept() >= pages_of_little());
    hak_free(one);
    (void)malloc_trim(0);
    CHECK(kept() == 0);

    size_t others_bytes = hak_retention_raise_max(HAK_RETAINER_CACHES) - MIB;
    hak_retention_note_wider((ptrdiff_t)others_bytes);
    end_all();
    CHECK(count_narrow_of_little() == LITTLE_COUNT);
    CHECK(kept() == others_bytes);
    hak_retention_note_wider(-(ptrdiff_t)others_bytes);
    return unused;
}

static void what_all_caches_keep_is_counted_too(void **state) {
    (void)state;
    (void)malloc_trim(0);
    clock_ms += AGAIN_MS;
    on_thread(keep_what_ends_again);
    assert_int_equal(kept(), 0);
}

/* ---- without memory for a smaller array ---- */

static void *all_records; /* linked by their first word */

/* Where nothing can be mapped. */
static void use_up_records(void) {
    for (void **record; (record = hak_meta_alloc(HAK_CACHE_LINE_BYTES)) != NULL; all_records = record) {
        *record = all_records;
    }
}

static void give_records_back(void) {
    while (all_records != NULL) {
        void *record = all_records;
        all_records = *(void **)record;
        hak_meta_free(record, HAK_CACHE_LINE_BYTES);
    }
}

static void an_end_without_memory_returns_nothing_twice(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_512, plain = plain_capacity(c);
    struct rlimit unlimited, none;
    assert_int_equal(getrlimit(RLIMIT_AS, &unlimited), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = unlimited.rlim_max};
    (void)malloc_trim(0);
    clock_ms += AGAIN_MS;
    take(c, 20 * plain);
    unsigned before = capacity(c);
    assert_true(before > LEAST);
    assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
    use_up_records();
    give(20 * plain);
    assert_int_equal(setrlimit(RLIMIT_AS, &unlimited), 0);
    assert_int_equal(capacity(c), before);
    assert_true(hak_cache_count(hak_heap_attach(), c) <= before);
    give_records_back();
    clock_ms += AGAIN_MS;
    take(c, 20 * plain);
    give(20 * plain);
    assert_int_equal(capacity(c), LEAST);
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
        TEST(what_lies_together_keeps_its_units_alone),
        TEST(what_comes_to_lie_farther_apart_is_seen),
        TEST(what_all_threads_may_not_keep_is_narrowed_at_once),
        TEST(an_end_of_another_thread_does_not_matter),
        TEST(a_cache_that_begins_at_the_end_is_narrow),
        TEST(growth_is_no_spill),
        TEST(what_all_caches_keep_is_counted_too),
        TEST(an_end_without_memory_returns_nothing_twice),
    };
    return cmocka_run_group_tests(tests, keep_all, NULL);
}
