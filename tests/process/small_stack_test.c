/*
 * small_stack_test.c - allocation with little stack: 16 KiB threads, signal handlers on a small stack of
 * their own.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct load everything = {1, 4 * MIB, 32, 48, 32};

/* All that hakmem's deepest paths do: refills, large blocks, failures, trim. The slots are the caller's. */
static void exercise(struct slot *slots, size_t count, uint64_t seed) {
    struct rng rng = rng_seeded(seed);
    for (unsigned i = 0; i < 400; i++) {
        slots_step(slots, count, &everything, &rng);
    }
    CHECK(launder(malloc(SIZE_MAX / 2 + 1)) == NULL);
    slots_clear(slots, count);
    (void)malloc_trim(0);
}

static struct slot thread_slots[8][32];

static void *live_on_little_stack(void *number) {
    exercise(thread_slots[(uintptr_t)number], COUNT_OF(thread_slots[0]), (uintptr_t)number);
    return NULL;
}

static void threads_with_the_smallest_stack_allocate(void **state) {
    (void)state;
    pthread_attr_t attributes;
    pthread_t threads[COUNT_OF(thread_slots)];
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)), 0);
    for (uintptr_t i = 0; i < COUNT_OF(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], &attributes, live_on_little_stack, (void *)i), 0);
    }
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    pthread_attr_destroy(&attributes);
}

#define SIGNAL_STACK_BYTES ((size_t)16 * 1024)
static struct slot handler_slots[32];
static volatile sig_atomic_t handler_ran;

static void allocate_in_handler(int signal_number) {
    (void)signal_number;
    exercise(handler_slots, COUNT_OF(handler_slots), 50);
    handler_ran++;
}

/* Raised outside of malloc, so that the handler may allocate; a guard page beneath its stack. */
static void a_handler_on_a_small_alternate_stack_allocates(void **state) {
    (void)state;
    char *range =
        mmap(NULL, SIGNAL_STACK_BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(range != MAP_FAILED);
    assert_int_equal(mprotect(range, 4096, PROT_NONE), 0);
    stack_t stack = {.ss_sp = range + 4096, .ss_size = SIGNAL_STACK_BYTES}, old_stack;
    struct sigaction action = {.sa_handler = allocate_in_handler, .sa_flags = SA_ONSTACK}, old_action;
    assert_int_equal(sigaltstack(&stack, &old_stack), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, &old_action), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(raise(SIGUSR1), 0);
    }
    assert_int_equal(handler_ran, 3);
    assert_int_equal(sigaction(SIGUSR1, &old_action, NULL), 0);
    assert_int_equal(sigaltstack(&old_stack, NULL), 0);
    munmap(range, SIGNAL_STACK_BYTES + 4096);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_with_the_smallest_stack_allocate),
        cmocka_unit_test(a_handler_on_a_small_alternate_stack_allocates),
    };
    return cmocka_run_group_tests_name("small stack", tests, NULL, heap_is_sound);
}
