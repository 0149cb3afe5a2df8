/*
 * cancellation_test.c - threads that are cancelled between allocations; what they leave is found and reused.
 *
 * suite: limit 700 s
 * Deferred cancellation, the kind that POSIX allows around malloc: it strikes at cancellation points alone,
 * never inside hakmem, which has none. Cleanup handlers and thread-specific destructors free what the thread
 * held, after its stack was unwound.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/slots.h"
#include "support/soak.h"
#include "support/target.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 8u
#define SLOTS   60u

static const struct load load = {8, 100000, 32, 48, 16};
static pthread_key_t key;
static atomic_ulong cleanups, destructions;

static void clear(void *slots) {
    slots_clear(slots, SLOTS);
    atomic_fetch_add(&cleanups, 1);
}

/* Runs in the thread's last rounds; allocates, as destructors of C++ objects do. */
static void destroy(void *block) {
    void *other = malloc(3000);
    CHECK(other != NULL);
    free(block);
    free(other);
    atomic_fetch_add(&destructions, 1);
}

static void *allocate_until_cancelled(void *seed) {
    struct slot slots[SLOTS] = {{0}};
    struct rng rng = rng_seeded((uintptr_t)seed);
    CHECK(pthread_setspecific(key, malloc(500)) == 0);
    pthread_cleanup_push(clear, slots);
    for (;;) {
        for (unsigned i = 0; i < 20; i++) {
            slots_step(slots, SLOTS, &load, &rng);
        }
        pthread_testcancel();
        if (rng_below(&rng, 64) == 0) {
            usleep(10); /* a point at which the thread sleeps */
        }
    }
    pthread_cleanup_pop(1);
    return NULL;
}

static size_t live_blocks(void) {
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    return stats.live_blocks;
}

/* Threads are started, allocate for a while and are cancelled. */
static unsigned long run_generation(unsigned long seed) {
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, allocate_until_cancelled, (void *)(seed + i)) == 0);
    }
    usleep((unsigned)(seed * 37 % 5000));
    for (unsigned i = 0; i < THREADS; i++) {
        void *result;
        CHECK(pthread_cancel(threads[i]) == 0 && pthread_join(threads[i], &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    return THREADS;
}

static void cancelled_threads_leave_nothing(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_int_equal(pthread_key_create(&key, destroy), 0);
    unsigned long started = run_generation(0); /* the C library keeps blocks for the stacks that it reuses */
    size_t before = live_blocks();
    for (time_t end = soak_end(); soak_goes_on(end);) {
        started += run_generation(started);
    }
    check_heap();
    assert_true(live_blocks() <= before + THREADS);
    /* A thread that was cancelled before it came that far has nothing to clean up. */
    assert_true(atomic_load(&cleanups) > started / 4 && atomic_load(&destructions) >= atomic_load(&cleanups));
}

/* The thread is to be cancelled at its next cancellation point. */
static int free_twice_when_cancelled(void *unused) {
    (void)unused;
    void *volatile block = malloc(64); /* volatile, or the compiler warns */
    void *volatile neighbour = malloc(64);
    CHECK(neighbour != NULL && pthread_cancel(pthread_self()) == 0);
    free(block);
    free(block);
    return 0;
}

static void a_cancelled_thread_reports_its_bug_all_the_same(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct child child = {.function = free_twice_when_cancelled};
    child_run(&child);
    assert_int_equal(child_signal(&child), SIGABRT);
    assert_non_null(strstr(child.err, "hakmem: free(): double free of 0x"));
}

static int print_statistics_when_cancelled(void *unused) {
    (void)unused;
    CHECK(pthread_cancel(pthread_self()) == 0);
    malloc_stats();
    _exit(0);
}

static void a_cancelled_thread_prints_statistics(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct child child = {.function = print_statistics_when_cancelled};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_true(child.err_bytes != 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancelled_threads_leave_nothing),
        cmocka_unit_test(a_cancelled_thread_reports_its_bug_all_the_same),
        cmocka_unit_test(a_cancelled_thread_prints_statistics),
    };
    return cmocka_run_group_tests_name("cancellation", tests, NULL, heap_is_sound);
}
