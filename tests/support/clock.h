/*
 * clock.h - a clock that stands still unless the test moves it, for hakmem as for the whole program.
 *
 * Defines clock_gettime(): for one file of a program.
 */
#ifndef HAK_TESTS_SUPPORT_CLOCK_H
#define HAK_TESTS_SUPPORT_CLOCK_H

#include <stdint.h>
#include <time.h>

static uint64_t clock_ms = 1000000;

int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    *now =
        (struct timespec){.tv_sec = (time_t)(clock_ms / 1000), .tv_nsec = (long)(clock_ms % 1000) * 1000000};
    return 0;
}

#endif
