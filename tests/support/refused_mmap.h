/*
 * refused_mmap.h - the kernel gives no more mappings while a suite says so.
 *
 * Included once by each suite, since it defines mmap: the archive calls this definition.
 */
#ifndef HAK_TESTS_SUPPORT_REFUSED_MMAP_H
#define HAK_TESTS_SUPPORT_REFUSED_MMAP_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_mapping_refused;

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (is_mapping_refused) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

#endif
