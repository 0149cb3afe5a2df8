/*
 * upkeep_test.c - trim, statistics, heap walks and verification while other threads allocate.
 *
 * suite: limit 240 s
 * Imitates a server that is monitored and trimmed under load: malloc_trim from a timer thread, metrics from
 * another, signals at a high rate from a profiler that interrupts wherever it likes.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/names.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define THREADS 3u

static atomic_bool is_over;

static void *work_until_over(void *seed) {
    static const struct load load = {8, 30000, 32, 32, 8};
    static _Thread_local struct slot slots[400];
    struct rng rng = rng_seeded((uintptr_t)seed);
    while (!atomic_load(&is_over)) {
        for (unsigned i = 0; i < 500; i++) {
            slots_step(slots, COUNT_OF(slots), &load, &rng);
        }
    }
    slots_clear(slots, COUNT_OF(slots));
    return NULL;
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Calls `upkeep` beside the working threads, for a second and until it says that it has seen enough. */
static void run_beside_work(bool (*upkeep)(void)) {
    pthread_t threads[THREADS];
    atomic_store(&is_over, false);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work_until_over, (void *)i), 0);
    }
    uint64_t end_ms = now_ms() + 1000 * test_scale();
    for (bool is_enough = false; !is_enough || now_ms() < end_ms;) {
        is_enough = upkeep();
    }
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    check_heap();
}

static bool trim(void) {
    TEST_TRIM();
    return true;
}

static void trim_under_load_takes_nothing_that_is_used(void **state) {
    (void)state;
    run_beside_work(trim);
}

static bool read_statistics(void) {
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    CHECK(stats.mapped_bytes != 0);
    return true;
}

static void statistics_can_be_read_under_load(void **state) {
    (void)state;
    REQUIRE_HAK();
    run_beside_work(read_statistics);
}

static int count_block(void *block, size_t usable_bytes, void *context) {
    CHECK(block != NULL && usable_bytes != 0);
    ++*(size_t *)context;
    return 0;
}

static bool walk_and_verify(void) {
    size_t blocks = 0;
    CHECK(hak_heap_walk(count_block, &blocks) == 0);
    check_heap();
    return true;
}

static void walks_and_verification_can_run_under_load(void **state) {
    (void)state;
    REQUIRE_HAK();
    run_beside_work(walk_and_verify);
}

static bool ask_about_anything(void) {
    static struct rng rng = {88172645463325252u};
    void *own = TEST_MALLOC(100);
    CHECK(hak_owns(own));
    for (unsigned i = 0; i < 1000; i++) {
        (void)hak_owns((char *)own + (int64_t)rng_below(&rng, 8 * MIB) - (int64_t)(4 * MIB));
    }
    TEST_FREE(own);
    return true;
}

static void owns_can_be_asked_under_load(void **state) {
    (void)state;
    REQUIRE_HAK();
    run_beside_work(ask_about_anything);
}

static _Atomic unsigned ticks;

static void count_tick(int signal_number) {
    (void)signal_number;
    atomic_fetch_add(&ticks, 1);
}

static bool rest(void) {
    usleep(1000);
    return atomic_load(&ticks) > 100; /* a busy machine gives them slowly */
}

/* A profiler's SIGPROF at 4 kHz of CPU time, with the stack switched, system calls restarted. */
static void a_profilers_signals_interrupt_anywhere(void **state) {
    (void)state;
    struct sigaction action = {.sa_handler = count_tick, .sa_flags = SA_RESTART}, old_action;
    struct itimerval often = {{0, 250}, {0, 250}}, off = {{0, 0}, {0, 0}};
    atomic_store(&ticks, 0);
    assert_int_equal(sigaction(SIGPROF, &action, &old_action), 0);
    assert_int_equal(setitimer(ITIMER_PROF, &often, NULL), 0);
    run_beside_work(rest);
    assert_int_equal(setitimer(ITIMER_PROF, &off, NULL), 0);
    assert_int_equal(sigaction(SIGPROF, &old_action, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trim_under_load_takes_nothing_that_is_used),
        cmocka_unit_test(statistics_can_be_read_under_load),
        cmocka_unit_test(walks_and_verification_can_run_under_load),
        cmocka_unit_test(owns_can_be_asked_under_load),
        cmocka_unit_test(a_profilers_signals_interrupt_anywhere),
    };
    return cmocka_run_group_tests_name("upkeep", tests, NULL, heap_is_sound);
}
