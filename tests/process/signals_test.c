/*
 * signals_test.c - a thousand signals a second into each of several threads that allocate.
 *
 * suite: limit 700 s
 * The handlers do what is async-signal-safe, as those of profilers and event loops do: they count, write to a
 * pipe, read the clock, post a semaphore. hakmem's operations are interrupted anywhere, its futex waits
 * included; errno, contents and the heap must come through. One thread in two takes its signals on an
 * alternate stack.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/slots.h"
#include "support/soak.h"
#include "support/target.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#define THREADS     4u
#define SLOTS       120u
#define INTERVAL_US 1000

static const struct load loads[] = {{8, 1024, 32, 32, 8}, {1024, 40000, 32, 32, 8}, {8, 2 * MIB, 16, 64, 8}};
static atomic_bool is_over;
static atomic_ulong handled;
static int pipe_ends[2];
static sem_t posted;

static void handle(int number) {
    int saved = errno;
    struct timespec now;
    char byte = (char)number;
    atomic_fetch_add(&handled, 1);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (write(pipe_ends[1], &byte, 1) < 0 && errno == EAGAIN) {
        char drained[256];
        while (read(pipe_ends[0], drained, sizeof drained) > 0) {
        }
    }
    sem_post(&posted);
    (void)sem_trywait(&posted);
    errno = saved;
}

static void take_signals_on_another_stack(stack_t *stack) {
    *stack = (stack_t){.ss_size = 64 * KIB, .ss_sp = malloc(64 * KIB)};
    CHECK(stack->ss_sp != NULL && sigaltstack(stack, NULL) == 0);
}

static void *allocate_until_over(void *number) {
    struct slot slots[SLOTS] = {{0}};
    struct rng rng = rng_seeded((uintptr_t)number);
    stack_t stack = {0};
    if ((uintptr_t)number % 2 == 0) {
        take_signals_on_another_stack(&stack);
    }
    for (unsigned i = 0; !atomic_load(&is_over); i++) {
        errno = 4711;
        slots_step(slots, SLOTS, &loads[i / 512 % COUNT_OF(loads)], &rng);
        CHECK(errno == 4711); /* nothing failed, and no handler leaks its own */
    }
    slots_clear(slots, SLOTS);
    if (stack.ss_sp != NULL) {
        CHECK(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL) == 0);
        free(stack.ss_sp);
    }
    return NULL;
}

static void threads_that_allocate_are_interrupted(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    struct itimerval every_ms = {{0, INTERVAL_US}, {0, INTERVAL_US}}, never = {{0, 0}, {0, 0}};
    assert_int_equal(pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(sem_init(&posted, 0, 0), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_until_over, (void *)i), 0);
    }
    /* SIGALRM goes to whichever thread the kernel picks, SIGUSR1 to each. */
    assert_int_equal(setitimer(ITIMER_REAL, &every_ms, NULL), 0);
    for (time_t end = soak_end(); soak_goes_on(end);) {
        for (unsigned i = 0; i < THREADS; i++) {
            CHECK(pthread_kill(threads[i], SIGUSR1) == 0);
        }
        usleep(INTERVAL_US);
    }
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_true(atomic_load(&handled) > 100);
    check_heap();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_that_allocate_are_interrupted)};
    return cmocka_run_group_tests_name("signals", tests, NULL, heap_is_sound);
}
