/*
 * os_linux.c - the one file that makes system calls (Linux, any libc).
 *
 * Called by every floor above; calls libc's thin wrappers alone, none of which allocates. errno is saved and
 * restored, so that no caller has to think of it. Keeps the account of mapped bytes. No locks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/atomic.h"
#include "base/bits.h"
#include "os/os.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE  103
#endif

#define PROT_RW            (PROT_READ | PROT_WRITE)
#define MAP_ANON_PRIVATE   (MAP_PRIVATE | MAP_ANONYMOUS)
#define DEFAULT_PAGE_BYTES 4096u
#define FROM_KERNEL_BYTES  16u /* behind AT_RANDOM */

#define REPORT_FLAGS     (O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK)
#define REPORT_MODE      0644
#define DUPLICATE_FD_MIN 100 /* shells use descriptors below for scripts */

#define THREAD_NAME_BYTES  16u
#define THREAD_STACK_BYTES ((size_t)128 * 1024)

HAK_CONTENDED struct hak_os_counters hak_os_counters;
HAK_READ_MOSTLY _Atomic uint8_t hak_os_known_page_shift;

static void count_call(_Atomic uint64_t *counter) {
    (void)hak_atomic_add_relaxed(counter, 1); /* relaxed: a statistic, orders nothing */
}

static void account_mapped(int64_t bytes) {
    /* relaxed: a statistic, orders nothing */
    uint64_t now = hak_atomic_add_relaxed(&hak_os_counters.mapped_bytes, (uint64_t)bytes) + (uint64_t)bytes;
    uint64_t peak = hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes_peak); /* relaxed: as below */
    while (now > peak) {
        /* relaxed: a statistic, orders nothing */
        if (hak_atomic_cas_relaxed(&hak_os_counters.mapped_bytes_peak, &peak, now)) {
            return;
        }
    }
}

/* Turns a libc result into the contract's: the errno value, with errno put back as it was. */
static int errno_result(bool failed, int saved_errno) {
    int error = failed ? errno : 0;
    errno = saved_errno;
    return error;
}

static unsigned long from_kernel(unsigned long type) {
    int saved = errno;
    unsigned long value = getauxval(type);
    errno = saved;
    return value;
}

unsigned hak_os_find_page_shift(void) {
    size_t bytes = from_kernel(AT_PAGESZ);
    unsigned shift = hak_log2(bytes != 0 ? bytes : DEFAULT_PAGE_BYTES);
    hak_atomic_store_relaxed(&hak_os_known_page_shift, (uint8_t)shift); /* relaxed: as where it is read */
    return shift;
}

static int map_pages(void *hint, size_t bytes, int protection, void **out) {
    int saved = errno;
    void *address = mmap(hint, bytes, protection, MAP_ANON_PRIVATE, -1, 0);
    int error = errno_result(address == MAP_FAILED, saved);
    count_call(&hak_os_counters.map_calls);
    if (error == 0) {
        account_mapped((int64_t)bytes);
        *out = address;
    }
    return error;
}

int hak_os_map(void *hint, size_t bytes, void **out) {
    return map_pages(hint, bytes, PROT_RW, out);
}

/* Maps with room to spare and gives back what stands before and behind the aligned part. */
static int map_and_trim(size_t bytes, size_t align, int protection, void **out) {
    size_t padded_bytes;
    void *address;
    if (__builtin_add_overflow(bytes, align - hak_os_page_bytes(), &padded_bytes)) {
        return ENOMEM;
    }
    int error = map_pages(NULL, padded_bytes, protection, &address);
    if (error != 0) {
        return error;
    }
    uintptr_t start = (uintptr_t)address;
    uintptr_t aligned = hak_round_up(start, align);
    size_t lead_bytes = aligned - start;
    size_t tail_bytes = padded_bytes - lead_bytes - bytes;
    /* A trim that fails (map count exhausted) leaves unused address space mapped and accounted: harmless. */
    if (lead_bytes != 0) {
        (void)hak_os_unmap(address, lead_bytes);
    }
    if (tail_bytes != 0) {
        (void)hak_os_unmap((void *)(aligned + bytes), tail_bytes);
    }
    *out = (void *)aligned;
    return 0;
}

static int map_aligned(void *hint, size_t bytes, size_t align, int protection, void **out) {
    void *address;
    int error = map_pages(hint, bytes, protection, &address);
    if (error != 0) {
        return error;
    }
    if (hak_is_aligned((uintptr_t)address, align)) {
        *out = address;
        return 0;
    }
    (void)hak_os_unmap(address, bytes);
    return map_and_trim(bytes, align, protection, out);
}

int hak_os_map_aligned(void *hint, size_t bytes, size_t align, void **out) {
    return map_aligned(hint, bytes, align, PROT_RW, out);
}

int hak_os_reserve_aligned(size_t bytes, size_t align, void **out) {
    return map_aligned(NULL, bytes, align, PROT_NONE, out);
}

int hak_os_unmap(void *address, size_t bytes) {
    int saved = errno;
    int error = errno_result(munmap(address, bytes) != 0, saved);
    count_call(&hak_os_counters.unmap_calls);
    if (error == 0) {
        account_mapped(-(int64_t)bytes);
    }
    return error;
}

int hak_os_reserve_again(void *address, size_t bytes) {
    int saved = errno;
    void *same = mmap(address, bytes, PROT_NONE, MAP_ANON_PRIVATE | MAP_FIXED, -1, 0);
    count_call(&hak_os_counters.map_calls);
    return errno_result(same == MAP_FAILED, saved);
}

static int protect(void *address, size_t bytes, int protection) {
    int saved = errno;
    count_call(&hak_os_counters.protect_calls);
    return errno_result(mprotect(address, bytes, protection) != 0, saved);
}

int hak_os_allow(void *address, size_t bytes) {
    return protect(address, bytes, PROT_RW);
}

int hak_os_freeze(void *address, size_t bytes) {
    return protect(address, bytes, PROT_READ);
}

int hak_os_forbid(void *address, size_t bytes) {
    return protect(address, bytes, PROT_NONE);
}

static int advise(void *address, size_t bytes, int advice) {
    int saved = errno;
    return errno_result(madvise(address, bytes, advice) != 0, saved);
}

int hak_os_purge(void *address, size_t bytes) {
    count_call(&hak_os_counters.purge_calls);
    return advise(address, bytes, MADV_DONTNEED);
}

int hak_os_advise_huge(void *address, size_t bytes, bool may_be_huge) {
    return advise(address, bytes, may_be_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

int hak_os_guard(void *address, size_t bytes) {
    count_call(&hak_os_counters.purge_calls);
    return advise(address, bytes, MADV_GUARD_INSTALL);
}

int hak_os_unguard(void *address, size_t bytes) {
    return advise(address, bytes, MADV_GUARD_REMOVE);
}

int hak_os_populate(void *address, size_t bytes) {
    return advise(address, bytes, MADV_POPULATE_WRITE);
}

static int remap(void *address, size_t old_bytes, size_t new_bytes, int flags, void *target, void **out) {
    int saved = errno;
    void *moved = mremap(address, old_bytes, new_bytes, flags, target);
    int error = errno_result(moved == MAP_FAILED, saved);
    count_call(&hak_os_counters.remap_calls);
    if (error == 0) {
        *out = moved;
    }
    return error;
}

/*
 * MREMAP_FIXED unmaps the target before its last checks: after a failure but EINVAL another thread may have
 * it. What the process has more of afterwards is asked of its limits first, when a refusal leaves the target
 * as it was.
 */
static int move_to(void *from, size_t old_bytes, char *target, size_t new_bytes, bool old_stays) {
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (old_stays ? MREMAP_DONTUNMAP : 0);
    size_t freed_bytes = old_stays ? 0 : old_bytes;
    size_t more_bytes = new_bytes > freed_bytes ? new_bytes - freed_bytes : 0;
    void *moved;
    int error = more_bytes == 0 ? 0 : hak_os_allow(target + new_bytes - more_bytes, more_bytes);
    if (error == 0) {
        error = remap(from, old_bytes, new_bytes, flags, target, &moved);
        if (error != EINVAL) { /* the target was accounted for when it was reserved */
            account_mapped(-(int64_t)(error == 0 ? freed_bytes : new_bytes));
            return error;
        }
    }
    (void)hak_os_unmap(target, new_bytes);
    return error;
}

int hak_os_move(void *address, size_t old_bytes, void *target, size_t new_bytes) {
    return move_to(address, old_bytes, target, new_bytes, false);
}

int hak_os_move_pages(void *address, size_t bytes, void *target) {
    return move_to(address, bytes, target, bytes, true);
}

int hak_os_resize(void *address, size_t old_bytes, size_t new_bytes) {
    void *same;
    int error = remap(address, old_bytes, new_bytes, 0, NULL, &same);
    if (error == 0) {
        account_mapped((int64_t)new_bytes - (int64_t)old_bytes);
    }
    return error;
}

int hak_os_detach(void *address, size_t bytes, void **out) {
    int error = remap(address, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL, out);
    if (error == 0) {
        account_mapped((int64_t)bytes);
    }
    return error;
}

int hak_os_resident(void *address, size_t bytes, size_t *out_bytes) {
    unsigned char pages[256];
    size_t page_bytes = hak_os_page_bytes();
    size_t resident_bytes = 0;
    int saved = errno;
    for (size_t offset = 0; offset < bytes;) {
        size_t step = hak_smaller(bytes - offset, sizeof pages * page_bytes);
        if (mincore((char *)address + offset, step, pages) != 0) {
            return errno_result(true, saved);
        }
        for (size_t i = 0; i < (step + page_bytes - 1) / page_bytes; i++) {
            resident_bytes += (pages[i] & 1) ? page_bytes : 0;
        }
        offset += step;
    }
    *out_bytes = resident_bytes;
    return 0;
}

static bool read_clock(clockid_t clock, struct timespec *now) {
    int saved = errno;
    bool is_read = clock_gettime(clock, now) == 0;
    errno = saved;
    return is_read;
}

uint64_t hak_os_now_ns(void) {
    struct timespec now;
    return read_clock(CLOCK_MONOTONIC, &now) ? (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec : 0;
}

uint64_t hak_os_now_ms(void) {
    struct timespec now;
    return read_clock(CLOCK_MONOTONIC_COARSE, &now)
               ? (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u
               : 0;
}

void hak_os_write(int fd, const char *text, size_t bytes) {
    int saved = errno;
    while (bytes != 0) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            break;
        }
        text += written;
        bytes -= (size_t)written;
    }
    errno = saved;
}

int hak_os_open_report(const char *path, int *fd) {
    int saved = errno;
    *fd = open(path, REPORT_FLAGS, REPORT_MODE);
    return errno_result(*fd < 0, saved);
}

int hak_os_read_file(const char *path, char *out, size_t bytes, size_t *used_bytes) {
    int saved = errno;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t got = fd < 0 ? -1 : read(fd, out, bytes);
    int error = errno_result(got < 0, saved);
    if (fd >= 0) {
        hak_os_close(fd);
    }
    *used_bytes = got < 0 ? 0 : (size_t)got;
    return error;
}

int hak_os_duplicate(int fd, int *duplicate) {
    int saved = errno;
    *duplicate = fcntl(fd, F_DUPFD_CLOEXEC, DUPLICATE_FD_MIN);
    return errno_result(*duplicate < 0, saved);
}

int hak_os_identify(int fd, struct hak_os_file *file) {
    struct stat status;
    int saved = errno;
    int error = errno_result(fstat(fd, &status) != 0, saved);
    if (error == 0) {
        *file = (struct hak_os_file){.device = status.st_dev, .inode = status.st_ino};
    }
    return error;
}

void hak_os_close(int fd) {
    int saved = errno;
    (void)close(fd);
    errno = saved;
}

uint64_t hak_os_process_id(void) {
    return (uint64_t)getpid();
}

static int futex(const void *word, int operation, uint32_t value, const struct timespec *time) {
    int saved = errno;
    return errno_result(syscall(SYS_futex, word, operation, value, time, NULL, 0) < 0, saved);
}

void hak_os_futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    (void)futex(word, FUTEX_WAIT_PRIVATE, expected, NULL);
}

void hak_os_futex_wake(_Atomic uint32_t *word, unsigned count) {
    (void)futex(word, FUTEX_WAKE_PRIVATE, count, NULL);
}

void hak_os_sleep_ms(uint32_t ms) {
    static _Atomic uint32_t never;
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)futex(&never, FUTEX_WAIT_PRIVATE, 0, &time);
}

bool hak_os_is_readable(const uint32_t *word) {
    int error = futex(word, FUTEX_WAIT_PRIVATE, 0, &(const struct timespec){.tv_sec = 0});
    return error == EAGAIN || error == ETIMEDOUT || error == EINTR;
}

int hak_os_start_thread(const char *name, void *(*run)(void *)) {
    char old_name[THREAD_NAME_BYTES];
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int saved = errno;
    int error = pthread_attr_init(&attributes);
    if (error != 0) {
        return error;
    }
    (void)pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    /* Signals and name are inherited, so that the thread has them from its first instruction on. */
    bool is_renamed = prctl(PR_GET_NAME, old_name) == 0 && prctl(PR_SET_NAME, name) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, run, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (is_renamed) {
        (void)prctl(PR_SET_NAME, old_name);
    }
    (void)pthread_attr_destroy(&attributes);
    errno = saved;
    return error;
}

uintptr_t hak_os_program_entry(void) {
    return from_kernel(AT_ENTRY);
}

int hak_os_signal_action(int signal, const struct sigaction *action, struct sigaction *old) {
    int saved = errno;
    return errno_result(sigaction(signal, action, old) != 0, saved);
}

void hak_os_raise(int signal) {
    int saved = errno;
    (void)raise(signal);
    errno = saved;
}

bool hak_os_is_secure(void) {
    return from_kernel(AT_SECURE) != 0;
}

void hak_os_random(void *bytes, size_t count) {
    int saved = errno;
    if (syscall(SYS_getrandom, bytes, count, 0) != (long)count) {
        const char *given = (const char *)from_kernel(AT_RANDOM);
        for (size_t i = 0; i < count && given != NULL; i++) {
            ((char *)bytes)[i] = given[i % FROM_KERNEL_BYTES];
        }
    }
    errno = saved;
}
