/*
 * unwind_test.c - steps from frame to frame by the compiler's tables, against libc's backtrace().
 *
 * The functions here are built without frame pointers, but for those that need one (alloca, variable
 * alignment). What is not x86-64, or has no _dl_find_object, takes no step: then there is nothing to compare.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check/libc.h"
#include "check/unwind.h"
#include "check/unwind_table.h"
#include "support/test.h"

#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <search.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX 64

/* Keeps the call from becoming a jump. */
#define AFTER_CALL() __asm__ volatile("" : : : "memory")

static uintptr_t low, high; /* of the thread's stack */
static unsigned steps;      /* that the last comparison took */
static bool is_outermost;   /* whether they ended because nobody called the function */

static void find_stack(void) {
    pthread_attr_t attributes;
    void *start;
    size_t bytes;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attributes), 0);
    assert_int_equal(pthread_attr_getstack(&attributes, &start, &bytes), 0);
    pthread_attr_destroy(&attributes);
    low = (uintptr_t)start;
    high = low + bytes;
}

static struct hak_frame caller_of(const void *own_frame) {
    const uintptr_t *words = own_frame;
    return (struct hak_frame){.address = words[1], .stack = (uintptr_t)(words + 2), .base = words[0]};
}

/* Every frame from the caller's outwards is the one that backtrace() gives, as far as steps lead. */
__attribute__((noinline)) static void compare(void) {
    void *expected[FRAMES_MAX];
    int count = backtrace(expected, FRAMES_MAX);
    struct hak_frame frame = caller_of(__builtin_frame_address(0));
    steps = 0;
    for (int i = 1; i < count; i++, steps++) {
        assert_ptr_equal((void *)frame.address, expected[i]);
        if (!hak_unwind_step(&frame, low, high)) {
            break;
        }
    }
    is_outermost = frame.is_outermost;
}

static bool has_tables(void) {
    return hak_unwind_can_read_tables();
}

#define SKIP_WITHOUT_TABLES()                                                                                \
    do {                                                                                                     \
        if (!has_tables()) {                                                                                 \
            SKIP_BECAUSE("no tables can be read here");                                                      \
        }                                                                                                    \
    } while (0)

__attribute__((noinline)) static unsigned deep(unsigned depth, unsigned a, unsigned b) {
    volatile unsigned locals[5] = {a, b, a + b, a ^ b, depth};
    if (depth == 0) {
        compare();
    } else {
        locals[0] = deep(depth - 1, locals[2], locals[3]);
    }
    AFTER_CALL();
    return locals[0] + locals[4];
}

__attribute__((noinline)) static unsigned with_alloca(unsigned depth, size_t bytes) {
    char *room = alloca(bytes);
    memset(room, (int)depth, bytes);
    unsigned sum = depth == 0 ? deep(3, 1, 2) : with_alloca(depth - 1, bytes * 3);
    AFTER_CALL();
    return sum + (unsigned char)room[bytes - 1];
}

__attribute__((noinline)) static unsigned with_alignment(unsigned depth) {
    volatile unsigned aligned[16] __attribute__((aligned(64))) = {depth};
    unsigned sum = depth == 0 ? with_alloca(2, 24) : with_alignment(depth - 1);
    AFTER_CALL();
    return sum + aligned[0];
}

static void steps_follow_functions_without_frame_pointers(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    find_stack();
    (void)deep(20, 1, 2);
    assert_true(steps >= 20);
}

static void steps_follow_stack_space_of_variable_size(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    find_stack();
    (void)with_alloca(4, 40);
    assert_true(steps >= 9);
}

/* Such a frame may need an expression: there steps end, and the frames before are right. */
static void steps_are_right_up_to_a_frame_that_has_no_rule(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    find_stack();
    (void)with_alignment(3);
    assert_true(steps >= 7);
}

static int compare_in_qsort(const void *left, const void *right) {
    compare();
    AFTER_CALL();
    return *(const int *)left - *(const int *)right;
}

static void visit_in_twalk(const void *node, VISIT order, int depth) {
    (void)node;
    (void)order;
    (void)depth;
    compare();
    AFTER_CALL();
}

static void steps_lead_through_the_c_library(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    find_stack();
    int numbers[] = {5, 3, 9, 1};
    qsort(numbers, 4, sizeof numbers[0], compare_in_qsort);
    assert_true(steps >= 3);
    void *root = NULL;
    for (int i = 0; i < 4; i++) {
        assert_non_null(tsearch(&numbers[i], &root, compare_in_qsort));
    }
    twalk(root, visit_in_twalk);
    assert_true(steps >= 3);
    while (root != NULL) {
        (void)tdelete(*(int **)root, &root, compare_in_qsort);
    }
}

static void *compare_in_thread(void *unused) {
    find_stack();
    (void)deep(5, 3, 4);
    AFTER_CALL();
    return unused;
}

static void steps_lead_to_where_a_thread_began(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, compare_in_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(steps >= 7); /* deep six times, compare_in_thread, start_thread */
    assert_true(is_outermost);
}

static unsigned steps_in_handler;

static void compare_in_handler(int signal) {
    (void)signal;
    compare();
    steps_in_handler = steps;
}

/* The frame of a signal says where all registers were: no rule can. */
static void steps_end_at_a_signal(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    find_stack();
    signal(SIGUSR1, compare_in_handler);
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_DFL);
    assert_int_equal(steps_in_handler, 1);
    assert_false(is_outermost);
}

static void a_step_reads_nothing_outside_the_stack(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    find_stack();
    struct hak_frame frame = caller_of(__builtin_frame_address(0));
    struct hak_frame here = frame;
    assert_true(hak_unwind_step(&frame, low, high));
    frame = here;
    assert_false(hak_unwind_step(&frame, low, here.stack));
    frame = here;
    frame.stack = high - 4;
    assert_false(hak_unwind_step(&frame, low, high));
    frame = here;
    frame.stack += 4;
    assert_false(hak_unwind_step(&frame, low, high));
}

static void what_is_no_code_has_no_rule(void **state) {
    (void)state;
    static char data[16];
    assert_false(hak_unwind_read_rule((uintptr_t)data + 8).is_known);
    assert_false(hak_unwind_read_rule(8).is_known);
    assert_false(hak_unwind_read_rule(UINTPTR_MAX).is_known);
}

static int prepare(void **state) {
    (void)state;
    hak_check_find_libc();
    hak_unwind_prepare();
    void *first[1];
    return backtrace(first, 1) == 1 ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_follow_functions_without_frame_pointers),
        cmocka_unit_test(steps_follow_stack_space_of_variable_size),
        cmocka_unit_test(steps_are_right_up_to_a_frame_that_has_no_rule),
        cmocka_unit_test(steps_lead_through_the_c_library),
        cmocka_unit_test(steps_lead_to_where_a_thread_began),
        cmocka_unit_test(steps_end_at_a_signal),
        cmocka_unit_test(a_step_reads_nothing_outside_the_stack),
        cmocka_unit_test(what_is_no_code_has_no_rule),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
