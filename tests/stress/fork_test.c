/*
 * fork_test.c - fork in a program whose threads allocate, with the application's own atfork handlers.
 *
 * suite: limit 2000 s, flavours release debug ubsan
 * Imitates a threaded server that forks workers and runs helpers: postgres-like children that go on with
 * inherited blocks, subprocess.Popen, libraries whose atfork handlers allocate. Not for ThreadSanitizer,
 * whose own runtime cannot go on in the child of a threaded program.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/names.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/soak.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS       8u
#define SHARED_SLOTS  800u
#define CHILD_LIMIT_S 900u /* a machine that is busy with other things makes no deadlock */
#define FORKS         36u

static const struct load load = {8, 60000, 32, 32, 8};
static struct slot shared[SHARED_SLOTS]; /* filled by several threads, then left alone by the parent */
static atomic_bool is_over;

static void *allocate_until_over(void *seed) {
    struct slot slots[100] = {{0}};
    struct rng rng = rng_seeded((uintptr_t)seed);
    while (!atomic_load(&is_over)) {
        slots_step(slots, COUNT_OF(slots), &load, &rng);
    }
    slots_clear(slots, COUNT_OF(slots));
    return NULL;
}

static void *fill_shared(void *part) {
    struct rng rng = rng_seeded((uintptr_t)part + 100);
    for (size_t i = (uintptr_t)part; i < SHARED_SLOTS; i += THREADS) {
        CHECK(slot_fill(&shared[i], &load, &rng));
    }
    return NULL;
}

static void start(pthread_t *threads, void *(*body)(void *)) {
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
    }
}

static void join(pthread_t *threads) {
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* ---- what children do ---- */

static void go_on_allocating(void) {
    struct slot slots[100] = {{0}};
    struct rng rng = rng_seeded(7);
    for (unsigned i = 0; i < 2000; i++) {
        slots_step(slots, COUNT_OF(slots), &load, &rng);
    }
    slots_clear(slots, COUNT_OF(slots));
    check_heap();
}

static void free_what_was_inherited(void) {
    for (size_t i = 0; i < SHARED_SLOTS; i += 2) {
        slot_clear(&shared[i]);
    }
    go_on_allocating();
    slots_clear(shared, SHARED_SLOTS);
    check_heap();
}

static void run_threads_of_its_own(void) {
    pthread_t threads[THREADS];
    atomic_store(&is_over, false);
    start(threads, allocate_until_over);
    usleep(20000);
    atomic_store(&is_over, true);
    join(threads);
    check_heap();
}

static void fork_again(void) {
    pid_t grandchild = fork();
    CHECK(grandchild >= 0);
    if (grandchild == 0) {
        free_what_was_inherited();
        _exit(0);
    }
    int status;
    CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
    go_on_allocating();
}

static void execute_a_program(void) {
    execl("/bin/true", "true", (char *)NULL);
    _exit(9);
}

static void leave_by_exit(void) {
    go_on_allocating();
    exit(0);
}

static void (*const lives[])(void) = {go_on_allocating, free_what_was_inherited, run_threads_of_its_own,
                                      fork_again,       execute_a_program,       leave_by_exit};

/* ---- the parent ---- */

static void fork_one(void (*life)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(CHILD_LIMIT_S); /* a deadlock ends as SIGALRM */
        life();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) {
        fprintf(stderr, "child ended with wait status 0x%x (0x0e: it hung)\n", (unsigned)status);
    }
    CHECK(status == 0);
}

static void *fork_from_a_thread(void *seed) {
    for (unsigned i = 0; i < 3; i++) {
        fork_one(lives[((uintptr_t)seed + i) % COUNT_OF(lives)]);
    }
    return NULL;
}

/* Children of every kind of life, while 8 threads allocate. */
static void children_live_on(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    start(threads, fill_shared);
    join(threads);
    atomic_store(&is_over, false);
    start(threads, allocate_until_over);
    time_t end = soak_end();
    for (unsigned i = 0; i < FORKS || soak_goes_on(end); i++) {
        fork_one(lives[i % COUNT_OF(lives)]);
    }
    atomic_store(&is_over, true);
    join(threads);
    slots_clear(shared, SHARED_SLOTS);
    check_heap();
}

/* Several threads fork at the same time, while others allocate. */
static void threads_fork_at_the_same_time(void **state) {
    (void)state;
    pthread_t threads[THREADS], forkers[4];
    start(threads, fill_shared);
    join(threads);
    atomic_store(&is_over, false);
    start(threads, allocate_until_over);
    for (uintptr_t i = 0; i < COUNT_OF(forkers); i++) {
        assert_int_equal(pthread_create(&forkers[i], NULL, fork_from_a_thread, (void *)i), 0);
    }
    for (unsigned i = 0; i < COUNT_OF(forkers); i++) {
        assert_int_equal(pthread_join(forkers[i], NULL), 0);
    }
    atomic_store(&is_over, true);
    join(threads);
    slots_clear(shared, SHARED_SLOTS);
    check_heap();
}

static _Atomic unsigned handler_runs;
static struct slot handler_slots[64];
static struct rng handler_rng = {99};

/* Called by the forking thread alone; a handler may use the allocator as any code does. */
static void allocate_in_handler(void) {
    static const struct load wide = {8, 3 * MIB, 32, 32, 8};
    for (unsigned i = 0; i < 200; i++) {
        slots_step(handler_slots, COUNT_OF(handler_slots), &wide, &handler_rng);
    }
    atomic_fetch_add(&handler_runs, 1);
}

static atomic_bool is_early_handler_on;
static _Atomic unsigned early_handler_runs;

/* Where hakmem is linked as an archive registered before its own: its prepare runs after theirs, its others
 * before, between their locks. */
static void allocate_in_early_handler(void) {
    if (atomic_load(&is_early_handler_on)) {
        allocate_in_handler();
        atomic_fetch_add(&early_handler_runs, 1);
    }
}

static void register_early_handler(void) {
    CHECK(pthread_atfork(allocate_in_early_handler, allocate_in_early_handler, allocate_in_early_handler) ==
          0);
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = register_early_handler;

static void handlers_of_the_application_allocate(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    atomic_store(&is_early_handler_on, true);
    assert_int_equal(pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler), 0);
    atomic_store(&is_over, false);
    start(threads, allocate_until_over);
    for (unsigned i = 0; i < 12 * test_scale(); i++) {
        fork_one(i % 2 == 0 ? go_on_allocating : run_threads_of_its_own);
    }
    atomic_store(&is_over, true);
    join(threads);
    assert_int_equal(atomic_load(&early_handler_runs), 2 * 12 * test_scale());
    assert_int_equal(atomic_load(&handler_runs), 4 * 12 * test_scale());
    check_heap();
}

/* ---- forks in signal handlers of a program without threads: at any instruction ---- */

#define HANDLER_FORKS 300

static volatile sig_atomic_t forks_in_handler;

static void fork_in_handler(int signal_number) {
    (void)signal_number;
    int saved_errno = errno;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    forks_in_handler++;
    errno = saved_errno;
}

/* Calls `step` until the handler has forked often enough, a signal for every few milliseconds of work. */
static void interrupt_with_forks(void (*step)(void)) {
    struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
    struct itimerval often = {.it_interval = {.tv_usec = 2000}, .it_value = {.tv_usec = 2000}};
    CHECK(sigaction(SIGPROF, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
    while (forks_in_handler < HANDLER_FORKS) {
        step();
    }
    CHECK(setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL) == 0);
    check_heap();
}

static struct slot interrupted_slots[40];

/* Blocks of which each takes locks: large ones, and the first of their class. */
static void allocate_under_locks(void) {
    static const struct load large = {300 * KIB, 4 * MIB, 32, 64, 8};
    static struct rng rng = {5};
    for (unsigned i = 0; i < 50; i++) {
        slots_step(interrupted_slots, COUNT_OF(interrupted_slots), &large, &rng);
    }
    TEST_TRIM();
}

static void do_nothing(void) {
}

/* Nearly all of this process's time is inside fork then. */
static void fork_at_once(void) {
    fork_one(do_nothing);
}

static void fork_from_interrupted_malloc(void) {
    interrupt_with_forks(allocate_under_locks);
    slots_clear(interrupted_slots, COUNT_OF(interrupted_slots));
    check_heap();
}

static void fork_from_interrupted_fork(void) {
    interrupt_with_forks(fork_at_once);
}

static void a_handler_forks_inside_malloc(void **state) {
    (void)state;
    fork_one(fork_from_interrupted_malloc);
}

static void a_handler_forks_inside_a_fork(void **state) {
    (void)state;
    fork_one(fork_from_interrupted_fork);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handler_forks_inside_malloc), /* before the process has had threads */
        cmocka_unit_test(a_handler_forks_inside_a_fork),
        cmocka_unit_test(children_live_on),
        cmocka_unit_test(threads_fork_at_the_same_time),
        cmocka_unit_test(handlers_of_the_application_allocate),
    };
    return cmocka_run_group_tests_name("fork", tests, NULL, heap_is_sound);
}
