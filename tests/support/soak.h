/*
 * soak.h - how long a soak goes on: 2 seconds in `make test`, 10 minutes in `make test-all`.
 */
#ifndef HAK_TESTS_SUPPORT_SOAK_H
#define HAK_TESTS_SUPPORT_SOAK_H

#include "support/test.h"

#include <stdbool.h>
#include <time.h>

#define SOAK_QUICK_S 2
#define SOAK_LONG_S  600

/* Seconds of a clock that only goes forward, at which a soak that starts now ends. */
static inline time_t soak_end(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + (test_scale() > 1 ? SOAK_LONG_S : SOAK_QUICK_S);
}

static inline bool soak_goes_on(time_t end) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec < end;
}

#endif
