/*
 * kernel.h - what a fuzzed hakmem has for a kernel: its system calls and its clock, under the stream's
 * control.
 *
 * The archive's calls are renamed to the kernel_ functions when it is built for fuzzing (fuzz.mk), so the
 * fuzzer's own libc is left alone. The calls do what they should unless a fault is planned. Threads run in
 * lock step: nothing here is atomic.
 */
#ifndef HAK_TESTS_FUZZ_KERNEL_H
#define HAK_TESTS_FUZZ_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A bit for each call that can be made to fail. */
enum kernel_call {
    KERNEL_MMAP = 1,
    KERNEL_MUNMAP = 2,
    KERNEL_MREMAP = 4,
    KERNEL_MPROTECT = 8,
    KERNEL_MADVISE = 16,
};

/* Of the calls in `calls`, `skip` more succeed, then `count` fail with `error`. */
void kernel_plan_fault(unsigned calls, unsigned skip, unsigned count, int error);

/* How often a call failed so far, planned or not. */
uint64_t kernel_failures(void);

/* Bytes of unmappings that failed by plan: hakmem may have had to leave them mapped for good. */
size_t kernel_lost_bytes(void);

/* Lets the coarse clock run on. It also ticks by itself, a millisecond each 64 looks at it. */
void kernel_advance_ms(uint64_t ms);

/* What hakmem writes goes into the buffer from now on (and ends with a zero byte); NULL: to its descriptor.
 */
void kernel_capture(char *buffer, size_t buffer_bytes);

/* What fuzz_failed() shows beside the text from now on; NULL: nothing. */
void fuzz_show(const char *text);

/* Writes "fuzz: TEXT" and where, and aborts. */
void fuzz_failed(const char *text, const char *file, int line) __attribute__((noreturn));

#define FUZZ_CHECK(condition)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fuzz_failed(#condition, __FILE__, __LINE__);                                                     \
        }                                                                                                    \
    } while (0)

#endif
