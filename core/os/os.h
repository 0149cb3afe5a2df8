/*
 * os.h - the contract with the kernel. os_linux.c and memory_linux.c alone make system calls.
 *
 * Every `int` function returns 0 or an errno value and leaves errno itself alone. Addresses and sizes are
 * multiples of the OS page. No lock of hakmem may be held by the caller of a function marked "slow".
 * All functions may be called from any thread at any time, before the constructors too.
 */
#ifndef HAK_OS_OS_H
#define HAK_OS_OS_H

#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"
#include <stdatomic.h>
#include <stdint.h>

/* What hakmem asked of the kernel so far. Relaxed counters: read them for statistics and tests only. */
struct hak_os_counters {
    _Atomic uint64_t map_calls;
    _Atomic uint64_t unmap_calls;
    _Atomic uint64_t purge_calls;
    _Atomic uint64_t remap_calls;
    _Atomic uint64_t protect_calls;
    _Atomic uint64_t mapped_bytes;      /* address space that hakmem holds now, reserved ranges counted in */
    _Atomic uint64_t mapped_bytes_peak; /* the most it ever held */
};
extern struct hak_os_counters hak_os_counters;

/* The OS page size's base-two logarithm where it is not known before (base/config.h), once somebody has asked
 * for it; 0 before. The constructor does, so that a trivial process does not come to the code for who is the
 * first to ask, which lies among what is rarely run. */
extern _Atomic uint8_t hak_os_known_page_shift;
HAK_NOINLINE HAK_AT_START unsigned hak_os_find_page_shift(void);

HAK_INLINE unsigned hak_os_page_shift(void) {
    if (HAK_KNOWN_PAGE_SHIFT != 0) {
        return HAK_KNOWN_PAGE_SHIFT;
    }
    /* relaxed: every thread stores the same value */
    unsigned shift = hak_atomic_load_relaxed(&hak_os_known_page_shift);
    return HAK_LIKELY(shift != 0) ? shift : hak_os_find_page_shift();
}

/* The OS page size in bytes: 4, 16 or 64 KiB; read once from the auxiliary vector if need be. */
HAK_INLINE size_t hak_os_page_bytes(void) {
    return (size_t)1 << hak_os_page_shift();
}

/* How many whole OS pages that is. A shift: gcc divides by hak_os_page_bytes(). */
HAK_INLINE size_t hak_os_pages_in(size_t bytes) {
    return bytes >> hak_os_page_shift();
}

/* Rounds up to whole OS pages; the caller has excluded overflow. */
HAK_INLINE size_t hak_os_page_round(size_t bytes) {
    return hak_round_up(bytes, hak_os_page_bytes());
}

/* How many OS pages so many bytes need; the caller has excluded overflow. */
HAK_INLINE unsigned hak_os_pages_for(size_t bytes) {
    return (unsigned)hak_os_pages_in(bytes + hak_os_page_bytes() - 1);
}

/* Slow. Maps zeroed, readable and writable private memory at `hint` if that range is free, else anywhere. */
int hak_os_map(void *hint, size_t bytes, void **out);

/* Slow. The same, at a multiple of `align`, a power of two of at least an OS page. */
int hak_os_map_aligned(void *hint, size_t bytes, size_t align, void **out);

/*
 * Slow. Reserves address space at a multiple of `align`: no access, no memory. The kernel charges it, and
 * refuses what it has not got, when it is allowed; with MAP_NORESERVE it would not even then.
 */
int hak_os_reserve_aligned(size_t bytes, size_t align, void **out);

/* Slow. Gives the range back: its address may be somebody else's at once. Part of a mapping is allowed. */
int hak_os_unmap(void *address, size_t bytes);

/*
 * Slow. Gives a range back that nobody has any more; of 0 bytes nothing. If it cannot be unmapped now (a
 * process may have so many mappings, and this would make one of them two), its memory goes, and its address
 * space by hak_os_drop_again() at a later time. What waits so is bounded; beyond that it is lost.
 */
void hak_os_drop(void *address, size_t bytes);
HAK_COLD void hak_os_drop_again(void);

/* Slow. Access rights of a whole range: reading and writing, reading alone, or none. */
int hak_os_allow(void *address, size_t bytes);
int hak_os_freeze(void *address, size_t bytes);
int hak_os_forbid(void *address, size_t bytes);

/*
 * Slow. Guard markers on pages of a mapping: their memory goes back, a touch is a SIGSEGV, and the mapping
 * stays one. EINVAL where the kernel (before 6.13) or its emulator has none, or the pages are locked. And the
 * way back: the pages read as zeros again, those without a marker stay as they are.
 */
int hak_os_guard(void *address, size_t bytes);
int hak_os_unguard(void *address, size_t bytes);

/* Slow. Reserves the range, part of a mapping of ours, anew: no access, and its memory goes back, locked or
 * not.
 */
int hak_os_reserve_again(void *address, size_t bytes);

/*
 * Slow. Gives the memory beneath the range back; the range stays usable. After 0 the range reads as zeros;
 * after an error (locked pages, for one) its contents are as they were.
 */
int hak_os_purge(void *address, size_t bytes);

/* Slow. Lets the kernel use huge pages in the range, or not. EINVAL where it has none. */
int hak_os_advise_huge(void *address, size_t bytes, bool may_be_huge);

/* Slow. Populates the pages of the range for writing. EINVAL where the kernel (before 5.14) has no such call.
 */
int hak_os_populate(void *address, size_t bytes);

/*
 * Slow. Moves the pages of one mapping to `target`, which the caller has reserved (at least new_bytes of it;
 * what stood there is replaced), and makes it new_bytes long. The old range is unmapped. On failure it stays,
 * but the new_bytes at `target` are the caller's no more: they may be another thread's already.
 */
int hak_os_move(void *address, size_t old_bytes, void *target, size_t new_bytes);

/*
 * Slow. The same for part of a mapping and without a change of length; the old range stays mapped and reads
 * as zeros. EINVAL where the kernel (before 5.7) cannot, or an emulator of it does so by halves.
 */
int hak_os_move_pages(void *address, size_t bytes, void *target);

/* Slow. Makes a mapping longer or shorter without moving it; ENOMEM when the room behind it is taken. */
int hak_os_resize(void *address, size_t old_bytes, size_t new_bytes);

/*
 * Slow. Moves the pages of part of a mapping to a new mapping of the kernel's choice (page aligned only); the
 * old range stays mapped and reads as zeros. EINVAL as above.
 */
int hak_os_detach(void *address, size_t bytes, void **out);

/* Counts the bytes of the range that are resident (mincore). */
HAK_COLD int hak_os_resident(void *address, size_t bytes, size_t *out_bytes);

/* Milliseconds of a coarse monotonic clock; no system call (vDSO). */
uint64_t hak_os_now_ms(void);

/* Nanoseconds of the exact one, some 30 ns to read. */
uint64_t hak_os_now_ns(void);

/* Writes all of it to the descriptor, retrying on EINTR; errors are swallowed: there is nobody to tell. */
void hak_os_write(int fd, const char *text, size_t bytes);

/*
 * For reports alone, which the environment asks for; a process without them makes none of these calls.
 * hak_os_open_report creates or empties a file, and refuses a symbolic link (in a shared directory somebody
 * else may have laid it) and a pipe that nobody reads. hak_os_duplicate gives another descriptor for the same
 * file, above the ones that programs count on; exec closes both. hak_os_identify says which file is behind a
 * descriptor.
 */
struct hak_os_file {
    uint64_t device, inode;
};
int hak_os_open_report(const char *path, int *fd);
int hak_os_duplicate(int fd, int *duplicate);
HAK_COLD int hak_os_identify(int fd, struct hak_os_file *file);
void hak_os_close(int fd);
uint64_t hak_os_process_id(void);

/* Whether it is open and no file or connection that the process reads as well: a log rather than data. */
bool hak_os_is_for_text(int fd);

/* For the constructor: the first `bytes` bytes of a file, or all it has. Returns 0 or an errno value. */
int hak_os_read_file(const char *path, char *out, size_t bytes, size_t *used_bytes);

/* For the constructor: what the process's limits let it map (RLIMIT_AS, RLIMIT_DATA); SIZE_MAX without one.
 */
HAK_COLD size_t hak_os_space_limit(void);

/* The same of address space alone, which counts what no access is allowed to. */
HAK_COLD size_t hak_os_mapped_limit(void);

/* For the constructor: processors that the process may run on, at most 1024; 1 if that cannot be told. */
unsigned hak_os_processors(void);

/* Sleeps while *word == expected; may wake without cause. */
void hak_os_futex_wait(_Atomic uint32_t *word, uint32_t expected);

/* Sleeps for so many milliseconds; may wake without cause. */
void hak_os_sleep_ms(uint32_t ms);

/* Whether the word may be read: a futex wait of no time, in which the kernel reads it and does not fault.
 * False too where a filter refuses that call. */
bool hak_os_is_readable(const uint32_t *word);

/* Whether there is a word, and it holds the value; in the same way. */
bool hak_os_word_is(const uint32_t *word, uint32_t value);

/* Whether the process is known to have no other thread. */
bool hak_os_is_only_thread(void);

/*
 * For the constructor, while the process has one thread: starts a thread for good, with the name, every
 * signal blocked and, where that will do, a small stack. Returns 0 or an errno value.
 */
int hak_os_start_thread(const char *name, void *(*run)(void *));
void hak_os_futex_wake(_Atomic uint32_t *word, unsigned count);

/* The address at which the program itself began, whatever loader ran before; 0 when the kernel does not say.
 */
uintptr_t hak_os_program_entry(void);

/*
 * For the constructor, when an option asks for it: fills the memory with random bytes of the kernel
 * (getrandom; where it is missing or refused, what the kernel gave this process at its start, AT_RANDOM).
 */
void hak_os_random(void *bytes, size_t count);

/* As sigaction(2). For checked mode and guard sampling alone. */
struct sigaction;
int hak_os_signal_action(int signal, const struct sigaction *action, struct sigaction *old);

/* The same modes: sends the calling thread a signal. */
void hak_os_raise(int signal);

/* True when the program runs with privileges its user does not have (AT_SECURE). */
bool hak_os_is_secure(void);

#endif
