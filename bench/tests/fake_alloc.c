// Fake allocators for the runner's tests: libc's malloc with one known property added.
//
// Does, by macro: FAKE_SPIN=n: every malloc takes n dependent steps more, so that two of these differ by a
// known factor; FAKE_CRASH_AFTER=n: abort() in the n-th malloc; FAKE_HANG_AFTER=n: the n-th never returns;
// FAKE_NULL_AFTER=n: NULL from the n-th on; FAKE_TWICE=n: every n-th malloc hands out the block before it
// again. Does not: serve for anything but these tests.
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void __libc_free(void *block);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);

#ifndef FAKE_SPIN
#define FAKE_SPIN 0
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

static void spin(void) {
    unsigned long x = 1;
    for (unsigned long left = FAKE_SPIN; left > 0; left--) {
        __asm__ volatile("" : "+r"(x)); // one dependent step, not to be folded
        x += x >> 1;
    }
}

static bool is_reached(unsigned long call, unsigned long at) {
    return at != 0 && call >= at;
}

void *malloc(size_t bytes) {
    unsigned long call = atomic_fetch_add(&calls, 1) + 1;
    spin();
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
