/*
 * upkeep_test.c - floors that proved cycles raised fall also in a program whose caches serve all it does, a
 * little in each call, and in one that samples. Counts the system calls; time is simulated.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "heap/heap.h"
#include "large/retain.h"
#include "slab/purge.h"
#include "slab/retention.h"
#include "slab/superslab.h"
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
#define SLOW_STEP_MS 100u
#define STEPS        80u /* 8 seconds */
#define CALLS_MAX    16u /* of one operation */
#define HOT_BYTES    100u
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

static void hot_pair(unsigned *most_calls) {
    atomic_store(&purge_calls, 0);
    hak_free(hak_malloc(HOT_BYTES));
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

/* Another thread's cycles; it is gone, so nobody takes a slow path any more. */
static void let_another_raise_floors(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, raise_floors, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    (void)work_in_cache(WARM_UP); /* the class is hot */
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

static void floors_fall_though_caches_serve_everything(void **state) {
    (void)state;
    assert_part_succeeds("falls", "HAKMEM_BACKGROUND=0");
}

static void they_do_in_a_process_that_samples(void **state) {
    (void)state;
    assert_part_succeeds("sampling", "HAKMEM_GUARD_SAMPLE=1000");
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "falls") == 0) {
        return what_was_raised_falls();
    }
    if (argc == 2 && strcmp(argv[1], "sampling") == 0) {
        return what_was_raised_falls_while_sampling();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floors_fall_though_caches_serve_everything),
        cmocka_unit_test(they_do_in_a_process_that_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
