/*
 * stats_test.c - hak_stats_get: what it refuses, that it counts rightly, that the figures add up.
 */
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct hak_stats stats_now(void) {
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    assert_int_equal(hak_stats_get(&stats), 0);
    return stats;
}

static void unknown_versions_and_sizes_are_refused(void **state) {
    (void)state;
    REQUIRE_HAK();
    static const uint32_t versions[] = {0, HAK_STATS_VERSION + 1, UINT32_MAX};
    for (size_t i = 0; i < COUNT_OF(versions); i++) {
        struct hak_stats stats = {.version = versions[i], .struct_bytes = sizeof stats};
        assert_int_equal(hak_stats_get(&stats), EINVAL);
    }
    static const uint32_t lengths[] = {0, 4, 8, sizeof(struct hak_stats) - 8, sizeof(struct hak_stats) + 8};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = lengths[i]};
        stats.live_bytes = 12345;
        assert_int_equal(hak_stats_get(&stats), EINVAL);
        assert_int_equal(stats.live_bytes, 12345);
    }
}

static void assert_adds_up(const struct hak_stats *stats) {
    size_t live_bytes = stats->large_live_bytes, live_blocks = stats->large_live_blocks;
    size_t cached_bytes = 0, free_bytes = 0;
    for (size_t i = 0; i < HAK_STATS_CLASSES; i++) {
        const struct hak_class_stats *one = &stats->classes[i];
        assert_true(one->block_bytes > 0 && one->block_bytes <= 32 * KIB);
        assert_int_equal(one->capacity_blocks, one->live_blocks + one->cached_blocks + one->free_blocks);
        assert_true(one->slabs > 0 || one->capacity_blocks == 0);
        live_bytes += one->live_blocks * one->block_bytes;
        live_blocks += one->live_blocks;
        cached_bytes += one->cached_blocks * one->block_bytes;
        free_bytes += one->free_blocks * one->block_bytes;
    }
    if (!library_is_debug()) { /* there, a block's usable size is not its class's */
        assert_int_equal(stats->live_bytes, live_bytes);
    }
    assert_int_equal(stats->live_blocks, live_blocks);
    assert_int_equal(stats->cached_bytes, cached_bytes);
    assert_true(stats->free_bytes >= free_bytes);
    assert_true(stats->mapped_bytes >= stats->live_bytes + stats->cached_bytes + stats->free_bytes);
    assert_true(stats->metadata_bytes > 0 && stats->metadata_bytes <= stats->mapped_bytes);
    assert_true(stats->resident_bytes > 0 && stats->resident_bytes <= stats->mapped_bytes);
    assert_true(stats->superslabs_empty <= stats->superslabs);
    assert_true(stats->heaps >= 1);
}

static void figures_add_up_after_a_random_load(void **state) {
    (void)state;
    REQUIRE_HAK();
    enum { COUNT = 5000 };
    void **blocks = calloc(COUNT, sizeof *blocks);
    assert_non_null(blocks);
    struct rng rng = rng_seeded(31);
    for (unsigned round = 0; round < 10; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            void **block = &blocks[rng_below(&rng, COUNT)];
            free(*block);
            *block = rng_below(&rng, 3) == 0 ? NULL : malloc(rng_log_between(&rng, 1, 200000));
        }
        struct hak_stats stats = stats_now();
        assert_adds_up(&stats);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    free(blocks);
    struct hak_stats stats = stats_now();
    assert_adds_up(&stats);
}

static void every_block_is_counted(void **state) {
    (void)state;
    REQUIRE_HAK();
    static const size_t sizes[] = {1, 64, 500, 1024, 4000, 20000, 32768, 32769, 100000, 1 << 20, 5 << 20};
    enum { COUNT = 50 };
    void *blocks[COUNT];
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct hak_stats before = stats_now();
        size_t room = 0;
        for (size_t j = 0; j < COUNT; j++) {
            blocks[j] = malloc(sizes[i]);
            assert_non_null(blocks[j]);
            room += malloc_usable_size(blocks[j]);
        }
        struct hak_stats full = stats_now();
        assert_int_equal(full.live_blocks - before.live_blocks, COUNT);
        assert_int_equal(full.live_bytes - before.live_bytes, room);
        if (sizes[i] > 32 * KIB) {
            assert_int_equal(full.large_live_blocks - before.large_live_blocks, COUNT);
            assert_int_equal(full.large_live_bytes - before.large_live_bytes, room);
        }
        for (size_t j = 0; j < COUNT; j++) {
            free(blocks[j]);
        }
        struct hak_stats after = stats_now();
        assert_int_equal(after.live_blocks, before.live_blocks);
        assert_int_equal(after.live_bytes, before.live_bytes);
        assert_int_equal(after.large_live_bytes, before.large_live_bytes);
    }
}

static pthread_barrier_t barrier;

static void *hold_a_heap(void *context) {
    (void)context;
    void *block = malloc(100);
    CHECK(block != NULL);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    free(block);
    return NULL;
}

static void heaps_come_and_go_with_threads(void **state) {
    (void)state;
    REQUIRE_HAK();
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    struct hak_stats before = stats_now();
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, hold_a_heap, NULL), 0);
    }
    pthread_barrier_wait(&barrier);
    struct hak_stats during = stats_now();
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    struct hak_stats after = stats_now();
    assert_int_equal(during.heaps, before.heaps + THREADS);
    assert_int_equal(after.heaps, before.heaps);
    pthread_barrier_destroy(&barrier);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_versions_and_sizes_are_refused),
        cmocka_unit_test(figures_add_up_after_a_random_load),
        cmocka_unit_test(every_block_is_counted),
        cmocka_unit_test(heaps_come_and_go_with_threads),
    };
    return cmocka_run_group_tests_name("stats", tests, NULL, heap_is_sound);
}
