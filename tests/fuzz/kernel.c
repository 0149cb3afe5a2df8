/*
 * kernel.c - see kernel.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fuzz/kernel.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The address space that there is: more is refused, as a small machine would. */
#define ONE_BYTES_MAX ((size_t)512 << 20)
#define ALL_BYTES_MAX ((size_t)2 << 30)
/* An unmapping that failed may be lost for good, so the process bears only so many. */
#define LOST_CALLS_MAX 10000u

#define NS_PER_MS      1000000u
#define TICKS_PER_MS   64u
#define CLOCK_START_MS 1000000u

void *kernel_mmap(void *hint, size_t bytes, int protection, int flags, int fd, off_t offset);
int kernel_munmap(void *address, size_t bytes);
void *kernel_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...);
int kernel_mprotect(void *address, size_t bytes, int protection);
int kernel_madvise(void *address, size_t bytes, int advice);
int kernel_clock_gettime(clockid_t clock, struct timespec *now);
long kernel_syscall(long number, ...);

static struct {
    unsigned calls, skip, count;
    int error;
} plan;

static uint64_t failures;
static unsigned lost_calls;
static size_t lost_bytes;
static size_t mapped_bytes;
static uint64_t clock_ticks = (uint64_t)CLOCK_START_MS * TICKS_PER_MS;

static struct {
    char *start;
    size_t bytes, used_bytes;
} captured;

void kernel_plan_fault(unsigned calls, unsigned skip, unsigned count, int error) {
    plan.calls = calls;
    plan.skip = skip;
    plan.count = count;
    plan.error = error;
}

uint64_t kernel_failures(void) {
    return failures;
}

size_t kernel_lost_bytes(void) {
    return lost_bytes;
}

void kernel_advance_ms(uint64_t ms) {
    clock_ticks += ms * TICKS_PER_MS;
}

void kernel_capture(char *buffer, size_t buffer_bytes) {
    captured.start = buffer;
    captured.bytes = buffer_bytes;
    captured.used_bytes = 0;
    if (buffer != NULL) {
        buffer[0] = '\0';
    }
}

static bool is_planned_to_fail(enum kernel_call call) {
    if ((plan.calls & call) == 0 || plan.count == 0) {
        return false;
    }
    if (plan.skip != 0) {
        plan.skip--;
        return false;
    }
    plan.count--;
    failures++;
    errno = plan.error;
    return true;
}

void *kernel_mmap(void *hint, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (is_planned_to_fail(KERNEL_MMAP)) {
        return MAP_FAILED;
    }
    if (bytes > ONE_BYTES_MAX || mapped_bytes + bytes > ALL_BYTES_MAX) {
        failures++;
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *start = mmap(hint, bytes, protection, flags, fd, offset);
    if (start == MAP_FAILED) {
        failures++;
    } else {
        mapped_bytes += bytes;
    }
    return start;
}

int kernel_munmap(void *address, size_t bytes) {
    if (lost_calls < LOST_CALLS_MAX && is_planned_to_fail(KERNEL_MUNMAP)) {
        lost_calls++;
        lost_bytes += bytes;
        return -1;
    }
    int result = munmap(address, bytes);
    if (result != 0) {
        failures++;
    } else {
        mapped_bytes -= bytes;
    }
    return result;
}

void *kernel_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    void *target =
        (flags & MREMAP_FIXED) != 0 || (flags & ~MREMAP_MAYMOVE) != 0 ? va_arg(arguments, void *) : NULL;
    va_end(arguments);
    if (is_planned_to_fail(KERNEL_MREMAP)) {
        return MAP_FAILED;
    }
    void *start = mremap(address, old_bytes, new_bytes, flags, target);
    if (start == MAP_FAILED) {
        failures++;
    }
    return start;
}

int kernel_mprotect(void *address, size_t bytes, int protection) {
    if (is_planned_to_fail(KERNEL_MPROTECT)) {
        return -1;
    }
    return mprotect(address, bytes, protection);
}

int kernel_madvise(void *address, size_t bytes, int advice) {
    if (is_planned_to_fail(KERNEL_MADVISE)) {
        return -1;
    }
    return madvise(address, bytes, advice);
}

int kernel_clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    clock_ticks++;
    uint64_t ms = clock_ticks / TICKS_PER_MS;
    now->tv_sec = (time_t)(ms / 1000);
    now->tv_nsec = (long)(ms % 1000 * NS_PER_MS);
    return 0;
}

static long capture(const char *text, size_t bytes) {
    size_t room_bytes = captured.bytes - 1 - captured.used_bytes;
    size_t kept_bytes = bytes < room_bytes ? bytes : room_bytes;
    memcpy(captured.start + captured.used_bytes, text, kept_bytes);
    captured.used_bytes += kept_bytes;
    captured.start[captured.used_bytes] = '\0';
    return (long)bytes;
}

/* Of these calls only what is written is of interest. Reads six arguments, as syscall() does, also where the
 * caller passes fewer: what lies in their place is his frame. */
__attribute__((no_sanitize("address"))) long kernel_syscall(long number, ...) {
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (unsigned i = 0; i < 6; i++) {
        a[i] = va_arg(arguments, long);
    }
    va_end(arguments);
    return number == SYS_write && captured.start != NULL
               ? capture((const char *)a[1], (size_t)a[2])
               : syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static const char *shown = "";

void fuzz_show(const char *text) {
    shown = text != NULL ? text : "";
}

void fuzz_failed(const char *text, const char *file, int line) {
    char message[1024];
    int length = snprintf(message, sizeof message, "fuzz: %s:%d: %s\n%s", file, line, text, shown);
    if (length > 0) {
        (void)!write(STDERR_FILENO, message,
                     (size_t)length < sizeof message ? (size_t)length : sizeof message - 1);
    }
    abort();
}
