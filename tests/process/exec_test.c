/*
 * exec_test.c - starting programs from a process that allocates on many threads: vfork, posix_spawn, system,
 * popen.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4u

extern char **environ;
static atomic_bool is_over;

static void *allocate_until_over(void *seed) {
    static const struct load load = {8, 60000, 32, 32, 8};
    static _Thread_local struct slot slots[200];
    struct rng rng = rng_seeded((uintptr_t)seed);
    while (!atomic_load(&is_over)) {
        slots_step(slots, COUNT_OF(slots), &load, &rng);
    }
    slots_clear(slots, COUNT_OF(slots));
    return NULL;
}

static pthread_t threads[THREADS];

static int start_threads(void **state) {
    (void)state;
    atomic_store(&is_over, false);
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, allocate_until_over, (void *)i) == 0);
    }
    return 0;
}

static int join_threads(void **state) {
    (void)state;
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    check_heap();
    return 0;
}

static void vfork_and_exec(void **state) {
    (void)state;
    for (unsigned i = 0; i < 50; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(9);
        }
        int status;
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        free(malloc(1000 + i));
    }
}

/* The child of vfork shares the heap: what it allocates and frees must be whole afterwards. */
static void a_vfork_child_may_allocate_before_exec(void **state) {
    (void)state;
    for (unsigned i = 0; i < 50; i++) {
        pid_t child = vfork();
        if (child == 0) {
            char *volatile name = strdup("/bin/true");
            char *arguments[] = {name, NULL};
            execve(name, arguments, environ);
            _exit(9);
        }
        int status;
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

static void spawn_programs(void **state) {
    (void)state;
    for (unsigned i = 0; i < 30; i++) {
        char *arguments[] = {(char *)"true", NULL};
        pid_t child;
        int status;
        assert_int_equal(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

static void run_shells(void **state) {
    (void)state;
    for (unsigned i = 0; i < 15; i++) {
        char line[100];
        assert_int_equal(system("exit 0"), 0);
        FILE *stream = popen("echo from the shell", "r");
        assert_non_null(stream);
        assert_non_null(fgets(line, sizeof line, stream));
        assert_string_equal(line, "from the shell\n");
        assert_int_equal(pclose(stream), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(vfork_and_exec, start_threads, join_threads),
        cmocka_unit_test_setup_teardown(a_vfork_child_may_allocate_before_exec, start_threads, join_threads),
        cmocka_unit_test_setup_teardown(spawn_programs, start_threads, join_threads),
        cmocka_unit_test_setup_teardown(run_shells, start_threads, join_threads),
    };
    return cmocka_run_group_tests_name("exec", tests, NULL, heap_is_sound);
}
