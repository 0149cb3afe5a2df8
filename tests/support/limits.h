/*
 * limits.h - a process that has little address space left.
 */
#ifndef HAK_TESTS_SUPPORT_LIMITS_H
#define HAK_TESTS_SUPPORT_LIMITS_H

#include "memory/rss_kit.h"
#include "support/test.h"

#include <sys/mman.h>
#include <sys/resource.h>

/* All that the process has mapped, as RLIMIT_AS counts it. */
static inline size_t address_space_bytes(void) {
    return proc_bytes("/proc/self/status", "VmSize:");
}

/* From here on so much more than there is now. */
static inline void limit_room(size_t bytes) {
    rlim_t limit = address_space_bytes() + bytes;
    CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){limit, limit}) == 0);
}

/* Whether the program can map so much itself. */
static inline bool has_room(size_t bytes) {
    void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return own != MAP_FAILED && munmap(own, bytes) == 0;
}

#endif
