/*
 * large_kit.h - what the suites of the large floor share: system calls that fail on demand, a clock that
 * tests set, an OS page size of choice, and short names for blocks.
 *
 * Included once by each suite, since it defines mmap and its like: the archive calls these definitions.
 */
#ifndef HAK_TESTS_UNIT_LARGE_KIT_H
#define HAK_TESTS_UNIT_LARGE_KIT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/atomic.h"
#include "large/large.h"
#include "large/run.h"
#include "os/os.h"
#include "support/child.h"
#include "support/pattern.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- the OS page ---- */

#define PAGE_VARIABLE "TEST_OS_PAGE_BYTES="

extern unsigned long __getauxval(unsigned long type);

/* Called before main by hakmem's first allocation, so it reads the environment by itself. */
unsigned long getauxval(unsigned long type) {
    for (char **entry = environ; type == AT_PAGESZ && entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, PAGE_VARIABLE, sizeof PAGE_VARIABLE - 1) == 0) {
            return strtoul(*entry + sizeof PAGE_VARIABLE - 1, NULL, 10);
        }
    }
    return __getauxval(type);
}

/* Runs this whole suite again with another OS page size, if the flavour asks for it; the suite leaves out
 * what needs the real one. */
static inline void run_with_pages(const char *setting) {
    REQUIRE_PAGE_BYTES();
    static struct child child;
    child = (struct child){.program = own_path(), .environment = {setting}};
    child_run(&child);
    assert_child_succeeded(&child);
}

static inline bool has_real_pages(void) {
    return hak_os_page_bytes() == (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- system calls ---- */

/* Calls of a test with faults are counted from 1. Only the thread of the test makes any then. */
static struct {
    bool is_armed;
    unsigned calls;
    unsigned fail_first, fail_last; /* these fail */
    bool is_unmapping_refused;      /* as when the kernel's limit of maps is reached */
    char *locked[8];                /* no range with one of these bytes can be purged */
} os_faults;

static inline bool call_fails(void) {
    if (!os_faults.is_armed) {
        return false;
    }
    os_faults.calls++;
    if (os_faults.calls >= os_faults.fail_first && os_faults.calls <= os_faults.fail_last) {
        errno = ENOMEM;
        return true;
    }
    return false;
}

/* Where the next mapping of at least 1 MiB is to lie whose place hakmem leaves to the kernel; NULL: there. */
static void *next_place;

static inline void *place_for(void *address, size_t bytes) {
    void *place = next_place;
    if (address != NULL || bytes < MIB || place == NULL) {
        return address;
    }
    next_place = NULL;
    return place;
}

/* A kernel with larger OS pages would never return an address between two of them. */
static inline void *map_between_large_pages(void *address, size_t bytes, int protection, int flags) {
    size_t page_bytes = hak_os_page_bytes();
    char *start = (char *)syscall(SYS_mmap, address, bytes + page_bytes, protection, flags, -1, 0);
    if (start == MAP_FAILED) {
        return start;
    }
    size_t lead_bytes = -(uintptr_t)start % page_bytes;
    if (lead_bytes != 0) {
        syscall(SYS_munmap, start, lead_bytes);
    }
    syscall(SYS_munmap, start + lead_bytes + bytes, page_bytes - lead_bytes);
    return start + lead_bytes;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (call_fails()) {
        return MAP_FAILED;
    }
    address = place_for(address, bytes);
    if (fd == -1 && !has_real_pages()) {
        return map_between_large_pages(address, bytes, protection, flags);
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

int munmap(void *address, size_t bytes) {
    if (os_faults.is_unmapping_refused) {
        errno = ENOMEM;
        return -1;
    }
    return call_fails() ? -1 : (int)syscall(SYS_munmap, address, bytes);
}

/* libc's, which says so at the start: false in these tests, others are there, one of which has what
 * take_target() maps. */
char __libc_single_threaded;

/* Linux unmaps the target of a move before its last checks. So where one fails here, that range is another
 * thread's at once: this one. */
static struct {
    char *start; /* NULL: none failed */
    size_t bytes;
} taken;

static inline void take_target(char *target, size_t bytes) {
    int error = errno;
    CHECK(taken.start == NULL);
    long mapped = syscall(SYS_mmap, target, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    CHECK(mapped == (long)target);
    target[0] = target[bytes - 1] = 'T';
    taken.start = target;
    taken.bytes = bytes;
    errno = error;
}

/* Whether nobody has touched that range, if there is one; gives it back. */
static inline bool taken_holds(void) {
    unsigned char is_resident;
    char *end = taken.start + taken.bytes - 1;
    char *last_page = end - ((uintptr_t)end & 4095);
    bool holds = taken.start == NULL ||
                 (mincore(taken.start, 1, &is_resident) == 0 && mincore(last_page, 1, &is_resident) == 0 &&
                  taken.start[0] == 'T' && *end == 'T' && syscall(SYS_munmap, taken.start, taken.bytes) == 0);
    taken.start = NULL;
    return holds;
}

void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *target = va_arg(rest, void *);
    va_end(rest);
    if (!call_fails()) {
        return (void *)syscall(SYS_mremap, address, old_bytes, new_bytes, flags, target);
    }
    if ((flags & MREMAP_FIXED) != 0) {
        take_target(target, new_bytes);
    }
    return MAP_FAILED;
}

static inline bool has_locked(const char *address, size_t bytes) {
    for (unsigned i = 0; i < COUNT_OF(os_faults.locked); i++) {
        const char *locked = os_faults.locked[i];
        if (locked != NULL && address <= locked && locked < address + bytes) {
            return true;
        }
    }
    return false;
}

int madvise(void *address, size_t bytes, int advice) {
    if (advice == MADV_DONTNEED && has_locked(address, bytes)) {
        errno = EINVAL;
        return -1;
    }
    return call_fails() ? -1 : (int)syscall(SYS_madvise, address, bytes, advice);
}

int mprotect(void *address, size_t bytes, int protection) {
    return call_fails() ? -1 : (int)syscall(SYS_mprotect, address, bytes, protection);
}

static inline void arm_faults(unsigned first, unsigned last) {
    os_faults.calls = 0;
    os_faults.fail_first = first;
    os_faults.fail_last = last;
    os_faults.is_armed = true;
}

static inline unsigned disarm_faults(void) {
    os_faults.is_armed = false;
    return os_faults.calls;
}

/* System calls for memory so far. */
static inline uint64_t memory_calls(void) {
    /* relaxed: one thread */
    return hak_atomic_load_relaxed(&hak_os_counters.map_calls) +
           hak_atomic_load_relaxed(&hak_os_counters.unmap_calls) + /* relaxed: as above */
           hak_atomic_load_relaxed(&hak_os_counters.purge_calls) + /* relaxed: as above */
           hak_atomic_load_relaxed(&hak_os_counters.remap_calls);  /* relaxed: as above */
}

static inline long page_faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

/* ---- time ---- */

static uint64_t clock_ahead_ms;

/* hakmem's clock, the coarse one, stands still but for what a test sets it forward. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_MONOTONIC_COARSE) {
        return (int)syscall(SYS_clock_gettime, clock, now);
    }
    now->tv_sec = 1000 + (time_t)(clock_ahead_ms / 1000);
    now->tv_nsec = (long)(clock_ahead_ms % 1000) * 1000000;
    return 0;
}

/* ---- blocks ---- */

static inline hak_word word_of(const void *p) {
    return hak_registry_word(p);
}

static inline char *alloc(size_t bytes) {
    bool is_zero;
    return hak_large_alloc(bytes, 16, &is_zero);
}

static inline char *must_alloc(size_t bytes) {
    char *p = alloc(bytes);
    CHECK(p != NULL);
    return p;
}

static inline void release(void *p) {
    hak_large_free("free", p, word_of(p));
}

static inline char *resize(void *p, size_t bytes) {
    return hak_large_realloc("realloc", p, word_of(p), bytes);
}

static inline size_t usable(const void *p) {
    return hak_large_usable("malloc_usable_size", p, word_of(p));
}

static inline void check_sound(void) {
    const char *why;
    if (!hak_large_verify(&why)) {
        check_failed(why, __FILE__, __LINE__);
    }
}

static size_t live_at_start; /* blocks that are not the test's: the test library's, the C library's */

static inline void set_parking(size_t bytes_max) {
    /* relaxed: one thread */
    hak_atomic_store_relaxed(&hak_large_policy.parked_bytes_max, bytes_max);
}

/* No free memory is left, nothing is remembered of earlier tests, no run is parked. For cmocka's setup. */
static inline int start_clean(void **state) {
    (void)state;
    __libc_single_threaded = 0;
    set_parking(0);
    clock_ahead_ms += 3600u * 1000u;
    (void)hak_large_trim(0);
    check_sound();
    live_at_start = hak_large_count().live_blocks;
    return 0;
}

/* Operations that pay off what a large free left above the floor. */
static inline void pay_debts(void) {
    for (unsigned i = 0; i < 64; i++) {
        hak_large_pay_debt();
    }
}

/* The test has freed all that it allocated. */
static inline void check_all_freed(void) {
    check_sound();
    CHECK(taken_holds());
    CHECK(hak_large_count().live_blocks == live_at_start);
}

/* ---- fatal lines ---- */

struct fault_case {
    int (*commit)(void *context);
    const char *function;
    const char *fault;
};

/* The child of a fault case writes the pointer and the size of the block that the line must name. */
static inline void announce(const void *pointer, size_t bytes) {
    char line[64];
    int length = snprintf(line, sizeof line, "%#zx %zu\n", (size_t)pointer, bytes);
    CHECK(write(STDOUT_FILENO, line, (size_t)length) == length);
}

/* Runs `commit` in a child, which must end by abort() and this one line. */
static inline void assert_fatal(int (*commit)(void *context), const char *function, const char *fault) {
    static struct child child;
    size_t pointer, bytes;
    char expected[256];
    child = (struct child){.function = commit};
    child_run(&child);
    assert_int_equal(child_signal(&child), 6);
    if (sscanf(child.out, "%zx %zu", &pointer, &bytes) != 2) {
        fail_msg("it ended too soon: %s", child.err);
    }
    int used = snprintf(expected, sizeof expected, "hakmem: %s(): %s %#zx", function, fault, pointer);
    if (bytes != 0) {
        used += snprintf(expected + used, sizeof expected - (size_t)used, ", %zu-byte block", bytes);
    }
    snprintf(expected + used, sizeof expected - (size_t)used, "\n");
    assert_string_equal(child.err, expected);
}

#endif
