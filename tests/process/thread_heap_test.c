/*
 * thread_heap_test.c - a thread's heap goes back however late in its life the thread first allocates, and is
 * prewarmed however early.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PREWARMED_CLASS  3u /* 64 bytes */
#define PREWARMED_BLOCKS 30u

static struct hak_stats stats(void) {
    struct hak_stats now = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof now};
    CHECK(hak_stats_get(&now) == 0);
    return now;
}

/* ---- late ---- */

static pthread_key_t late_key;

static void free_late(void *block) {
    free(block);
}

/* Allocates nothing, frees nothing: all is left to the destructor. */
static void *hand_to_destructor(void *block) {
    CHECK(pthread_setspecific(late_key, block) == 0);
    return NULL;
}

static void threads_that_first_free_in_a_destructor_leave_no_heap(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_int_equal(pthread_key_create(&late_key, free_late), 0);
    size_t heaps = stats().heaps;
    for (unsigned i = 0; i < 50; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, hand_to_destructor, malloc(64)), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_int_equal(stats().heaps, heaps);
}

/* Has its turn in each round of destructors, and frees in the last one: there is no heap any more then. */
struct last_will {
    void *foreign;
    void *own;
    int round;
};
static pthread_key_t last_key;

static void free_in_the_last_round(void *value) {
    struct last_will *will = value;
    if (++will->round < PTHREAD_DESTRUCTOR_ITERATIONS) {
        CHECK(pthread_setspecific(last_key, will) == 0);
        return;
    }
    free(will->foreign);
    free(will->own);
}

static void *leave_a_will(void *will) {
    ((struct last_will *)will)->own = malloc(64);
    CHECK(pthread_setspecific(last_key, will) == 0);
    return NULL;
}

static void a_thread_without_its_heap_frees_others_blocks(void **state) {
    (void)state;
    assert_int_equal(pthread_key_create(&last_key, free_in_the_last_round), 0);
    for (unsigned i = 0; i < 10; i++) {
        pthread_t thread;
        struct last_will will = {.foreign = malloc(64)};
        assert_int_equal(pthread_create(&thread, NULL, leave_a_will, &will), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(will.round, PTHREAD_DESTRUCTOR_ITERATIONS);
    }
    check_heap();
}

/* ---- in the child of a fork ---- */

static void *live_on(void *pipe_ends) {
    char byte;
    free(malloc(100));
    CHECK(write(((int *)pipe_ends)[1], "a", 1) == 1);
    CHECK(read(((int *)pipe_ends)[2], &byte, 1) == 1); /* until the end of the test */
    return NULL;
}

/* The heaps of threads that do not exist there are nobody's, that of the last thread too. */
static void the_child_of_a_fork_has_one_heap(void **state) {
    (void)state;
    REQUIRE_HAK();
    int begun[2], end[2], status = -1;
    char byte;
    pthread_t thread;
    free(malloc(100));
    assert_true(pipe(begun) == 0 && pipe(end) == 0);
    int ends[3] = {begun[0], begun[1], end[0]};
    assert_int_equal(pthread_create(&thread, NULL, live_on, ends), 0);
    assert_int_equal(read(begun[0], &byte, 1), 1);
    assert_true(stats().heaps >= 2);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        free(malloc(100));
        _exit(stats().heaps == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(write(end[1], "e", 1), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (unsigned i = 0; i < 2; i++) {
        close(begun[i]);
        close(end[i]);
    }
}

/* ---- early ---- */

/* Runs before the constructor that reads the options, if the loader does not know that it is to be first. */
static void allocate_early(void) {
    free(malloc(1));
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = allocate_early;

static int look_at_main_thread(void) {
    return stats().classes[PREWARMED_CLASS].cached_blocks >= PREWARMED_BLOCKS ? 0 : 1;
}

/* Forks, without a heap of its own, a child whose first request is for an aligned large block. */
static void *fork_without_heap(void *status) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(aligned_alloc(65536, 100000) != NULL);
        CHECK(malloc(64) != NULL);
        free(malloc(5000));
        check_heap();
        _exit(0);
    }
    CHECK(waitpid(child, status, 0) == child);
    return NULL;
}

static int fork_from_a_fresh_thread(void) {
    int status = -1;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, fork_without_heap, &status) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return status == 0 ? 0 : 1;
}

static void run_prewarmed(const char *mode) {
    static struct child child;
    memset(&child, 0, sizeof child);
    child.program = own_path();
    child.arguments[0] = mode;
    child.environment[0] = "HAKMEM_TINY_PREWARM_C3=30";
    child_run(&child);
    assert_child_succeeded(&child);
}

static void options_read_late_prewarm_the_main_thread_too(void **state) {
    (void)state;
    REQUIRE_HAK();
    run_prewarmed("main-thread");
}

static void the_child_of_a_fork_prewarms_a_heap_that_is_right(void **state) {
    (void)state;
    REQUIRE_HAK();
    run_prewarmed("fork");
}

int main(int count, char **arguments) {
    if (count > 1 && hak_is_there()) {
        return strcmp(arguments[1], "fork") == 0 ? fork_from_a_fresh_thread() : look_at_main_thread();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_first_free_in_a_destructor_leave_no_heap),
        cmocka_unit_test(a_thread_without_its_heap_frees_others_blocks),
        cmocka_unit_test(the_child_of_a_fork_has_one_heap),
        cmocka_unit_test(options_read_late_prewarm_the_main_thread_too),
        cmocka_unit_test(the_child_of_a_fork_prewarms_a_heap_that_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
