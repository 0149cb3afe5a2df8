/*
 * limits.h - a process that has little address space left.
 */
#ifndef HAK_TESTS_SUPPORT_LIMITS_H
#define HAK_TESTS_SUPPORT_LIMITS_H

#include "memory/rss_kit.h"
#include "support/test.h"

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

#endif
