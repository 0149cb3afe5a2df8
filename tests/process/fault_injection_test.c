/*
 * fault_injection_test.c - every system call for memory that hakmem makes fails once, or fails from then on.
 *
 * suite: limit 900 s
 * The calls are defined here, in front of libc's: hakmem's go through them. For each call, each error and
 * each n, a child runs one and the same load of the whole API, in which the n-th such call fails (or all from
 * the n-th on). Every allocation must then be NULL with ENOMEM, or right; what was live must be intact, the
 * heap sound, and once the failures end everything must work again and nothing be lost.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/kernel.h"
#include "support/pattern.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <linux/futex.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the calls in front of libc's ---- */

enum call { CALL_MMAP, CALL_MUNMAP, CALL_MREMAP, CALL_MPROTECT, CALL_MADVISE, CALL_FUTEX, CALLS };
static const char *const call_names[CALLS + 1] = {"mmap",    "munmap", "mremap", "mprotect",
                                                  "madvise", "futex",  "nothing"};

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

/* hakmem's locks are the only ones here that wait by this function. */
long syscall(long number, ...) {
    struct arguments arguments;
    ARGUMENTS_OF(number, &arguments);
    if (number == SYS_futex && (arguments.of[1] & FUTEX_CMD_MASK) == FUTEX_WAIT && fails(CALL_FUTEX)) {
        return -1;
    }
    return kernel_with(number, &arguments);
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return fails(CALL_MMAP) ? MAP_FAILED
                            : (void *)kernel(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return mmap(address, bytes, protection, flags, fd, offset);
}

int munmap(void *address, size_t bytes) {
    return fails(CALL_MUNMAP) ? -1 : (int)kernel(SYS_munmap, address, bytes);
}

void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    void *target = va_arg(arguments, void *);
    va_end(arguments);
    return fails(CALL_MREMAP) ? MAP_FAILED
                              : (void *)kernel(SYS_mremap, address, old_bytes, new_bytes, flags, target);
}

int mprotect(void *address, size_t bytes, int protection) {
    return fails(CALL_MPROTECT) ? -1 : (int)kernel(SYS_mprotect, address, bytes, protection);
}

int madvise(void *address, size_t bytes, int advice) {
    return fails(CALL_MADVISE) ? -1 : (int)kernel(SYS_madvise, address, bytes, advice);
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

/* A block that was asked for, or not: NULL needs ENOMEM. Frees it. */
static void check_and_free(void *block, size_t align, size_t bytes) {
    if (block == NULL) {
        CHECK(errno == ENOMEM);
        return;
    }
    CHECK(((uintptr_t)launder(block) & (align - 1)) == 0 && malloc_usable_size(block) >= bytes);
    memset(block, 0x77, bytes);
    free(block);
}

/* The functions that return a block and are not among those of a slot. */
static void every_other_allocation(size_t bytes) {
    typedef void *new_like(size_t bytes, const void *tag);
    void *symbol = function_named("_ZnwmRKSt9nothrow_t"), *block = NULL;
    new_like *new_nothrow;
    memcpy(&new_nothrow, &symbol, sizeof new_nothrow);
    errno = 0;
    int error = posix_memalign(&block, 256, bytes);
    CHECK((error == 0 || error == ENOMEM) && errno == 0 && (block == NULL) == (error != 0));
    free(block);
    errno = ENOMEM;
    check_and_free(new_nothrow != NULL ? new_nothrow(bytes, "") : NULL, 16, bytes);
    errno = 0;
    check_and_free(aligned_alloc(4096, bytes), 4096, bytes);
    errno = 0;
    check_and_free(valloc(bytes), 4096, bytes);
    errno = 0;
    check_and_free(pvalloc(bytes), 4096, bytes);
    errno = 0;
    block = reallocarray(NULL, bytes, 1);
    CHECK(block != NULL || errno == ENOMEM);
    void *larger = reallocarray(block, bytes, 2);
    free(larger != NULL ? larger : block);
}

/* The questions, which may be asked at any time, and the child of a fork. */
static void every_question(void) {
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    if (hak_is_there()) {
        CHECK(hak_stats_get(&stats) == 0 && stats.live_bytes + stats.free_bytes != 0);
        CHECK(!hak_owns(&stats) && hak_good_size(100) >= 100);
    }
    CHECK(mallinfo2().uordblks != 0);
    pid_t child_id = fork();
    if (child_id == 0) {
        slots_clear(slots, SLOTS);
        every_other_allocation(5000);
        check_heap();
        _exit(0);
    }
    int status = 0;
    CHECK(child_id < 0 || (waitpid(child_id, &status, 0) == child_id && status == 0));
}

#define CONTENDERS 4u

/* Several threads that want the same locks: their waits may fail, or end without cause. */
static void *contend(void *seed) {
    for (unsigned i = 0; i < 400; i++) {
        void *block = malloc(40000 + (i * 7919 + (uintptr_t)seed) % 600000);
        CHECK(block != NULL || errno == ENOMEM);
        free(block);
    }
    return NULL;
}

static void contend_for_locks(void) {
    pthread_t threads[CONTENDERS];
    unsigned started = 0;
    while (started < CONTENDERS &&
           pthread_create(&threads[started], NULL, contend, (void *)(uintptr_t)started) == 0) {
        started++;
    }
    while (started != 0) {
        CHECK(pthread_join(threads[--started], NULL) == 0);
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
    for (size_t bytes = 20; bytes < 4 * MIB; bytes *= 13) {
        every_other_allocation(bytes);
    }
    every_question();
    contend_for_locks();
    steps(&tiny, 1000, &rng);
    for (unsigned i = 0; i < SLOTS; i++) {
        slot_check(&slots[i]);
    }
    slots_check_overlap(slots, SLOTS);
}

/* What stays with the program, and what hakmem holds when it has given back what it can. */
struct account {
    size_t live_bytes, mapped_bytes;
};

static struct account account_now(void) {
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    slots_clear(slots, SLOTS);
    (void)malloc_trim(0);
    if (hak_is_there()) {
        CHECK(hak_stats_get(&stats) == 0);
    }
    return (struct account){stats.live_bytes, stats.mapped_bytes};
}

#define LIVE_SLACK_BYTES   (16 * KIB)
#define MAPPED_SLACK_BYTES (8 * MIB)

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
    struct account after = account_now();
    check_heap();
    printf("%u %zu %zu\n", atomic_load(&plan.failed), after.live_bytes, after.mapped_bytes);
    fflush(stdout);
    return 0;
}

static struct child child;

/* What the load leaves when nothing fails. */
static struct account undisturbed;

static void check_nothing_is_lost(const struct account *after) {
    assert_true(after->live_bytes <= undisturbed.live_bytes + LIVE_SLACK_BYTES);
    /* Ranges that could not be unmapped are lost if that fails for good. */
    if (plan.call != CALL_MUNMAP) {
        assert_true(after->mapped_bytes <= undisturbed.mapped_bytes + MAPPED_SLACK_BYTES);
    }
}

/* Returns how many calls failed; 0 says that the load makes fewer than `from` of them. */
static unsigned run_plan(enum call call, int error, unsigned from, bool is_lasting) {
    plan.call = call;
    plan.error = error;
    plan.from = from;
    plan.is_lasting = is_lasting;
    child = (struct child){.function = live_through_the_plan};
    child_run(&child);
    if (!child_succeeded(&child)) {
        print_error("%s fails with %s, %s call %u\n", call_names[call], strerror(error),
                    is_lasting ? "from" : "at", from);
        child_report(&child);
        fail();
    }
    unsigned failed;
    struct account after;
    assert_int_equal(sscanf(child.out, "%u %zu %zu", &failed, &after.live_bytes, &after.mapped_bytes), 3);
    if (is_lasting || from != 0) {
        check_nothing_is_lost(&after);
    } else {
        undisturbed = after;
    }
    return failed;
}

static int run_undisturbed(void **state) {
    (void)state;
    return run_plan(CALLS, 0, 0, false) == 0 ? 0 : -1;
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

/* The first error with the quick tests, the others with all. */
static void fail_with_each(enum call call, const int *errors, size_t count) {
    for (size_t i = 0; i < (test_scale() > 1 ? count : 1); i++) {
        fail_each(call, errors[i]);
    }
}

#define FAIL_WITH_EACH(call, ...)                                                                            \
    fail_with_each(call, (const int[]){__VA_ARGS__}, COUNT_OF(((const int[]){__VA_ARGS__})))

static void mmap_may_fail(void **state) {
    (void)state;
    FAIL_WITH_EACH(CALL_MMAP, ENOMEM, EAGAIN, EPERM, EINVAL);
}

static void munmap_may_fail(void **state) {
    (void)state;
    FAIL_WITH_EACH(CALL_MUNMAP, ENOMEM, EINVAL);
}

static void mremap_may_fail(void **state) {
    (void)state;
    FAIL_WITH_EACH(CALL_MREMAP, ENOMEM, EINVAL, EAGAIN, EFAULT, EPERM);
}

static void mprotect_may_fail(void **state) {
    (void)state;
    FAIL_WITH_EACH(CALL_MPROTECT, ENOMEM, EACCES);
}

static void madvise_may_fail(void **state) {
    (void)state;
    FAIL_WITH_EACH(CALL_MADVISE, EINVAL, EAGAIN, ENOMEM, EIO, EPERM);
}

/* A wait that returns at once, or was interrupted. A wake-up cannot fail: nobody would ever hear of it. */
static void futex_may_fail(void **state) {
    (void)state;
    FAIL_WITH_EACH(CALL_FUTEX, EAGAIN, EINTR);
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
        cmocka_unit_test(futex_may_fail),
    };
    return cmocka_run_group_tests_name("fault injection", tests, run_undisturbed, heap_is_sound);
}
