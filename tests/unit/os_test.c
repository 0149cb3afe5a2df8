/*
 * os_test.c - the os floor: mappings and their account, locks, the lines that end a program.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/assert.h"
#include "base/atomic.h"
#include "os/fatal.h"
#include "os/lock.h"
#include "os/os.h"
#include "support/child.h"
#include "support/test.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

static uint64_t mapped_bytes(void) {
    return hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes); /* relaxed: one thread */
}

static unsigned questions; /* to the system, about itself */

extern unsigned long __getauxval(unsigned long type);

/* Called before main by hakmem's first allocation. */
unsigned long getauxval(unsigned long type) {
    questions++;
    return __getauxval(type);
}

static int64_t clock_ahead_s = 1000000;

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += clock_ahead_s;
    return result;
}

/* By a library that pretends another time, say. */
static void a_clock_that_is_set_back_goes_on(void **state) {
    (void)state;
    uint64_t start_ms = hak_os_now_ms();
    uint64_t start_ns = hak_os_now_ns();
    for (unsigned i = 0; i < 3; i++) {
        clock_ahead_s -= 100000;
        assert_in_range(hak_os_now_ms() - start_ms, 0, 10000);
        assert_in_range(hak_os_now_ns() - start_ns, 0, 10000000000);
    }
    clock_ahead_s += 100;
    assert_in_range(hak_os_now_ms() - start_ms, 100000, 110000);
    assert_in_range(hak_os_now_ns() - start_ns, 100000000000, 110000000000);
}

static void the_size_of_an_os_page_is_asked_for_once(void **state) {
    (void)state;
    size_t bytes = hak_os_page_bytes();
    unsigned before = questions;
    assert_int_equal(bytes, (size_t)sysconf(_SC_PAGESIZE));
    questions = before; /* the C library may have asked */
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(hak_os_page_bytes(), bytes);
    }
    assert_int_equal(questions, before);
}

static void aligned_mappings_are_aligned_zero_and_accounted(void **state) {
    (void)state;
    for (size_t align = hak_os_page_bytes(); align <= 64 * MIB; align *= 4) {
        uint64_t before_bytes = mapped_bytes();
        size_t bytes = 3 * hak_os_page_bytes();
        void *address;
        assert_int_equal(hak_os_map_aligned(NULL, bytes, align, &address), 0);
        assert_int_equal((uintptr_t)address % align, 0);
        assert_int_equal(mapped_bytes() - before_bytes, bytes);
        assert_int_equal(((char *)address)[bytes - 1], 0);
        memset(address, 1, bytes);
        assert_int_equal(hak_os_purge(address, bytes), 0);
        assert_int_equal(((char *)address)[0], 0);
        assert_int_equal(hak_os_unmap(address, bytes), 0);
        assert_int_equal(mapped_bytes(), before_bytes);
    }
}

static void failures_are_returned_and_errno_is_kept(void **state) {
    (void)state;
    void *address;
    errno = 7;
    assert_int_equal(hak_os_map(NULL, (size_t)1 << 60, &address), ENOMEM);
    assert_int_equal(hak_os_map_aligned(NULL, SIZE_MAX - 4095, MIB, &address), ENOMEM);
    assert_int_not_equal(hak_os_unmap((void *)1, 4096), 0);
    assert_int_not_equal(hak_os_purge((void *)1, 4096), 0);
    size_t resident_bytes;
    assert_int_equal(hak_os_resident((void *)(16 * hak_os_page_bytes()), 4096, &resident_bytes), ENOMEM);
    assert_int_not_equal(hak_os_populate((void *)(16 * hak_os_page_bytes()), 4096), 0);
    hak_os_write(-1, "text", 4);
    assert_int_equal(errno, 7);
}

/* Twice what the machine has: as address space it is free, as memory the kernel refuses it. */
static void reserved_memory_is_charged_when_it_is_allowed(void **state) {
    (void)state;
    char mode = '0';
    size_t used_bytes;
    (void)hak_os_read_file("/proc/sys/vm/overcommit_memory", &mode, 1, &used_bytes);
    if (mode == '1') {
        SKIP_BECAUSE("the kernel refuses no size: vm.overcommit_memory is 1");
    }
    struct sysinfo machine;
    assert_int_equal(sysinfo(&machine), 0);
    size_t bytes = hak_os_page_round((machine.totalram + machine.totalswap) * (size_t)machine.mem_unit * 2);
    size_t page_bytes = hak_os_page_bytes();
    void *address;
    assert_int_equal(hak_os_reserve_aligned(bytes, page_bytes, &address), 0);
    assert_int_equal(hak_os_allow(address, bytes), ENOMEM);
    assert_int_equal(hak_os_allow(address, page_bytes), 0);
    assert_int_equal(hak_os_reserve_again(address, page_bytes), 0);
    assert_int_equal(hak_os_allow(address, bytes), ENOMEM);
    assert_int_equal(hak_os_unmap(address, bytes), 0);
}

/* Asked for without a fault, whatever the word holds. */
static void what_may_be_read_is_told(void **state) {
    (void)state;
    size_t bytes = hak_os_page_bytes();
    char *pages;
    assert_int_equal(hak_os_map(NULL, 3 * bytes, (void **)&pages), 0);
    uint32_t *zero = (uint32_t *)(void *)pages;
    uint32_t *one = zero + 1;
    *one = 1;
    errno = 7;
    assert_true(hak_os_is_readable(zero));
    assert_true(hak_os_is_readable(one));
    assert_int_equal(hak_os_freeze(pages, bytes), 0);
    assert_true(hak_os_is_readable(one));
    assert_true(hak_os_is_readable((uint32_t *)(void *)(pages + 2 * bytes)));
    assert_int_equal(hak_os_forbid(pages + bytes, bytes), 0);
    assert_false(hak_os_is_readable((uint32_t *)(void *)(pages + bytes)));
    assert_int_equal(hak_os_unmap(pages, 3 * bytes), 0);
    assert_false(hak_os_is_readable(one));
    assert_false(hak_os_is_readable(NULL));
    assert_false(hak_os_is_readable((uint32_t *)(UINTPTR_MAX - 3)));
    assert_false(hak_os_is_readable((uint32_t *)((uintptr_t)1 << 63)));
    assert_int_equal(errno, 7);
}

static void detaching_leaves_zeros_and_moving_keeps_contents(void **state) {
    (void)state;
    size_t bytes = 4 * hak_os_page_bytes();
    void *source, *detached, *target;
    assert_int_equal(hak_os_map(NULL, bytes, &source), 0);
    memset(source, 5, bytes);
    uint64_t before_bytes = mapped_bytes();
    assert_int_equal(hak_os_detach(source, bytes, &detached), 0);
    assert_int_equal(mapped_bytes() - before_bytes, bytes);
    assert_int_equal(((char *)source)[0], 0);
    assert_int_equal(((char *)detached)[bytes - 1], 5);
    assert_int_equal(hak_os_reserve_aligned(2 * bytes, 64 * 1024, &target), 0);
    assert_int_equal(hak_os_move(detached, bytes, target, 2 * bytes), 0);
    assert_int_equal(((char *)target)[bytes - 1], 5);
    assert_int_equal(((char *)target)[2 * bytes - 1], 0);
    assert_int_equal(hak_os_unmap(target, 2 * bytes), 0);
    assert_int_equal(hak_os_unmap(source, bytes), 0);
    assert_int_equal(mapped_bytes(), before_bytes - bytes);
}

/* Refuses all memory but what there is. */
static void limit_data(bool is_limited) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_DATA, &limit) == 0);
    limit.rlim_cur = is_limited ? 1 : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
}

static bool is_mapped(void *address) {
    size_t resident_bytes;
    return hak_os_resident(address, hak_os_page_bytes(), &resident_bytes) == 0;
}

/* The kernel would unmap the target first and refuse then, when another thread may have it. */
static void a_limit_refuses_a_move_while_the_target_is_there(void **state) {
    (void)state;
    size_t bytes = 4 * hak_os_page_bytes();
    void *source, *target;
    assert_int_equal(hak_os_map(NULL, bytes, &source), 0);
    memset(source, 5, bytes);
    uint64_t before_bytes = mapped_bytes();
    for (unsigned grows = 0; grows <= 1; grows++) {
        assert_int_equal(hak_os_reserve_aligned(2 * bytes, 64 * 1024, &target), 0);
        /* relaxed: one thread */
        uint64_t calls = hak_atomic_load_relaxed(&hak_os_counters.remap_calls);
        limit_data(true);
        int error =
            grows ? hak_os_move(source, bytes, target, 2 * bytes) : hak_os_move_pages(source, bytes, target);
        limit_data(false);
        assert_int_equal(error, ENOMEM);
        assert_int_equal(hak_atomic_load_relaxed(&hak_os_counters.remap_calls),
                         calls); /* relaxed: as above */
        assert_int_equal(((char *)source)[bytes - 1], 5);
        assert_false(is_mapped(target));
        if (!grows) {
            assert_true(is_mapped((char *)target + bytes));
            assert_int_equal(hak_os_unmap((char *)target + bytes, bytes), 0);
        }
        assert_int_equal(mapped_bytes(), before_bytes);
    }
    /* What needs no more than there was is moved. */
    assert_int_equal(hak_os_reserve_aligned(bytes, 64 * 1024, &target), 0);
    limit_data(true);
    int error = hak_os_move(source, bytes, target, bytes);
    limit_data(false);
    assert_int_equal(error, 0);
    assert_int_equal(((char *)target)[bytes - 1], 5);
    assert_int_equal(hak_os_unmap(target, bytes), 0);
}

#define LOCKERS 4u
#define ROUNDS  50000u

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_LARGE);
static unsigned long guarded;

static void *add_under_lock(void *unused) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        hak_lock_acquire(&lock);
        guarded++;
        hak_lock_release(&lock);
    }
    return unused;
}

static void locks_exclude_each_other(void **state) {
    (void)state;
    pthread_t threads[LOCKERS];
    guarded = 0;
    for (unsigned i = 0; i < LOCKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add_under_lock, NULL), 0);
    }
    for (unsigned i = 0; i < LOCKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(guarded, LOCKERS * ROUNDS);
}

static void the_forking_thread_passes_through_locks(void **state) {
    (void)state;
    hak_lock_fork_take(&lock);
    hak_lock_fork_begin();
    hak_lock_acquire(&lock);
    hak_lock_release(&lock);
    assert_int_not_equal(hak_atomic_load_relaxed(&lock.state), 0); /* relaxed: one thread */
    hak_lock_fork_end();
    hak_lock_fork_give(&lock);
    assert_int_equal(hak_atomic_load_relaxed(&lock.state), 0); /* relaxed: one thread */
}

static int die_of_double_free(void *unused) {
    (void)unused;
    hak_fatal_pointer("free", HAK_FAULT_DOUBLE_FREE, (void *)0x1230, 64);
}

static int die_of_foreign_pointer(void *unused) {
    (void)unused;
    hak_fatal_pointer("realloc", HAK_FAULT_NOT_OURS, (void *)0xabc0, 0);
}

static int die_of_text(void *unused) {
    (void)unused;
    hak_fatal_text("out of luck");
}

static int die_of_assertion(void *unused) {
    (void)unused;
    hak_assert_failed("1 == 2", "floor/file.c", 1234);
}

/* The child ends by SIGABRT, and what it wrote to stderr is exactly `line`. */
static void assert_dies_with(int (*die)(void *), const char *line) {
    static struct child child;
    child = (struct child){.function = die};
    child_run(&child);
    assert_int_equal(child_signal(&child), SIGABRT);
    assert_string_equal(child.err, line);
}

static void fatal_lines_name_function_fault_pointer_and_size(void **state) {
    (void)state;
    assert_dies_with(die_of_double_free, "hakmem: free(): double free of 0x1230, 64-byte block\n");
    assert_dies_with(die_of_foreign_pointer, "hakmem: realloc(): pointer not from this heap 0xabc0\n");
    assert_dies_with(die_of_text, "hakmem: out of luck\n");
    assert_dies_with(die_of_assertion, "hakmem: assertion failed: 1 == 2 (floor/file.c:1234)\n");
}

static int ask_on_one_processor(void *unused) {
    (void)unused;
    cpu_set_t mine, one;
    CHECK(sched_getaffinity(0, sizeof mine, &mine) == 0);
    CHECK(hak_os_processors() == (unsigned)CPU_COUNT(&mine));
    CPU_ZERO(&one);
    for (unsigned i = 0; CPU_COUNT(&one) == 0; i++) {
        if (CPU_ISSET(i, &mine)) {
            CPU_SET(i, &one);
        }
    }
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    return hak_os_processors() == 1 ? 0 : 1;
}

static void those_processors_count_that_the_process_may_run_on(void **state) {
    (void)state;
    assert_function_succeeds(ask_on_one_processor);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_size_of_an_os_page_is_asked_for_once),
        cmocka_unit_test(a_clock_that_is_set_back_goes_on),
        cmocka_unit_test(aligned_mappings_are_aligned_zero_and_accounted),
        cmocka_unit_test(failures_are_returned_and_errno_is_kept),
        cmocka_unit_test(reserved_memory_is_charged_when_it_is_allowed),
        cmocka_unit_test(what_may_be_read_is_told),
        cmocka_unit_test(detaching_leaves_zeros_and_moving_keeps_contents),
        cmocka_unit_test(a_limit_refuses_a_move_while_the_target_is_there),
        cmocka_unit_test(locks_exclude_each_other),
        cmocka_unit_test(the_forking_thread_passes_through_locks),
        cmocka_unit_test(fatal_lines_name_function_fault_pointer_and_size),
        cmocka_unit_test(those_processors_count_that_the_process_may_run_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
