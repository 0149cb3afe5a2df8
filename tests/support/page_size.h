/*
 * page_size.h - a system with larger OS pages, simulated by definitions in front of libc's: getauxval says
 * that page size, mmap gives starts at its multiples, and what is unmapped or purged must be whole pages of
 * it.
 *
 * In flavours that do not ask (base/config.h) there is nothing to simulate: such a suite is skipped there.
 * A suite defines PAGE_BYTES and includes this once.
 */
#ifndef HAK_TESTS_SUPPORT_PAGE_SIZE_H
#define HAK_TESTS_SUPPORT_PAGE_SIZE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <elf.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern unsigned long __getauxval(unsigned long type);
unsigned long getauxval(unsigned long type);

static _Atomic unsigned asked, unaligned;

unsigned long getauxval(unsigned long type) {
    asked += type == AT_PAGESZ;
    return type == AT_PAGESZ ? PAGE_BYTES : __getauxval(type);
}

static void *map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

/* The kernel's own pages are smaller: maps more than is asked for and gives the ends back. */
void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    char *start = map(address, bytes, protection, flags, fd, offset);
    if (start == MAP_FAILED || (uintptr_t)start % PAGE_BYTES == 0 || !(flags & MAP_ANONYMOUS)) {
        return start;
    }
    (void)syscall(SYS_munmap, start, bytes);
    start = map(NULL, bytes + PAGE_BYTES, protection, flags, fd, offset);
    if (start == MAP_FAILED) {
        return start;
    }
    size_t lead_bytes = (size_t)(-(uintptr_t)start % PAGE_BYTES);
    if (lead_bytes != 0) {
        (void)syscall(SYS_munmap, start, lead_bytes);
    }
    (void)syscall(SYS_munmap, start + lead_bytes + bytes, PAGE_BYTES - lead_bytes);
    return start + lead_bytes;
}

static void count_unaligned(const void *address, size_t bytes) {
    unaligned += (uintptr_t)address % PAGE_BYTES != 0 || bytes % PAGE_BYTES != 0;
}

int munmap(void *address, size_t bytes) {
    count_unaligned(address, bytes);
    return (int)syscall(SYS_munmap, address, bytes);
}

int madvise(void *address, size_t bytes, int advice) {
    count_unaligned(address, bytes);
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

#endif
