/*
 * os_linux.c - the kernel's calls that are not for memory: clocks, files, futexes, signals, the helper thread
 * (Linux, any libc). memory_linux.c has the others; no further file makes system calls.
 *
 * Called by every floor above; calls libc's thin wrappers alone, none of which allocates. What the
 * constructor needs that a program may have a function of its own for goes by syscall(): a program's
 * sanitizer stands before open() and fstat(), and is not ready when libraries start. errno is saved and
 * restored, so that no caller has to think of it. No locks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/atomic.h"
#include "base/bits.h"
#include "os/errno_kept.h"
#include "os/os.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_PAGE_BYTES 4096u
#define FROM_KERNEL_BYTES  16u /* behind AT_RANDOM */
#define PROCESSORS_MAX     1024u

#define REPORT_FLAGS     (O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK)
#define REPORT_MODE      0644
#define DUPLICATE_FD_MIN 100 /* shells use descriptors below for scripts */

/* How often what the clock said is noted; and how much less it has to say to have been set back. */
#define CLOCK_SEEN_MS 100u
#define CLOCK_BACK_MS 10000u

#define THREAD_NAME_BYTES  16u
#define THREAD_STACK_BYTES ((size_t)128 * 1024)

HAK_READ_MOSTLY _Atomic uint8_t hak_os_known_page_shift;

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

static size_t limit_of(int resource) {
    struct rlimit limit;
    bool is_limited = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return is_limited ? limit.rlim_cur : SIZE_MAX;
}

size_t hak_os_mapped_limit(void) {
    return limit_of(RLIMIT_AS);
}

size_t hak_os_space_limit(void) {
    return hak_smaller(hak_os_mapped_limit(), limit_of(RLIMIT_DATA));
}

/* The C library's wrapper for it lies on pages that few programs need. */
HAK_AT_START unsigned hak_os_processors(void) {
    int saved = errno;
    uint64_t mask[PROCESSORS_MAX / 64];
    long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    bool is_too_small = bytes < 0 && errno == EINVAL; /* for all that the kernel is made for */
    errno = saved;
    if (bytes < 0) {
        return is_too_small ? PROCESSORS_MAX : 1;
    }
    unsigned processors = 0;
    for (size_t i = 0; i < (size_t)bytes / sizeof mask[0]; i++) {
        processors += hak_popcount64(mask[i]);
    }
    return processors != 0 ? processors : 1;
}

static bool read_clock(clockid_t clock, struct timespec *now) {
    int saved = errno;
    bool is_read = clock_gettime(clock, now) == 0;
    errno = saved;
    return is_read;
}

/*
 * A clock that was set back, as libraries that pretend another time do and a checkpoint that is restored on
 * another machine, goes on from where it was: else nothing would age until it comes there again. Who looked
 * at it long before he asks here makes it leap, which does no harm.
 */
static struct {
    _Atomic uint64_t seen_ms;   /* of the clock, CLOCK_SEEN_MS ago at most */
    _Atomic uint64_t behind_ms; /* by how much it was set back, in all */
} clock_so_far;

static uint64_t behind_ms(uint64_t now_ms) {
    uint64_t seen_ms = hak_atomic_load_relaxed(&clock_so_far.seen_ms); /* relaxed: a number by itself */
    if (now_ms >= seen_ms + CLOCK_SEEN_MS) {
        hak_atomic_store_relaxed(&clock_so_far.seen_ms, now_ms); /* relaxed: the same */
    } else if (now_ms + CLOCK_BACK_MS < seen_ms &&
               /* relaxed: the same */
               hak_atomic_cas_relaxed(&clock_so_far.seen_ms, &seen_ms, now_ms)) {
        /* relaxed: who misses it asks for a time that is past, once */
        (void)hak_atomic_add_relaxed(&clock_so_far.behind_ms, seen_ms - now_ms);
    }
    return hak_atomic_load_relaxed(&clock_so_far.behind_ms); /* relaxed: the same */
}

uint64_t hak_os_now_ns(void) {
    struct timespec now;
    if (!read_clock(CLOCK_MONOTONIC, &now)) {
        return 0;
    }
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return now_ns + behind_ms(now_ns / 1000000u) * 1000000u;
}

uint64_t hak_os_now_ms(void) {
    struct timespec now;
    if (!read_clock(CLOCK_MONOTONIC_COARSE, &now)) {
        return 0;
    }
    uint64_t now_ms = (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
    return now_ms + behind_ms(now_ms);
}

/* By syscall(): write(), open() and close() are points at which a thread that was cancelled would end, in the
 * middle of a report that is to end the process. */
void hak_os_write(int fd, const char *text, size_t bytes) {
    int saved = errno;
    while (bytes != 0) {
        ssize_t written = syscall(SYS_write, fd, text, bytes);
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
    *fd = (int)syscall(SYS_openat, AT_FDCWD, path, REPORT_FLAGS, REPORT_MODE);
    return hak_errno_result(*fd < 0, saved);
}

int hak_os_read_file(const char *path, char *out, size_t bytes, size_t *used_bytes) {
    int saved = errno;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t got = fd < 0 ? -1 : syscall(SYS_read, fd, out, bytes);
    int error = hak_errno_result(got < 0, saved);
    if (fd >= 0) {
        hak_os_close(fd);
    }
    *used_bytes = got < 0 ? 0 : (size_t)got;
    return error;
}

int hak_os_duplicate(int fd, int *duplicate) {
    int saved = errno;
    *duplicate = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, DUPLICATE_FD_MIN);
    return hak_errno_result(*duplicate < 0, saved);
}

int hak_os_identify(int fd, struct hak_os_file *file) {
    struct stat status;
    int saved = errno;
    int error = hak_errno_result(syscall(SYS_fstat, fd, &status) != 0, saved);
    if (error == 0) {
        *file = (struct hak_os_file){.device = status.st_dev, .inode = status.st_ino};
    }
    return error;
}

bool hak_os_is_for_text(int fd) {
    struct stat status;
    int saved = errno;
    long flags = syscall(SYS_fcntl, fd, F_GETFL);
    bool is_text = flags >= 0 && syscall(SYS_fstat, fd, &status) == 0 &&
                   ((flags & O_ACCMODE) == O_WRONLY || S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode));
    errno = saved;
    return is_text;
}

HAK_AT_START void hak_os_close(int fd) {
    int saved = errno;
    (void)syscall(SYS_close, fd);
    errno = saved;
}

uint64_t hak_os_process_id(void) {
    return (uint64_t)getpid();
}

/* glibc's (2.32): true while the process has one thread. Weak: musl has no such name. */
extern char __libc_single_threaded __attribute__((weak));

bool hak_os_is_only_thread(void) {
    return &__libc_single_threaded != NULL && __libc_single_threaded != 0;
}

static int futex(const void *word, int operation, uint32_t value, const struct timespec *time) {
    int saved = errno;
    return hak_errno_result(syscall(SYS_futex, word, operation, value, time, NULL, 0) < 0, saved);
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

/* A wait of no time: EAGAIN if the word is another one, EFAULT if there is none. */
static int wait_no_time(const uint32_t *word, uint32_t value) {
    return futex(word, FUTEX_WAIT_PRIVATE, value, &(const struct timespec){.tv_sec = 0});
}

bool hak_os_is_readable(const uint32_t *word) {
    int error = wait_no_time(word, 0);
    return error == EAGAIN || error == ETIMEDOUT || error == EINTR;
}

bool hak_os_word_is(const uint32_t *word, uint32_t value) {
    int error = wait_no_time(word, value);
    return error == ETIMEDOUT || error == EINTR;
}

/* A small stack, unless glibc needs more of it for the program's thread-local variables. */
static int create(pthread_attr_t *attributes, void *(*run)(void *)) {
    pthread_t thread;
    size_t usual_bytes = 0;
    (void)pthread_attr_getstacksize(attributes, &usual_bytes);
    (void)pthread_attr_setstacksize(attributes, THREAD_STACK_BYTES);
    int error = pthread_create(&thread, attributes, run, NULL);
    if (error != EINVAL || pthread_attr_setstacksize(attributes, usual_bytes) != 0) {
        return error;
    }
    return pthread_create(&thread, attributes, run, NULL);
}

int hak_os_start_thread(const char *name, void *(*run)(void *)) {
    char old_name[THREAD_NAME_BYTES];
    sigset_t all, before;
    pthread_attr_t attributes;
    int saved = errno;
    int error = pthread_attr_init(&attributes);
    if (error != 0) {
        return error;
    }
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    /* Signals and name are inherited, so that the thread has them from its first instruction on. */
    bool is_renamed = prctl(PR_GET_NAME, old_name) == 0 && prctl(PR_SET_NAME, name) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = create(&attributes, run);
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
    return hak_errno_result(sigaction(signal, action, old) != 0, saved);
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
