/*
 * failing_calls.c - preloaded before hakmem: makes its system calls for memory fail, in any program.
 *
 * TEST_FAIL="CALL ERRNO FROM COUNT FILE": the FROM-th CALL (mmap, munmap, mremap, mprotect, madvise), counted
 * from 1 over those that libhakmem makes itself, fails with that error number, and so do the next ones, COUNT
 * in all. At exit, when nothing fails any more, appends `failed N verify R` to FILE: how many failed, what
 * hak_verify said.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern int hak_verify(char *why, size_t why_bytes) __attribute__((weak));

static struct {
    atomic_bool is_read; /* what follows is filled in, before the process has threads */
    char call[16];
    int error;
    unsigned long first, count;
    char file[256];
    uintptr_t start, end; /* of hakmem's text and data */
    atomic_ulong seen, failed;
} plan;

/* As dl_iterate_phdr wants it: keeps the range of the object that hak_verify stands in. */
static int find_library(struct dl_phdr_info *object, size_t bytes, void *context) {
    uintptr_t within = (uintptr_t)hak_verify, low = UINTPTR_MAX, high = 0;
    (void)bytes;
    (void)context;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD) {
            uintptr_t start = object->dlpi_addr + part->p_vaddr;
            low = start < low ? start : low;
            high = start + part->p_memsz > high ? start + part->p_memsz : high;
        }
    }
    if (within < low || within >= high) {
        return 0;
    }
    plan.start = low;
    plan.end = high;
    return 1;
}

/* At the first call of all, which comes before any constructor of ours. */
static bool has_plan(void) {
    if (!atomic_load(&plan.is_read)) {
        const char *text = getenv("TEST_FAIL");
        if (text == NULL || hak_verify == NULL ||
            sscanf(text, "%15s %d %lu %lu %255s", plan.call, &plan.error, &plan.first, &plan.count,
                   plan.file) != 5) {
            return false;
        }
        atomic_store(&plan.is_read, true);
        (void)dl_iterate_phdr(find_library, NULL);
    }
    return plan.first != 0;
}

static bool fails(const char *call, const void *caller) {
    if (!has_plan() || strcmp(call, plan.call) != 0 || (uintptr_t)caller < plan.start ||
        (uintptr_t)caller >= plan.end) {
        return false;
    }
    unsigned long number = atomic_fetch_add(&plan.seen, 1) + 1;
    if (number < plan.first || number - plan.first >= plan.count) {
        return false;
    }
    atomic_fetch_add(&plan.failed, 1);
    errno = plan.error;
    return true;
}

#define FAILS(call) fails(call, __builtin_return_address(0))

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return FAILS("mmap") ? MAP_FAILED
                         : (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

int munmap(void *address, size_t bytes) {
    return FAILS("munmap") ? -1 : (int)syscall(SYS_munmap, address, bytes);
}

void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    void *target = va_arg(arguments, void *);
    va_end(arguments);
    return FAILS("mremap") ? MAP_FAILED
                           : (void *)syscall(SYS_mremap, address, old_bytes, new_bytes, flags, target);
}

int mprotect(void *address, size_t bytes, int protection) {
    return FAILS("mprotect") ? -1 : (int)syscall(SYS_mprotect, address, bytes, protection);
}

int madvise(void *address, size_t bytes, int advice) {
    return FAILS("madvise") ? -1 : (int)syscall(SYS_madvise, address, bytes, advice);
}

__attribute__((destructor)) static void report(void) {
    if (!has_plan()) {
        return;
    }
    plan.first = 0;
    char why[128] = "", line[256];
    int verified = hak_verify(why, sizeof why);
    int bytes =
        snprintf(line, sizeof line, "failed %lu verify %d %s\n", atomic_load(&plan.failed), verified, why);
    int fd = open(plan.file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)bytes) != bytes) {
        abort();
    }
    close(fd);
}
