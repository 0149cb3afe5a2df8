/*
 * trace_walk_test.c - by which way a stack is walked, and how far: on stacks that a runtime made, through
 * code with and without frame pointers, and below the unwinder itself.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/test.h"

#if defined(__x86_64__)
#include "check/libc.h"
#include "check/unwind.h"
#include "check/unwind_table.h"
#include "unit/trace_kit.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unwind.h>

#define FRAMES 16u

static struct hak_check_libc whole_libc;
static int backtraces;

static int backtrace_that_counts(void **frames, int count) {
    backtraces++;
    return whole_libc.backtrace(frames, count);
}

static int count_backtraces(void **state) {
    (void)state;
    whole_libc = hak_check_libc;
    hak_check_libc.backtrace = backtrace_that_counts;
    backtraces = 0;
    return 0;
}

static int restore_libc(void **state) {
    (void)state;
    hak_check_libc = whole_libc;
    return 0;
}

static void on_a_thread(void *(*function)(void *)) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

#define SKIP_WITHOUT_TABLES()                                                                                \
    do {                                                                                                     \
        if (!hak_unwind_can_read_tables()) {                                                                 \
            SKIP_BECAUSE("no tables can be read here");                                                      \
        }                                                                                                    \
    } while (0)

/* ---- on another stack ---- */

#define STACK_BYTES (64 * KIB)

static const struct hak_trace *trace_taken;

static void take_three_deep(void) {
    trace_taken = take_here(2);
    AFTER_CALL();
}

/*
 * As runtimes switch stacks by inline assembly: the compiler counts on from its own stack pointer, so that by
 * the tables the return address lies beyond the new stack's top.
 */
__attribute__((noinline)) static void call_on(void *top, void (*function)(void)) {
    __asm__ volatile("mov %%rsp, %%rbx\n\tmov %0, %%rsp\n\tcall *%1\n\tmov %%rbx, %%rsp"
                     :
                     : "r"(top), "r"(function)
                     : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

/* The same, and the frame pointer points there too, as a runtime may leave it. */
__attribute__((noinline)) static void call_with_frame_at(void *top, void (*function)(void)) {
    register void *at __asm__("r12") = top;
    register void (*called)(void) __asm__("r13") = function;
    __asm__ volatile("push %%rbp\n\tmov %%rsp, %%rbx\n\tmov %0, %%rsp\n\tmov %0, %%rbp\n\tcall *%1\n\t"
                     "mov %%rbx, %%rsp\n\tpop %%rbp"
                     :
                     : "r"(at), "r"(called)
                     : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

/* Where the next stack begins with a guard. */
static void take_before_a_guard(void (*call)(void *top, void (*function)(void))) {
    char *below = (char *)__builtin_frame_address(0) - 2 * GIB;
    char *stack = mmap(below, STACK_BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stack != MAP_FAILED && stack < below + GIB); /* not where the thread's own may be */
    assert_int_equal(mprotect(stack + STACK_BYTES, 4096, PROT_NONE), 0);
    call(stack + STACK_BYTES, take_three_deep);
    assert_int_equal(frames_in_take_here(trace_taken), 3);
    munmap(stack, STACK_BYTES + 4096);
}

static void a_trace_does_not_leave_a_stack_that_nobody_knows(void **state) {
    (void)state;
    take_before_a_guard(call_on);
}

/* What pthreads say of a main thread's under `ulimit -s unlimited`: all down to the nearest mapping of then.
 */
static int stack_without_limit(const pthread_attr_t *attributes, void **low, size_t *bytes) {
    int error = whole_libc.getstack(attributes, low, bytes);
    uintptr_t high = (uintptr_t)*low + *bytes;
    *low = (void *)MIB;
    *bytes = high - MIB;
    return error;
}

static void *take_on_another_stack(void *unused) {
    take_before_a_guard(call_with_frame_at);
    return unused;
}

/* A stack of the program's that came to lie there is not the thread's own. */
static void a_stack_without_limit_is_not_believed_to_its_end(void **state) {
    (void)state;
    hak_check_libc.getstack = stack_without_limit;
    on_a_thread(take_on_another_stack);
}

/* ---- with and without frame pointers ---- */

/* Has a frame pointer, whatever the compiler was told; what it calls may have none, and leaves the register.
 */
__attribute__((noinline)) static const struct hak_trace *take_below_a_frame(void) {
    void *volatile frame = __builtin_frame_address(0);
    const struct hak_trace *trace = frame == NULL ? NULL : take_here(2);
    AFTER_CALL();
    return trace;
}

static void *take_in_the_second_place(void *unused) {
    void *volatile frame = __builtin_frame_address(0);
    CHECK(frame != NULL && frames_in_take_here(take_here(0)) == 1); /* finds where the thread began */
    CHECK(frames_in_take_here(take_below_a_frame()) == 3);
    return unused;
}

/* The chain of frame pointers arrives at the thread's start there, and yet leaves callers out. */
static void a_function_without_frame_pointer_hides_no_caller(void **state) {
    (void)state;
    on_a_thread(take_in_the_second_place);
}

/* ---- through code that no library has ---- */

static void *code; /* a page */

static void *map_code(const void *bytes, size_t count) {
    code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(code != MAP_FAILED);
    memcpy(code, bytes, count);
    CHECK(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0);
    return code;
}

static bool is_in_code(const void *address) {
    return (uintptr_t)address - (uintptr_t)code < 4096;
}

/* Frames from the first in that code on. */
static unsigned frames_from_code(const struct hak_trace *trace, void *const **first) {
    unsigned count = hak_trace_frames(trace, first);
    while (count > 0 && !is_in_code(**first)) {
        count--;
        (*first)++;
    }
    return count;
}

static void *thread_root(void) {
    void *const *frames = NULL;
    unsigned count = hak_trace_frames(take_here(0), &frames);
    CHECK(count > 2);
    return frames[count - 1];
}

/* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
static const uint8_t with_frame[] = {0x55, 0x48, 0x89, 0xE5, 0xFF, 0xD7, 0x5D, 0xC3};

/* push %rbp; mov %rsi, %rbp; call *%rdi; pop %rbp; ret */
static const uint8_t with_given_frame[] = {0x55, 0x48, 0x89, 0xF5, 0xFF, 0xD7, 0x5D, 0xC3};

__attribute__((noinline)) static unsigned take_through_code(void *argument, void *const **frames) {
    ((void (*)(void (*)(void), void *))(uintptr_t)code)(take_three_deep, argument);
    AFTER_CALL();
    CHECK(frames_in_take_here(trace_taken) == 3);
    return frames_from_code(trace_taken, frames);
}

static void *take_through_frames(void *unused) {
    void *root = thread_root();
    void *const *frames = NULL;
    map_code(with_frame, sizeof with_frame);
    CHECK(take_through_code(NULL, &frames) == 4); /* the code, take_through_code, this, start_thread */
    CHECK(frames[3] == root);
    munmap(code, 4096);
    return unused;
}

/* As a compiler at run time leaves them. */
static void a_trace_goes_on_behind_code_with_frame_pointers(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    on_a_thread(take_through_frames);
    assert_int_equal(backtraces, 0);
}

#define MARK ((void *)(uintptr_t)0x111110)

static void *take_through_given_frames(void *unused) {
    void *const *found = NULL;
    map_code(with_given_frame, sizeof with_given_frame);
    void *frames[4] = {&frames[2], MARK, NULL, thread_root()};
    CHECK(take_through_code(frames, &found) == 3);
    CHECK(found[1] == MARK && found[2] == frames[3]);
    frames[3] = (char *)frames[3] + 1;
    CHECK(take_through_code(frames, &found) == 1);
    frames[0] = frames; /* a circle */
    CHECK(take_through_code(frames, &found) == 1);
    CHECK(take_through_code((void *)8, &found) == 1);
    CHECK(take_through_code((char *)frames + 3, &found) == 1);
    munmap(code, 4096);
    return unused;
}

/* Such code may have anything in that register. */
static void a_frame_pointer_counts_where_the_walk_arrives_at_the_threads_start(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    on_a_thread(take_through_given_frames);
}

/* ---- below the unwinder ---- */

static _Unwind_Reason_Code take_in_unwinder(struct _Unwind_Context *context, void *unused) {
    (void)context;
    (void)unused;
    take_three_deep();
    return _URC_END_OF_STACK;
}

static void unwind_in_handler(int signal) {
    (void)signal;
    (void)_Unwind_Backtrace(take_in_unwinder, NULL);
}

static void *raise_on_thread(void *unused) {
    raise(SIGUSR1);
    return unused;
}

/* It may hold its lock, where it frees what it knew of tables that a program drops. The signal's frame has no
 * rule. */
static void the_unwinder_is_not_asked_from_inside(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    signal(SIGUSR1, unwind_in_handler);
    on_a_thread(raise_on_thread);
    assert_int_equal(frames_in_take_here(trace_taken), 3);
    assert_int_equal(backtraces, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_does_not_leave_a_stack_that_nobody_knows),
        cmocka_unit_test(a_function_without_frame_pointer_hides_no_caller),
        cmocka_unit_test_setup_teardown(a_trace_goes_on_behind_code_with_frame_pointers, count_backtraces,
                                        restore_libc),
        cmocka_unit_test_setup_teardown(a_stack_without_limit_is_not_believed_to_its_end, count_backtraces,
                                        restore_libc),
        cmocka_unit_test(a_frame_pointer_counts_where_the_walk_arrives_at_the_threads_start),
        cmocka_unit_test_setup_teardown(the_unwinder_is_not_asked_from_inside, count_backtraces,
                                        restore_libc),
    };
    hak_trace_prepare(FRAMES, false);
    return cmocka_run_group_tests_name("trace_walk", tests, NULL, NULL);
}

#else

static void stacks_are_walked(void **state) {
    (void)state;
    SKIP_BECAUSE("these stacks are written for x86-64");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stacks_are_walked)};
    return cmocka_run_group_tests_name("trace_walk", tests, NULL, NULL);
}

#endif
