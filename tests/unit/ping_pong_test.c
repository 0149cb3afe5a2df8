/*
 * ping_pong_test.c - memory that a program frees and soon needs again stops going back and forth; memory that
 * it frees for good goes back, a little in each call. Counts the system calls; time is simulated.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "slab/purge.h"
#include "slab/retention.h"
#include "slab/superslab.h"
#include "support/clock.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BATCH_BLOCKS     40000u
#define BATCH_BYTES      ((size_t)24 * MIB) /* about: blocks of 32 to 1200 bytes */
#define ROUNDS           40u
#define ROUND_MS         5u
#define BULK_BLOCKS      600000u /* beyond the first 16 MiB some SuperSlabs are huge: to be split first */
#define CALLS_MAX        16u
#define BULK_BYTES       500u
#define SWING_BLOCKS     ((size_t)250000)
#define SWING_BYTES      512u               /* about: blocks of 16 to 1008 bytes */
#define RETAIN_BYTES     ((size_t)64 * MIB) /* HAKMEM_RETAIN_MB */
#define REFILLED_BLOCKS  400u
#define REFILLED_BYTES   1000u
#define SPILL_MAX_BLOCKS 128u /* each of which may have been the last of its slab */
#define SOON_MS          8000u
#define RUN_BYTES        ((size_t)64 * 1024)
#define RUNS             320u
#define VECTORS          100u
#define VECTOR_BYTES_MIN ((size_t)16)
#define VECTOR_BYTES_MAX ((size_t)128 * 1024)
#define VECTOR_ROUNDS    200u

static atomic_uint purge_calls;
static atomic_uint split_calls; /* a huge page is one no more */
static atomic_size_t purged_bytes;

int madvise(void *address, size_t bytes, int advice) {
    if (advice == MADV_DONTNEED) {
        atomic_fetch_add(&purge_calls, 1);
        atomic_fetch_add(&purged_bytes, bytes);
    }
    if (advice == MADV_NOHUGEPAGE) {
        atomic_fetch_add(&split_calls, 1);
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

int munmap(void *address, size_t bytes) {
    if (bytes == HAK_SUPERSLAB_BYTES) { /* not the mappings of metadata or of libc */
        atomic_fetch_add(&purge_calls, 1);
        atomic_fetch_add(&purged_bytes, bytes);
    }
    return (int)syscall(SYS_munmap, address, bytes);
}

static size_t dirty_bytes(void) {
    return hak_superslab_count().dirty_units * HAK_UNIT_BYTES;
}

/* Dirty bytes beyond what may stay without proof: a base and a 64th of the slabs in use. */
static size_t excess_bytes(void) {
    struct hak_superslab_counts counts = hak_superslab_count();
    size_t used_units = (counts.mapped - counts.whole) * HAK_UNITS_PER_SUPERSLAB - counts.free_units;
    size_t floor_bytes = hak_retention_base_bytes() + used_units * HAK_UNIT_BYTES / 64;
    size_t dirty = counts.dirty_units * HAK_UNIT_BYTES;
    return dirty > floor_bytes ? dirty - floor_bytes : 0;
}

static void *blocks[BULK_BLOCKS];
static pthread_barrier_t handed_over;

/* Runs of pages, too: freed in random order they go back one by one as long as no floor has risen, in order
 * as SuperSlabs. */
static void runs_that_come_and_go_stay(bool is_in_order) {
    struct rng rng = rng_seeded(3);
    unsigned calls_at_half = 0;
    (void)hak_trim(0);
    clock_ms += SOON_MS; /* what went back before is of no cycle any more */
    atomic_store(&purge_calls, 0);
    for (unsigned round = 0; round < ROUNDS; round++, clock_ms += ROUND_MS) {
        if (round == ROUNDS / 2) {
            calls_at_half = atomic_load(&purge_calls);
        }
        for (unsigned i = 0; i < RUNS; i++) {
            blocks[i] = hak_malloc(RUN_BYTES);
            CHECK(blocks[i] != NULL);
        }
        if (!is_in_order) {
            rng_shuffle(&rng, blocks, RUNS);
        }
        for (unsigned i = 0; i < RUNS; i++) {
            hak_free(blocks[i]);
        }
    }
    unsigned calls = atomic_load(&purge_calls) - calls_at_half;
    print_message("%u calls in the first half, %u in the second\n", calls_at_half, calls);
    assert_true(calls_at_half > 0); /* the load goes beyond the floor: this test can fail */
    assert_true(calls <= ROUNDS / 4);
}

static void large_blocks_that_come_and_go_stay(void **state) {
    (void)state;
    runs_that_come_and_go_stay(false);
}

static void large_blocks_freed_in_order_stay(void **state) {
    (void)state;
    runs_that_come_and_go_stay(true);
}

/* Small ones have slabs, then long ones runs, which take whole SuperSlabs: no free unit of another serves
 * them. */
static void vectors_that_double_together_stay(void **state) {
    (void)state;
    unsigned calls_at_half = 0;
    (void)hak_trim(0);
    clock_ms += SOON_MS; /* what went back before is of no cycle any more */
    atomic_store(&purge_calls, 0);
    for (unsigned round = 0; round < VECTOR_ROUNDS; round++, clock_ms += round % 2) {
        if (round == VECTOR_ROUNDS / 2) {
            calls_at_half = atomic_load(&purge_calls);
        }
        for (size_t bytes = VECTOR_BYTES_MIN; bytes <= VECTOR_BYTES_MAX; bytes *= 2) {
            for (unsigned i = 0; i < VECTORS; i++) {
                void *longer = hak_malloc(bytes);
                CHECK(longer != NULL);
                hak_free(bytes == VECTOR_BYTES_MIN ? NULL : blocks[i]);
                blocks[i] = longer;
            }
        }
        for (unsigned i = 0; i < VECTORS; i++) {
            hak_free(blocks[i]);
        }
    }
    unsigned calls = atomic_load(&purge_calls) - calls_at_half;
    print_message("%u calls in the first half, %u in the second\n", calls_at_half, calls);
    assert_true(calls_at_half > 0); /* the load goes beyond the floor: this test can fail */
    assert_true(calls <= VECTOR_ROUNDS / 20);
}

/* The consumer's half: frees each batch. */
static void *consume(void *unused) {
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&handed_over);
        for (unsigned i = 0; i < BATCH_BLOCKS; i++) {
            hak_free(blocks[i]);
        }
        pthread_barrier_wait(&handed_over);
    }
    return unused;
}

static void a_steady_producer_and_consumer_do_not_purge(void **state) {
    (void)state;
    struct rng rng = rng_seeded(11);
    pthread_t consumer;
    unsigned calls_at_half = 0;
    assert_int_equal(pthread_barrier_init(&handed_over, NULL, 2), 0);
    assert_int_equal(pthread_create(&consumer, NULL, consume, NULL), 0);
    for (unsigned round = 0; round < ROUNDS; round++, clock_ms += ROUND_MS) {
        if (round == ROUNDS / 2) {
            calls_at_half = atomic_load(&purge_calls);
        }
        for (unsigned i = 0; i < BATCH_BLOCKS; i++) {
            blocks[i] = hak_malloc(32 + rng_below(&rng, 1168));
            CHECK(blocks[i] != NULL);
        }
        pthread_barrier_wait(&handed_over);
        pthread_barrier_wait(&handed_over);
    }
    assert_int_equal(pthread_join(consumer, NULL), 0);
    unsigned calls = atomic_load(&purge_calls) - calls_at_half;
    print_message("%u calls in the first half, %u in the second\n", calls_at_half, calls);
    assert_true(calls_at_half > 0); /* the load goes beyond the floor: this test can fail */
    assert_true(calls <= ROUNDS / 4);
    assert_true(dirty_bytes() > BATCH_BYTES / 2); /* which is what spares the calls */
}

/* Follows the test above: what proved cycles kept is not wanted any more. */
static void what_was_kept_goes_back_when_the_cycles_end(void **state) {
    (void)state;
    enum { FEW = 1000 }; /* more than a cache has */
    for (unsigned ms = 0; ms < SOON_MS; ms += 100, clock_ms += 100) {
        for (unsigned i = 0; i < FEW; i++) {
            blocks[i] = hak_malloc(1000);
        }
        for (unsigned i = 0; i < FEW; i++) {
            hak_free(blocks[i]);
        }
    }
    assert_true(excess_bytes() <= 2 * MIB);
}

/* The resident bytes that stay of rounds of small blocks, freed in random order. */
static size_t kept_of_swings(unsigned rounds) {
    struct rng rng = rng_seeded(5);
    (void)hak_trim(0);
    clock_ms += SOON_MS;
    for (unsigned round = 0; round < rounds; round++, clock_ms += ROUND_MS) {
        for (unsigned i = 0; i < SWING_BLOCKS; i++) {
            size_t bytes = 16 + rng_below(&rng, 2 * SWING_BYTES - 32);
            blocks[i] = hak_malloc(bytes);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], 1, bytes);
        }
        rng_shuffle(&rng, blocks, SWING_BLOCKS);
        for (unsigned i = 0; i < SWING_BLOCKS; i++) {
            hak_free(blocks[i]);
        }
    }
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    return stats.resident_bytes;
}

/* In slabs, too, that are thin before they are free: of more than may stay, as much as may. */
static void what_is_freed_in_random_order_stays_as_far_as_it_may(void **state) {
    (void)state;
    size_t kept_bytes = kept_of_swings(6);
    print_message("%zu MiB stay of %zu\n", kept_bytes / MIB, SWING_BLOCKS * SWING_BYTES / MIB);
    assert_in_range(kept_bytes, RETAIN_BYTES / 4 * 3, RETAIN_BYTES / 8 * 9);
}

/* And if that goes on, all that came and went stays. */
static void what_swings_on_and_on_stays(void **state) {
    (void)state;
    assert_in_range(kept_of_swings(24), SWING_BLOCKS * SWING_BYTES / 8 * 7,
                    SWING_BLOCKS * SWING_BYTES / 8 * 9);
}

static void what_is_freed_in_bulk_goes_back_a_little_in_each_call(void **state) {
    (void)state;
    struct rng rng = rng_seeded(7);
    unsigned most_calls = 0;
    unsigned all_splits = 0;
    size_t most_bytes = 0;
    for (unsigned i = 0; i < BULK_BLOCKS; i++) {
        blocks[i] = hak_malloc(BULK_BYTES);
        assert_non_null(blocks[i]);
    }
    rng_shuffle(&rng, blocks, BULK_BLOCKS);
    for (unsigned i = 0; i < BULK_BLOCKS; i++) {
        atomic_store(&purge_calls, 0);
        atomic_store(&split_calls, 0);
        atomic_store(&purged_bytes, 0);
        hak_free(blocks[i]);
        unsigned splits = atomic_load(&split_calls);
        unsigned calls = atomic_load(&purge_calls) + splits;
        all_splits += splits;
        size_t bytes = atomic_load(&purged_bytes);
        most_calls = calls > most_calls ? calls : most_calls;
        most_bytes = bytes > most_bytes ? bytes : most_bytes;
    }
    print_message("at most %u calls and %zu KiB in one free, %u huge pages split; %zu KiB stay too long\n",
                  most_calls, most_bytes / KIB, all_splits, excess_bytes() / KIB);
    assert_true(all_splits > 0);
    assert_in_range(most_calls, 1, CALLS_MAX);
    assert_true(most_bytes < HAK_PURGE_STEP_BYTES + HAK_SUPERSLAB_BYTES);
    assert_true(excess_bytes() <= SPILL_MAX_BLOCKS * HAK_UNIT_BYTES);
}

/* Whoever only allocates from now on goes on with what the frees before left to be given back. */
static void refills_pay_what_frees_left(void **state) {
    (void)state;
    struct rng rng = rng_seeded(7);
    unsigned freed = 0;
    for (unsigned i = 0; i < BULK_BLOCKS / 2; i++) {
        blocks[i] = hak_malloc(BULK_BYTES);
        assert_non_null(blocks[i]);
    }
    rng_shuffle(&rng, blocks, BULK_BLOCKS / 2);
    while (freed < BULK_BLOCKS / 2 && !hak_purge_is_owed()) {
        hak_free(blocks[freed++]);
    }
    assert_true(hak_purge_is_owed());
    atomic_store(&purge_calls, 0);
    for (unsigned i = 0; i < freed; i++) {
        blocks[i] = i < REFILLED_BLOCKS ? hak_malloc(REFILLED_BYTES) : NULL;
    }
    assert_in_range(atomic_load(&purge_calls), 1, CALLS_MAX * REFILLED_BLOCKS);
    for (unsigned i = 0; i < BULK_BLOCKS / 2; i++) {
        hak_free(blocks[i]);
    }
}

static void *allocate_and_keep(void *unused) {
    for (unsigned i = 0; i < BULK_BLOCKS / 4; i++) {
        blocks[i] = hak_malloc(BULK_BYTES);
        CHECK(blocks[i] != NULL);
    }
    for (unsigned i = 0; i < BULK_BLOCKS / 4; i++) {
        hak_free(blocks[i]);
    }
    return unused;
}

static void a_thread_that_ends_leaves_no_debt(void **state) {
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate_and_keep, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(hak_purge_is_owed());
    assert_int_equal(excess_bytes(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_freed_in_bulk_goes_back_a_little_in_each_call),
        cmocka_unit_test(refills_pay_what_frees_left),
        cmocka_unit_test(a_thread_that_ends_leaves_no_debt),
        cmocka_unit_test(large_blocks_that_come_and_go_stay),
        cmocka_unit_test(large_blocks_freed_in_order_stay),
        cmocka_unit_test(vectors_that_double_together_stay),
        cmocka_unit_test(a_steady_producer_and_consumer_do_not_purge),
        cmocka_unit_test(what_was_kept_goes_back_when_the_cycles_end),
        cmocka_unit_test(what_is_freed_in_random_order_stays_as_far_as_it_may),
        cmocka_unit_test(what_swings_on_and_on_stays),
    };
    return cmocka_run_group_tests(tests, NULL, heap_is_sound);
}
