/*
 * lifetime_test.c - malloc before main and after it: constructors, atexit, destructors, exit from a thread.
 *
 * The program runs itself as child with a mode and looks at how that ends and what it printed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/pattern.h"
#include "support/target.h"
#include "support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 40u

struct stage {
    void *blocks[BLOCKS];
};
static struct stage before_all, early, late;

static size_t block_bytes(unsigned index) {
    return index % 8 == 7 ? 40000u * index : 30u * index * index + 1;
}

static void stage_fill(struct stage *stage) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        stage->blocks[i] = malloc(block_bytes(i));
        CHECK(stage->blocks[i] != NULL);
        pattern_mark(stage->blocks[i], block_bytes(i), i);
    }
}

static void stage_clear(struct stage *stage) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK(pattern_marked(stage->blocks[i], block_bytes(i), i));
        free(stage->blocks[i]);
        stage->blocks[i] = NULL;
    }
}

static void run_preinit(void) {
    stage_fill(&before_all);
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = run_preinit;

__attribute__((constructor(101))) static void first_constructor(void) {
    stage_fill(&early);
}

__attribute__((constructor)) static void last_constructor(void) {
    stage_fill(&late);
    stage_clear(&early);
}

static void say_done(const char *text) {
    CHECK(write(STDOUT_FILENO, text, strlen(text)) > 0);
}

/* The last code of the program's own: after main, after every atexit function. */
__attribute__((destructor(101))) static void last_destructor(void) {
    stage_clear(&before_all);
    stage_fill(&before_all);
    stage_clear(&before_all);
    stage_clear(&late);
    check_heap();
    say_done("D");
}

static void at_exit(void) {
    stage_fill(&early);
    stage_clear(&early);
    say_done("A");
}

static void at_exit_with_atexit(void) {
    CHECK(atexit(at_exit) == 0);
    say_done("B");
}

static void *exit_from_thread(void *unused) {
    (void)unused;
    CHECK(malloc(100) != NULL);
    exit(0);
}

static pthread_key_t key;

static void free_value(void *value) {
    struct stage own; /* two threads may be here at once */
    free(value);
    stage_fill(&own);
    stage_clear(&own);
    say_done("K");
}

static void *arm_and_end(void *unused) {
    (void)unused;
    CHECK(pthread_setspecific(key, malloc(3000)) == 0);
    return NULL;
}

/* main returns through pthread_exit: the process ends with the last thread. */
static void leave_by_pthread_exit(void) {
    pthread_t thread;
    CHECK(pthread_key_create(&key, free_value) == 0);
    CHECK(pthread_setspecific(key, malloc(50)) == 0);
    CHECK(pthread_create(&thread, NULL, arm_and_end, NULL) == 0);
    CHECK(pthread_detach(thread) == 0);
    pthread_exit(NULL);
}

static int run_mode(const char *mode) {
    pthread_t thread;
    CHECK(atexit(at_exit_with_atexit) == 0);
    if (strcmp(mode, "return") == 0) {
        return 0;
    }
    if (strcmp(mode, "exit-from-thread") == 0) {
        CHECK(pthread_create(&thread, NULL, exit_from_thread, NULL) == 0);
        pause();
    }
    if (strcmp(mode, "pthread_exit") == 0) {
        leave_by_pthread_exit();
    }
    return 1;
}

static struct child child;

static void check_mode(const char *mode, const char *printed) {
    child = (struct child){.program = own_path(), .arguments = {mode}};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.out, printed);
    assert_string_equal(child.err, "");
}

static void malloc_works_from_preinit_to_the_last_destructor(void **state) {
    (void)state;
    check_mode("return", "BAD");
}

static void exit_from_another_thread_ends_well(void **state) {
    (void)state;
    check_mode("exit-from-thread", "BAD");
}

static void main_may_leave_by_pthread_exit(void **state) {
    (void)state;
    check_mode("pthread_exit", "KKBAD");
}

int main(int argc, char **argv) {
    if (argc > 1) {
        return run_mode(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malloc_works_from_preinit_to_the_last_destructor),
        cmocka_unit_test(exit_from_another_thread_ends_well),
        cmocka_unit_test(main_may_leave_by_pthread_exit),
    };
    int failed = cmocka_run_group_tests_name("lifetime", tests, NULL, heap_is_sound);
    (void)!freopen("/dev/null", "w", stdout); /* the destructor's letter is for children */
    return failed;
}
