/*
 * limits.h - a process that has little address space left.
 */
#ifndef HAK_TESTS_SUPPORT_LIMITS_H
#define HAK_TESTS_SUPPORT_LIMITS_H

#include "support/test.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* So much more than there is now. */
static inline void limit_room(size_t bytes) {
    unsigned long mapped_pages;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm != NULL && fscanf(statm, "%lu", &mapped_pages) == 1);
    CHECK(fclose(statm) == 0);
    struct rlimit limit = {.rlim_cur = mapped_pages * (size_t)sysconf(_SC_PAGESIZE) + bytes,
                           .rlim_max = RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

#endif
