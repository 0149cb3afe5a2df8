/*
 * upkeep_test.c - floors that proved cycles raised fall also in a program whose caches serve all it does, a
 * little in each call, and in one that samples; and caches that are not used any more are emptied. Counts the
 * system calls; time is simulated.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "heap/heap.h"
#include "heap/unified_cache.h"
#include "large/retain.h"
#include "meta/classes.h"
#include "slab/purge.h"
#include "slab/retention.h"
#include "slab/superslab_pool.h"
#include "support/blocks.h"
#include "support/child.h"
#include "support/clock.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS       12u
#define ROUND_MS     5u
#define BLOCKS       30000u
#define BLOCK_BYTES  800u /* 24 MB: far more than caches hold */
#define LARGE        16u
#define LARGE_BYTES  (MIB * 3 / 2)
#define LIVE         24000u
#define LIVE_BYTES   4000u /* 96 MB */
#define SHARE_BLOCKS 11000u
#define SLOW_STEP_MS 100u
#define STEPS        80u /* 8 seconds */
#define CALLS_MAX    16u /* of one operation */
#define HOT_BYTES    100u
#define RUN_BYTES    40000u /* a run of pages, in no cache */
#define WARM_UP      100u
#define SETTLE       30000u /* allocations */

static atomic_uint purge_calls;

int madvise(void *address, size_t bytes, int advice) {
    if (advice == MADV_DONTNEED) {
        atomic_fetch_add(&purge_calls, 1);
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

int munmap(void *address, size_t bytes) {
    atomic_fetch_add(&purge_calls, 1);
    return (int)syscall(SYS_munmap, address, bytes);
}

static void *blocks[BLOCKS];

static void cycle(unsigned count, size_t bytes) {
    for (unsigned round = 0; round < ROUNDS; round++, clock_ms += ROUND_MS) {
        blocks_take(blocks, count, bytes);
        blocks_free(blocks, count);
    }
}

static size_t dirty_slab_bytes(void) {
    return hak_superslab_count().dirty_units * HAK_UNIT_BYTES;
}

static size_t pair_bytes = HOT_BYTES;

static void hot_pair(unsigned *most_calls) {
    atomic_store(&purge_calls, 0);
    hak_free(hak_malloc(pair_bytes));
    unsigned calls = atomic_load(&purge_calls);
    *most_calls = calls > *most_calls ? calls : *most_calls;
}

/* Works in one class's cache alone; the most system calls of this kind that one pair made. */
static unsigned work_in_cache(unsigned pairs) {
    unsigned most_calls = 0;
    for (unsigned i = 0; i < pairs; i++) {
        hot_pair(&most_calls);
    }
    return most_calls;
}

static void work_for_seconds(void) {
    for (unsigned step = 0; step < STEPS; step++, clock_ms += SLOW_STEP_MS) {
        (void)work_in_cache(HAK_UPKEEP_ALLOCATIONS / 16);
    }
    (void)work_in_cache(SETTLE);
}

static uint64_t misses(void) {
    struct front_counts counts;
    hak_heap_sum_counters(hak_class_of(HOT_BYTES), &counts);
    return counts.cache_misses + counts.cache_spills;
}

static void *raise_floors(void *unused) {
    cycle(BLOCKS, BLOCK_BYTES);
    cycle(LARGE, LARGE_BYTES);
    return unused;
}

/* It is gone then, so nobody takes a slow path any more. */
static void in_another_thread(void *(*work)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    (void)work_in_cache(WARM_UP); /* the class is hot */
}

static void let_another_raise_floors(void) {
    in_another_thread(raise_floors);
    CHECK(hak_retention_raised_bytes(HAK_RETAINER_SLABS) != 0);
    CHECK(hak_retention_raised_bytes(HAK_RETAINER_LARGE) != 0);
    CHECK(dirty_slab_bytes() > 10 * MIB);
    CHECK(hak_retain.dirty_bytes > 10 * MIB);
}

static int what_was_raised_falls(void) {
    let_another_raise_floors();
    uint64_t before = misses();
    unsigned most_calls = 0;
    for (unsigned step = 0; step < STEPS; step++, clock_ms += SLOW_STEP_MS) {
        unsigned calls = work_in_cache(HAK_UPKEEP_ALLOCATIONS / 16);
        most_calls = calls > most_calls ? calls : most_calls;
    }
    unsigned calls = work_in_cache(SETTLE);
    most_calls = calls > most_calls ? calls : most_calls;
    print_message("%zu KiB of slabs and %zu KiB of large blocks stay; at most %u calls at once\n",
                  dirty_slab_bytes() / KIB, hak_retain.dirty_bytes / KIB, most_calls);
    CHECK(misses() == before);
    CHECK(dirty_slab_bytes() <= 2 * MIB);
    CHECK(hak_retain.dirty_bytes <= 2 * MIB);
    CHECK(most_calls >= 1 && most_calls <= CALLS_MAX);
    return 0;
}

/* A thread that has use for large blocks alone, once it has had small ones. */
static int what_was_raised_falls_by_large_blocks_alone(void) {
    let_another_raise_floors();
    struct heap *heap = hak_heap_attach();
    unsigned class_idx = hak_class_of(HOT_BYTES);
    CHECK(hak_cache_count(heap, class_idx) != 0);
    pair_bytes = RUN_BYTES;
    work_for_seconds();
    CHECK(dirty_slab_bytes() <= 2 * MIB);
    CHECK(hak_retain.dirty_bytes <= 2 * MIB);
    CHECK(hak_cache_count(heap, class_idx) == 0);
    return 0;
}

/* In a process that samples the same number counts down to the next sampled block. */
static int what_was_raised_falls_while_sampling(void) {
    let_another_raise_floors();
    for (unsigned step = 0; step < STEPS; step++, clock_ms += SLOW_STEP_MS) {
        (void)work_in_cache(1000);
    }
    CHECK(dirty_slab_bytes() <= 2 * MIB);
    CHECK(hak_retain.dirty_bytes <= 3 * MIB); /* halved each second */
    return 0;
}

static void *raise_by_share(void *unused) {
    static void *live[LIVE];
    blocks_take(live, LIVE, LIVE_BYTES);
    cycle(SHARE_BLOCKS, BLOCK_BYTES);
    return unused;
}

/* So much is live that what cycles prove stays beside HAKMEM_RETAIN_MB: an eighth of it. */
static int what_was_raised_by_a_share_falls(void) {
    work_for_seconds(); /* this thread's caches have nothing more to return, or that would let the floor fall
                         */
    in_another_thread(raise_by_share);
    CHECK(hak_superslab_pool.retention.raised_bytes != 0);
    CHECK(hak_retention_raised_bytes(HAK_RETAINER_SLABS) == 0);
    CHECK(dirty_slab_bytes() > 6 * MIB);
    work_for_seconds();
    print_message("%zu KiB of slabs stay\n", dirty_slab_bytes() / KIB);
    CHECK(dirty_slab_bytes() <= 4 * MIB); /* a 64th of what is live, and a MiB */
    return 0;
}

/* Others have all of HAKMEM_RETAIN_MB: what a level of large blocks raises their floor by is beyond it. */
static int what_was_raised_beyond_the_option_falls(void) {
    static void *live[LARGE];
    hak_retention_note_raised(HAK_RETAINER_CACHES, (size_t)hak_options.retain_mb * MIB);
    blocks_take(live, LARGE, 2 * LARGE_BYTES);
    cycle(LARGE, LARGE_BYTES);
    (void)work_in_cache(WARM_UP);
    CHECK(hak_retain.raised_bytes == 0 && hak_retain.beyond_bytes != 0);
    CHECK(hak_retain.dirty_bytes > 15 * MIB);
    work_for_seconds();
    print_message("%zu KiB of large blocks stay\n", hak_retain.dirty_bytes / KIB);
    CHECK(hak_retain.dirty_bytes <= 9 * MIB); /* an eighth of what is live, and a MiB */
    return 0;
}

static void *leave_much_free(void *unused) {
    blocks_take(blocks, BLOCKS, BLOCK_BYTES);
    blocks_free(blocks, BLOCKS);
    blocks_take(blocks, LARGE, LARGE_BYTES);
    blocks_free(blocks, LARGE);
    return unused;
}

/* HAKMEM_SS_LRU_MS: an empty SuperSlab goes after that time, though nobody frees any more. */
static int what_is_empty_goes(void) {
    work_for_seconds();
    in_another_thread(leave_much_free);
    CHECK(hak_superslab_count().empty != 0);
    CHECK(!hak_retention_is_raised(HAK_RETAINER_SLABS));
    work_for_seconds();
    CHECK(hak_superslab_count().empty == 0);
    return 0;
}

/* HAKMEM_PURGE_MS: what waited that long goes, though nobody frees any more. */
static int what_has_waited_goes(void) {
    work_for_seconds();
    in_another_thread(leave_much_free);
    CHECK(!hak_retention_is_raised(HAK_RETAINER_SLABS) && !hak_retention_is_raised(HAK_RETAINER_LARGE));
    CHECK(dirty_slab_bytes() > 20 * MIB && hak_retain.dirty_bytes > 20 * MIB);
    work_for_seconds();
    print_message("%zu KiB of slabs and %zu KiB of large blocks stay\n", dirty_slab_bytes() / KIB,
                  hak_retain.dirty_bytes / KIB);
    CHECK(dirty_slab_bytes() <= 2 * MIB);
    CHECK(hak_retain.dirty_bytes <= 2 * MIB);
    return 0;
}

#define UPKEEP_ROUND (2 * HAK_UPKEEP_ALLOCATIONS) /* pairs, in which there is upkeep once at least */
#define CACHED       20u                          /* blocks of each class */
#define LOOK_MS      500u

/* The class is hot, and its cache has some blocks. */
static void have_cached(struct heap *heap, unsigned class_idx) {
    CHECK(hak_cache_make_hot(heap, class_idx, CACHED));
    unsigned count = heap->classes[class_idx].capacity_blocks;
    count = count < CACHED ? count : CACHED;
    blocks_take(blocks, count, hak_class_block_bytes[class_idx]);
    blocks_free(blocks, count);
    CHECK(hak_cache_count(heap, class_idx) != 0);
}

static unsigned classes_with_cached(struct heap *heap) {
    unsigned classes = 0;
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        classes += c != hak_class_of(HOT_BYTES) && hak_cache_count(heap, c) != 0;
    }
    return classes;
}

/* Works with one class alone for so long that there is upkeep; the most classes that one pair emptied. */
static unsigned work_until_upkeep(struct heap *heap) {
    unsigned most = 0;
    for (unsigned i = 0; i < UPKEEP_ROUND; i++) {
        unsigned before = classes_with_cached(heap);
        hak_free(hak_malloc(HOT_BYTES));
        unsigned emptied = before - classes_with_cached(heap);
        most = emptied > most ? emptied : most;
    }
    return most;
}

/* Else each thread has for ever what its classes had cached when it used them last. */
static void what_a_thread_does_not_use_any_more_leaves_its_caches(void **state) {
    (void)state;
    struct heap *heap = hak_heap_attach();
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        have_cached(heap, c);
    }
    assert_int_equal(classes_with_cached(heap), HAK_CLASS_COUNT - 1);
    (void)work_until_upkeep(heap);
    assert_int_equal(classes_with_cached(heap), HAK_CLASS_COUNT - 1);
    clock_ms += LOOK_MS;
    assert_int_equal(work_until_upkeep(heap), 1);
    assert_int_equal(classes_with_cached(heap), 0);
}

/* Of a cache that is used as much as was not needed between two looks goes back, by halves. */
static void what_a_class_in_use_does_not_need_goes_back(void **state) {
    (void)state;
    enum { MANY = 400, NEEDED = 10 };
    struct heap *heap = hak_heap_attach();
    unsigned class_idx = hak_class_of(100);
    hak_cache_flush(heap, class_idx, false);
    CHECK(hak_cache_make_hot(heap, class_idx, MANY));
    hak_cache_fill(heap, class_idx, MANY);
    assert_true(hak_cache_count(heap, class_idx) > 10 * NEEDED);
    for (unsigned look = 0; look < 10; look++, clock_ms += LOOK_MS) {
        for (unsigned i = 0; i < UPKEEP_ROUND / NEEDED; i++) {
            blocks_take(blocks, NEEDED, 100);
            blocks_free(blocks, NEEDED);
        }
    }
    assert_in_range(hak_cache_count(heap, class_idx), NEEDED, 2 * NEEDED);
}

static void what_comes_and_goes_between_two_looks_stays(void **state) {
    (void)state;
    struct heap *heap = hak_heap_attach();
    unsigned used = hak_class_of(2000);
    have_cached(heap, used);
    void *some[CACHED];
    for (unsigned look = 0; look < 10; look++, clock_ms += LOOK_MS) {
        for (unsigned i = 0; i < 1 + look % 2; i++) {
            some[i] = hak_malloc(2000);
        }
        (void)work_until_upkeep(heap);
        blocks_free(some, 1 + look % 2);
        assert_int_not_equal(hak_cache_count(heap, used), 0);
    }
}

static void no_cache_is_emptied_before_its_time(void **state) {
    (void)state;
    struct heap *heap = hak_heap_attach();
    have_cached(heap, hak_class_of(2000));
    for (unsigned i = 0; i < 10; i++, clock_ms += LOOK_MS / 10 - 1) {
        (void)work_until_upkeep(heap);
    }
    assert_int_not_equal(hak_cache_count(heap, hak_class_of(2000)), 0);
}

static void floors_fall_though_caches_serve_everything(void **state) {
    (void)state;
    assert_part_succeeds("falls", "HAKMEM_BACKGROUND=0");
}

static void they_do_though_no_small_block_is_asked_for(void **state) {
    (void)state;
    assert_part_succeeds("large", "HAKMEM_BACKGROUND=0");
}

static void they_do_where_what_they_rose_by_is_beside_the_option(void **state) {
    (void)state;
    assert_part_succeeds("share", "HAKMEM_BACKGROUND=0");
    assert_part_succeeds("beyond", "HAKMEM_BACKGROUND=0");
}

static void what_waits_for_a_time_goes_then(void **state) {
    (void)state;
    assert_part_succeeds("empty", "HAKMEM_BACKGROUND=0");
    assert_part_succeeds("waited", "HAKMEM_PURGE_MS=1000");
}

static void they_do_in_a_process_that_samples(void **state) {
    (void)state;
    assert_part_succeeds("sampling", "HAKMEM_GUARD_SAMPLE=1000");
    assert_part_succeeds("falls", "HAKMEM_GUARD_SAMPLE=10000000"); /* as soon as where nothing is sampled */
}

static const struct part parts[] = {
    {"falls", what_was_raised_falls},
    {"large", what_was_raised_falls_by_large_blocks_alone},
    {"share", what_was_raised_by_a_share_falls},
    {"beyond", what_was_raised_beyond_the_option_falls},
    {"empty", what_is_empty_goes},
    {"waited", what_has_waited_goes},
    {"sampling", what_was_raised_falls_while_sampling},
};

int main(int argc, char **argv) {
    const struct part *part = part_asked_for(parts, COUNT_OF(parts), argc, argv);
    if (part != NULL) {
        return part->run();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floors_fall_though_caches_serve_everything),
        cmocka_unit_test(they_do_though_no_small_block_is_asked_for),
        cmocka_unit_test(they_do_where_what_they_rose_by_is_beside_the_option),
        cmocka_unit_test(what_waits_for_a_time_goes_then),
        cmocka_unit_test(they_do_in_a_process_that_samples),
        cmocka_unit_test(what_a_thread_does_not_use_any_more_leaves_its_caches),
        cmocka_unit_test(what_a_class_in_use_does_not_need_goes_back),
        cmocka_unit_test(what_comes_and_goes_between_two_looks_stays),
        cmocka_unit_test(no_cache_is_emptied_before_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
