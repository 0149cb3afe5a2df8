/*
 * threads_test.c - what threads cost in memory: while they idle, and when they have ended.
 *
 * suite: limit 120 s, alone
 * Threads settle one after another, so that no figure depends on how they were interleaved.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZES                100u
#define SIZE_STEP            16u
#define STACK_BYTES          (256 * KIB)
#define THREAD_OF_LIBC       (16 * KIB) /* touched stack and thread block, which are not hakmem's */
#define IDLE_THREADS         200u
#define IDLE_BYTES           (48 * KIB)
#define MANY_THREADS         1000u
#define MANY_BYTES           (50 * 1000 * 1000 + MANY_THREADS * THREAD_OF_LIBC)
#define ENDED_BYTES          (MANY_THREADS * 12 * KIB) /* what is left of them when they end */
#define WORKING_SIZES        40u
#define WORKING_STEP         64u
#define SHORT_THREADS        20000u
#define SHORT_WARM_UP        500u
#define SHORT_ROUNDS         20u /* in which most classes become hot: what their caches hold has to go back */
#define LARGE_CACHES_WARM_UP 20u
#define LARGE_CACHES_THREADS 300u
#define SHORT_SLACK_BYTES    (256 * KIB) /* the C library's own, and one slab more or less */

static sem_t settled, may_end;
static pthread_attr_t small_stack;

/* The main thread's. Not rss_kit.h's: that has 64 KiB of thread-local data, which would count here. */
static size_t rss_bytes(void) {
    static char text[4 * KIB];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    const char *rss = got > 0 ? strstr(text, "Rss:") : NULL;
    CHECK(rss != NULL);
    return strtoul(rss + strlen("Rss:"), NULL, 10) * KIB;
}

static void touch_sizes(void) {
    void *blocks[SIZES];
    for (unsigned i = 0; i < SIZES; i++) {
        blocks[i] = malloc((i + 1) * SIZE_STEP);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, (i + 1) * SIZE_STEP);
    }
    for (unsigned i = 0; i < SIZES; i++) {
        free(blocks[i]);
    }
}

static void *touch_then_idle(void *unused) {
    touch_sizes();
    sem_post(&settled);
    sem_wait(&may_end);
    return unused;
}

static void *work_then_end(void *unused) {
    for (unsigned i = 0; i < SHORT_ROUNDS; i++) {
        touch_sizes();
    }
    return unused;
}

static pthread_t held_threads[MANY_THREADS];

/* Threads that have settled, one after the other, until they may end; fewer where a limit allows no more. */
static unsigned start_threads(unsigned count, void *(*work)(void *)) {
    unsigned started = 0;
    while (started < count && pthread_create(&held_threads[started], &small_stack, work, NULL) == 0) {
        sem_wait(&settled);
        started++;
    }
    return started;
}

static void end_threads(unsigned started) {
    for (unsigned i = 0; i < started; i++) {
        sem_post(&may_end);
    }
    for (unsigned i = 0; i < started; i++) {
        CHECK(pthread_join(held_threads[i], NULL) == 0);
    }
}

/* What `count` idle threads add to the resident size. Skips where a limit allows fewer. */
static size_t bytes_of_idle_threads(unsigned count) {
    touch_sizes();
    size_t before = rss_bytes();
    unsigned started = start_threads(count, touch_then_idle);
    size_t after = rss_bytes();
    end_threads(started);
    if (started < count) {
        SKIP_BECAUSE("so many threads may not be started");
    }
    return after - before;
}

static void an_idle_thread_keeps_little(void **state) {
    (void)state;
    REQUIRE_HAK();
    size_t bytes = bytes_of_idle_threads(IDLE_THREADS) / IDLE_THREADS;
    print_message("a thread that touched %u sizes: %zu KiB\n", SIZES, bytes / KIB);
    assert_true(bytes <= IDLE_BYTES + THREAD_OF_LIBC);
}

static void a_thousand_idle_threads_stay_below_50_mb(void **state) {
    (void)state;
    REQUIRE_HAK();
    size_t bytes = bytes_of_idle_threads(MANY_THREADS);
    print_message("%u idle threads: %zu KiB\n", MANY_THREADS, bytes / KIB);
    assert_true(bytes <= MANY_BYTES);
}

/* All sizes are in use at once, in slabs of this thread's alone. */
static void *hold_sizes_then_end(void *unused) {
    void *blocks[WORKING_SIZES];
    for (unsigned i = 0; i < WORKING_SIZES; i++) {
        blocks[i] = malloc((i + 1) * WORKING_STEP);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, (i + 1) * WORKING_STEP);
    }
    sem_post(&settled);
    sem_wait(&may_end);
    for (unsigned i = 0; i < WORKING_SIZES; i++) {
        free(blocks[i]);
    }
    return unused;
}

static int leave_little_of_many(void *unused) {
    (void)unused;
    free(launder(malloc(1)));
    size_t before = rss_bytes();
    unsigned started = start_threads(MANY_THREADS, hold_sizes_then_end);
    size_t most = rss_bytes();
    end_threads(started);
    size_t after = rss_bytes();
    printf("%u threads that worked at once: %zu KiB, of which %zu stay\n", started, (most - before) / KIB,
           (after - before) / KIB);
    fflush(stdout);
    if (started < MANY_THREADS) {
        return CHILD_SKIP;
    }
    CHECK(after <= before + ENDED_BYTES);
    return 0;
}

/* In a process of its own: others' heaps would serve these. */
static void threads_that_worked_at_once_leave_little(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(leave_little_of_many);
}

static void leave_nothing(void *(*work)(void *), unsigned warm_up, unsigned threads) {
    size_t before = 0;
    for (unsigned i = 0; i < threads; i++) {
        pthread_t thread;
        if (i == warm_up) {
            before = rss_bytes();
        }
        CHECK(pthread_create(&thread, &small_stack, work, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    size_t after = rss_bytes();
    print_message("after %u threads %zu KiB, after %u %zu KiB\n", warm_up, before / KIB, threads,
                  after / KIB);
    assert_true(after <= before + SHORT_SLACK_BYTES);
}

/* Threads that ended leave nothing behind: neither cached blocks nor records nor heaps. */
static void ended_threads_leave_nothing(void **state) {
    (void)state;
    REQUIRE_HAK();
    leave_nothing(work_then_end, SHORT_WARM_UP, SHORT_THREADS);
}

/* A cache grows step by step to thousands of blocks. */
static void *swing_then_end(void *unused) {
    enum { BLOCKS = 2000, SWINGS = 8, BYTES = 64 };
    void **blocks = malloc(BLOCKS * sizeof *blocks);
    CHECK(blocks != NULL);
    for (unsigned swing = 0; swing < SWINGS; swing++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(BYTES);
            CHECK(blocks[i] != NULL);
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            free(blocks[i]);
        }
    }
    free(blocks);
    return unused;
}

static void ended_threads_with_large_caches_leave_nothing(void **state) {
    (void)state;
    REQUIRE_HAK();
    leave_nothing(swing_then_end, LARGE_CACHES_WARM_UP, LARGE_CACHES_THREADS);
}

/*
 * A thread that sleeps with full caches keeps them: another thread that allocates and frees the same sizes,
 * and asks for everything back that can be had, neither takes nor returns its blocks.
 */
static void *fill_caches_then_idle(void *count) {
    enum { ROUNDS = 200 };
    for (unsigned i = 0; i < ROUNDS; i++) {
        touch_sizes();
    }
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    *(size_t *)count = stats.cached_bytes;
    sem_post(&settled);
    sem_wait(&may_end);
    return NULL;
}

static void nobody_touches_the_cache_of_another_thread(void **state) {
    (void)state;
    REQUIRE_HAK();
    pthread_t thread;
    size_t cached_bytes = 0;
    (void)malloc_trim(0); /* empties the caches of this thread alone */
    assert_int_equal(pthread_create(&thread, &small_stack, fill_caches_then_idle, &cached_bytes), 0);
    sem_wait(&settled);
    touch_sizes();
    (void)malloc_trim(0);
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    assert_int_equal(hak_stats_get(&stats), 0);
    print_message("cached before and after: %zu and %zu bytes\n", cached_bytes, stats.cached_bytes);
    assert_true(cached_bytes > 0);
    assert_int_equal(stats.cached_bytes, cached_bytes);
    sem_post(&may_end);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_worked_at_once_leave_little), /* first: forks while no heap is used */
        cmocka_unit_test(an_idle_thread_keeps_little),
        cmocka_unit_test(a_thousand_idle_threads_stay_below_50_mb),
        cmocka_unit_test(ended_threads_leave_nothing),
        cmocka_unit_test(ended_threads_with_large_caches_leave_nothing),
        cmocka_unit_test(nobody_touches_the_cache_of_another_thread),
    };
    sem_init(&settled, 0, 0);
    sem_init(&may_end, 0, 0);
    pthread_attr_init(&small_stack);
    pthread_attr_setstacksize(&small_stack, STACK_BYTES);
    return cmocka_run_group_tests_name("threads", tests, NULL, heap_is_sound);
}
