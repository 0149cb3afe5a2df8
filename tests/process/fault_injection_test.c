/*
 * fault_injection_test.c - every system call for memory that hakmem makes fails once, or fails from then on.
 *
 * suite: limit 240 s
 * The five calls are defined here, in front of libc's: hakmem's go through them. For each call, each error
 * and each n, a child runs one and the same load, in which the n-th such call fails (or all from the n-th
 * on). Every allocation must then be NULL with ENOMEM, or right; what was live must be intact, the heap
 * sound, and once the failures end everything must work again.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/pattern.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the calls in front of libc's ---- */

enum call { CALL_MMAP, CALL_MUNMAP, CALL_MREMAP, CALL_MPROTECT, CALL_MADVISE, CALLS };
static const char *const call_names[CALLS] = {"mmap", "munmap", "mremap", "mprotect", "madvise"};

static struct {
    atomic_bool is_armed;
    enum call call;
    int error;
    unsigned from; /* the n-th call, counted from 1, is the first to fail */
    bool is_lasting;
    _Atomic unsigned seen[CALLS];
    _Atomic unsigned failed;
} plan;

/* True when this call has to fail; counts it. */
static bool fails(enum call call) {
    if (!atomic_load(&plan.is_armed)) {
        return false;
    }
    unsigned number = atomic_fetch_add(&plan.seen[call], 1) + 1;
    if (call != plan.call || number < plan.from || (number > plan.from && !plan.is_lasting)) {
        return false;
    }
    atomic_fetch_add(&plan.failed, 1);
    errno = plan.error;
    return true;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return fails(CALL_MMAP) ? MAP_FAILED
                            : (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return mmap(address, bytes, protection, flags, fd, offset);
}

int munmap(void *address, size_t bytes) {
    return fails(CALL_MUNMAP) ? -1 : (int)syscall(SYS_munmap, address, bytes);
}

void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    void *target = va_arg(arguments, void *);
    va_end(arguments);
    return fails(CALL_MREMAP) ? MAP_FAILED
                              : (void *)syscall(SYS_mremap, address, old_bytes, new_bytes, flags, target);
}

int mprotect(void *address, size_t bytes, int protection) {
    return fails(CALL_MPROTECT) ? -1 : (int)syscall(SYS_mprotect, address, bytes, protection);
}

int madvise(void *address, size_t bytes, int advice) {
    return fails(CALL_MADVISE) ? -1 : (int)syscall(SYS_madvise, address, bytes, advice);
}

/* ---- the load: everything that makes hakmem ask the system ---- */

#define SLOTS 160u

static struct slot slots[SLOTS];

static void grow_and_shrink_one(void) {
    size_t bytes = 200 * KIB;
    char *block = malloc(bytes);
    if (block == NULL) {
        CHECK(errno == ENOMEM);
        return;
    }
    pattern_mark(block, bytes, 5);
    for (unsigned i = 0; i < 9; i++) {
        size_t wanted = i < 5 ? bytes * 2 : bytes / 4;
        errno = 0;
        char *moved = realloc(block, wanted);
        if (moved == NULL) {
            CHECK(errno == ENOMEM);
            CHECK(pattern_marked(block, bytes, 5));
            continue;
        }
        CHECK(pattern_holds(moved, 64, 5));
        block = moved;
        bytes = wanted;
        pattern_mark(block, bytes, 5);
    }
    free(block);
}

/* Random steps of one size range; a failed allocation leaves its slot empty, with errno ENOMEM. */
static void steps(const struct load *load, unsigned count, struct rng *rng) {
    for (unsigned i = 0; i < count; i++) {
        struct slot *slot = &slots[rng_below(rng, SLOTS)];
        slot_clear(slot);
        errno = 0;
        CHECK(slot_fill(slot, load, rng) || errno == ENOMEM);
        if (slot->block != NULL && i % 4 == 0) {
            errno = 0;
            CHECK(slot_resize(slot, load, rng) || errno == ENOMEM);
        }
    }
}

static void *on_another_thread(void *unused) {
    static const struct load small = {8, 3000, 32, 0, 8};
    struct rng rng = rng_seeded(77);
    struct slot own[50] = {{0}};
    for (unsigned i = 0; i < 300; i++) {
        slots_step(own, COUNT_OF(own), &small, &rng);
    }
    slots_clear(own, COUNT_OF(own));
    return unused;
}

static void run_load(void) {
    static const struct load tiny = {1, 1024, 32, 0, 16}, mid = {1024, 32 * KIB, 48, 0, 8},
                             large = {33 * KIB, MIB, 48, 0, 16}, huge = {MIB, 4 * MIB, 32, 0, 32};
    struct rng rng = rng_seeded(5);
    pthread_t thread;
    steps(&tiny, 2000, &rng);
    steps(&mid, 400, &rng);
    steps(&large, 80, &rng);
    steps(&huge, 10, &rng);
    grow_and_shrink_one();
    (void)malloc_trim(0);
    if (pthread_create(&thread, NULL, on_another_thread, NULL) == 0) {
        CHECK(pthread_join(thread, NULL) == 0);
    }
    steps(&tiny, 1000, &rng);
    for (unsigned i = 0; i < SLOTS; i++) {
        slot_check(&slots[i]);
    }
    slots_check_overlap(slots, SLOTS);
}

/* In the child: the load under the plan, then again without failures, when nothing may fail any more. */
static int live_through_the_plan(void *unused) {
    (void)unused;
    atomic_store(&plan.is_armed, true);
    run_load();
    check_heap();
    atomic_store(&plan.is_armed, false);
    slots_clear(slots, SLOTS);
    (void)malloc_trim(0);
    check_heap();
    run_load();
    for (unsigned i = 0; i < SLOTS; i++) {
        CHECK(slots[i].block != NULL ||
              slot_fill(&slots[i], &(struct load){1, 5 * MIB, 0, 0, 0}, &(struct rng){i + 1}));
    }
    slots_clear(slots, SLOTS);
    check_heap();
    printf("%u\n", atomic_load(&plan.failed));
    fflush(stdout);
    return 0;
}

static struct child child;

/* Returns how many calls failed; 0 says that the load makes fewer than `from` of them. */
static unsigned run_plan(enum call call, int error, unsigned from, bool is_lasting) {
    plan.call = call;
    plan.error = error;
    plan.from = from;
    plan.is_lasting = is_lasting;
    child = (struct child){.function = live_through_the_plan, .timeout_s = 15};
    child_run(&child);
    if (!child_succeeded(&child)) {
        print_error("%s fails with %s, %s call %u\n", call_names[call], strerror(error),
                    is_lasting ? "from" : "at", from);
        child_report(&child);
        fail();
    }
    return (unsigned)strtoul(child.out, NULL, 10);
}

/* Every n until the load ends before the n-th call; from 8 times TEST_SCALE on in growing strides.
 */
static void fail_each(enum call call, int error) {
    unsigned runs = 0;
    for (int is_lasting = 0; is_lasting <= 1; is_lasting++) {
        unsigned from = 1;
        while (run_plan(call, error, from, is_lasting) != 0) {
            runs++;
            from += from < 8 * test_scale() ? 1 : from / 2;
        }
    }
    print_message("%s, %s: %u runs\n", call_names[call], strerror(error), runs);
}

static void mmap_may_fail(void **state) {
    (void)state;
    fail_each(CALL_MMAP, ENOMEM);
    if (test_scale() > 1) {
        fail_each(CALL_MMAP, EAGAIN);
    }
}

static void munmap_may_fail(void **state) {
    (void)state;
    fail_each(CALL_MUNMAP, ENOMEM);
}

static void mremap_may_fail(void **state) {
    (void)state;
    fail_each(CALL_MREMAP, ENOMEM);
    if (test_scale() > 1) {
        fail_each(CALL_MREMAP, EINVAL);
    }
}

static void mprotect_may_fail(void **state) {
    (void)state;
    fail_each(CALL_MPROTECT, ENOMEM);
}

static void madvise_may_fail(void **state) {
    (void)state;
    fail_each(CALL_MADVISE, EINVAL);
    if (test_scale() > 1) {
        fail_each(CALL_MADVISE, EAGAIN);
    }
}

/* Without this, failing nothing would look like surviving everything. */
static void the_calls_of_the_library_come_through_here(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_true(run_plan(CALL_MMAP, ENOMEM, 1, false) == 1);
    assert_true(run_plan(CALL_MUNMAP, ENOMEM, 1, false) == 1);
    assert_true(run_plan(CALL_MREMAP, ENOMEM, 1, false) == 1);
    assert_true(run_plan(CALL_MADVISE, ENOMEM, 1, false) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_calls_of_the_library_come_through_here),
        cmocka_unit_test(mmap_may_fail),
        cmocka_unit_test(munmap_may_fail),
        cmocka_unit_test(mremap_may_fail),
        cmocka_unit_test(mprotect_may_fail),
        cmocka_unit_test(madvise_may_fail),
    };
    return cmocka_run_group_tests_name("fault injection", tests, NULL, heap_is_sound);
}
