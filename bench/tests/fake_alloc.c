// Fake allocators for the runner's tests: libc's malloc with one known property added.
//
// Does, by macro: FAKE_NS=n: the clocks of the process show n ns for every malloc, give or take 1 % from
// process to process, and nothing else, so that two of these differ by a known factor on the busiest machine;
// FAKE_CRASH_AFTER=n: abort() in the n-th malloc; FAKE_HANG_AFTER=n: the n-th never returns;
// FAKE_NULL_AFTER=n: NULL from the n-th on; FAKE_TWICE=n: every n-th malloc hands out the block before it
// again. Does not: serve for anything but these tests.
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void __libc_free(void *block);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);

#ifndef FAKE_NS
#define FAKE_NS 0
#endif
#ifndef FAKE_CRASH_AFTER
#define FAKE_CRASH_AFTER 0
#endif
#ifndef FAKE_HANG_AFTER
#define FAKE_HANG_AFTER 0
#endif
#ifndef FAKE_NULL_AFTER
#define FAKE_NULL_AFTER 0
#endif
#ifndef FAKE_TWICE
#define FAKE_TWICE 0
#endif

static atomic_ulong calls;
static _Atomic(void *) before;

#if FAKE_NS
// From 0.99 to 1.01, the process's own.
static double noise(void) {
    return 0.99 + 0.02 * (double)((uint32_t)getpid() * UINT32_C(2654435761)) / UINT32_MAX;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    (void)clock;
    uint64_t ns = (uint64_t)((double)atomic_load(&calls) * FAKE_NS * noise());
    *t = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    return 0;
}
#endif

static bool is_reached(unsigned long call, unsigned long at) {
    return at != 0 && call >= at;
}

void *malloc(size_t bytes) {
    unsigned long call = atomic_fetch_add(&calls, 1) + 1;
    if (is_reached(call, FAKE_CRASH_AFTER)) {
        abort();
    }
    while (is_reached(call, FAKE_HANG_AFTER)) {
        pause();
    }
    if (is_reached(call, FAKE_NULL_AFTER)) {
        return NULL;
    }
    if (FAKE_TWICE && call % (FAKE_TWICE + 1) == 0) {
        return atomic_load(&before);
    }
    // With room for any later request that is given this block as well: only its sharing is wrong.
    void *block = __libc_malloc(FAKE_TWICE ? bytes + 8192 : bytes);
    atomic_store(&before, block);
    return block;
}

// The cheat hands blocks out twice: libc must not see them freed twice, or it would be the one to notice.
void free(void *block) {
    if (!FAKE_TWICE) {
        __libc_free(block);
    }
}

void *calloc(size_t count, size_t bytes) {
    return __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes) {
    return __libc_realloc(block, bytes);
}
