/*
 * trace_walk_test.c - by which way a stack is walked, and how far: on stacks that a runtime made, through
 * code with and without frame pointers, below the unwinder itself, and in libraries that come and go.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/test.h"
#include "unit/trace_kit.h"

#include <sys/mman.h>

#define FRAMES 16u

#if defined(__x86_64__)

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

/* Where the next stack begins with a guard. */
static void a_trace_does_not_leave_a_stack_that_nobody_knows(void **state) {
    (void)state;
    char *stack = mmap(NULL, STACK_BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stack != MAP_FAILED);
    assert_int_equal(mprotect(stack + STACK_BYTES, 4096, PROT_NONE), 0);
    call_on(stack + STACK_BYTES, take_three_deep);
    assert_int_equal(frames_in_take_here(trace_taken), 3);
    munmap(stack, STACK_BYTES + 4096);
}

#else

static void a_trace_does_not_leave_a_stack_that_nobody_knows(void **state) {
    (void)state;
    SKIP_BECAUSE("sets registers of x86-64");
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_does_not_leave_a_stack_that_nobody_knows),
    };
    hak_trace_prepare(FRAMES, false);
    return cmocka_run_group_tests_name("trace_walk", tests, NULL, NULL);
}
