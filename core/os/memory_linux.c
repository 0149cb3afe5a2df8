/*
 * memory_linux.c - the kernel's calls for memory (Linux, any libc).
 *
 * As os_linux.c. Keeps the account of mapped bytes.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/atomic.h"
#include "base/bits.h"
#include "os/errno_kept.h"
#include "os/os.h"
#include <errno.h>
#include <sys/mman.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE  103
#endif

#define PROT_RW          (PROT_READ | PROT_WRITE)
#define MAP_ANON_PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

HAK_CONTENDED struct hak_os_counters hak_os_counters;

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

static int map_pages(void *hint, size_t bytes, int protection, void **out) {
    int saved = errno;
    void *address = mmap(hint, bytes, protection, MAP_ANON_PRIVATE, -1, 0);
    int error = hak_errno_result(address == MAP_FAILED, saved);
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
    hak_os_drop(address, lead_bytes);
    hak_os_drop((void *)(aligned + bytes), tail_bytes);
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
    hak_os_drop(address, bytes);
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
    int error = hak_errno_result(munmap(address, bytes) != 0, saved);
    count_call(&hak_os_counters.unmap_calls);
    if (error == 0) {
        account_mapped(-(int64_t)bytes);
    }
    return error;
}

static int protect(void *address, size_t bytes, int protection) {
    int saved = errno;
    count_call(&hak_os_counters.protect_calls);
    return hak_errno_result(mprotect(address, bytes, protection) != 0, saved);
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
    return hak_errno_result(madvise(address, bytes, advice) != 0, saved);
}

static int call_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, void *target,
                       void **out) {
    int saved = errno;
    void *moved = mremap(address, old_bytes, new_bytes, flags, target);
    int error = hak_errno_result(moved == MAP_FAILED, saved);
    count_call(&hak_os_counters.remap_calls);
    if (error == 0) {
        *out = moved;
    }
    return error;
}

/*
 * Emulators of processors (QEMU's user mode, for one) say 0 to advice that they do not carry out, and to
 * MREMAP_DONTUNMAP though they take the old pages for unmapped from then on, so that no advice about these is
 * carried out either. What the library relies on is tried once, on a page, before the first use: what then
 * turns out not to hold is done in another way.
 */
enum { UNTRIED, HOLDS, FAILS };

HAK_READ_MOSTLY static _Atomic uint8_t purged_is_zero, old_pages_stay, guards_hold; /* one of these each */

static HAK_COLD uint8_t find_out(_Atomic uint8_t *known, uint8_t (*try)(void *page)) {
    uint8_t state = UNTRIED;
    void *page;
    if (hak_os_map(NULL, hak_os_page_bytes(), &page) == 0) {
        state = try(page);
        hak_atomic_store_relaxed(known, state); /* relaxed: as in holds() */
        hak_os_drop(page, hak_os_page_bytes());
    }
    return state;
}

/* Whether it holds; false also when it cannot be tried now. */
static bool holds(_Atomic uint8_t *known, uint8_t (*try)(void *page)) {
    uint8_t state = hak_atomic_load_relaxed(known); /* relaxed: whoever tries comes to the same result */
    return (HAK_LIKELY(state != UNTRIED) ? state : find_out(known, try)) == HOLDS;
}

/* A refusal holds: the call that is meant is refused as well. */
static HAK_COLD uint8_t try_purge(void *page) {
    _Atomic uint8_t *byte = page;      /* atomic: so that it is read again */
    hak_atomic_store_relaxed(byte, 1); /* relaxed: nobody else knows the page */
    bool is_refused = advise(page, hak_os_page_bytes(), MADV_DONTNEED) != 0;
    return is_refused || hak_atomic_load_relaxed(byte) == 0 ? HOLDS : FAILS; /* relaxed: as above */
}

/* Advice that is refused for locked memory, and for some that the library never has. */
static bool is_locked(void *address) {
    return advise(address, hak_os_page_bytes(), MADV_COLD) != 0;
}

static HAK_COLD uint8_t try_old_pages(void *page) {
    void *moved;
    if (is_locked(page)) {
        return UNTRIED; /* it might unlock what lies beside it, see remap() */
    }
    int error = call_mremap(page, hak_os_page_bytes(), hak_os_page_bytes(), MREMAP_MAYMOVE | MREMAP_DONTUNMAP,
                            NULL, &moved);
    if (error != 0) {
        return error == ENOMEM || error == EAGAIN ? UNTRIED : HOLDS; /* these two may pass */
    }
    account_mapped((int64_t)hak_os_page_bytes());
    uint8_t state = try_purge(page);
    hak_os_drop(moved, hak_os_page_bytes());
    return state;
}

static HAK_COLD uint8_t try_guard(void *page) {
    bool is_refused = advise(page, hak_os_page_bytes(), MADV_GUARD_INSTALL) != 0;
    return is_refused || advise(page, hak_os_page_bytes(), MADV_POPULATE_READ) != 0 ? HOLDS : FAILS;
}

static int map_over(void *address, size_t bytes, int protection) {
    int saved = errno;
    void *same = mmap(address, bytes, protection, MAP_ANON_PRIVATE | MAP_FIXED, -1, 0);
    count_call(&hak_os_counters.map_calls);
    return hak_errno_result(same == MAP_FAILED, saved);
}

int hak_os_reserve_again(void *address, size_t bytes) {
    return map_over(address, bytes, PROT_NONE);
}

int hak_os_purge(void *address, size_t bytes) {
    count_call(&hak_os_counters.purge_calls);
    return holds(&purged_is_zero, try_purge) ? advise(address, bytes, MADV_DONTNEED)
                                             : map_over(address, bytes, PROT_RW);
}

int hak_os_advise_huge(void *address, size_t bytes, bool may_be_huge) {
    return advise(address, bytes, may_be_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

int hak_os_guard(void *address, size_t bytes) {
    count_call(&hak_os_counters.purge_calls);
    return holds(&guards_hold, try_guard) ? advise(address, bytes, MADV_GUARD_INSTALL) : EINVAL;
}

int hak_os_unguard(void *address, size_t bytes) {
    return advise(address, bytes, MADV_GUARD_REMOVE);
}

int hak_os_populate(void *address, size_t bytes) {
    return advise(address, bytes, MADV_POPULATE_WRITE);
}

/*
 * EINVAL also for a flag that the kernel takes and its emulator does not carry out, and where old pages are
 * to stay that are locked: the kernel would unlock all of their mapping, other blocks in it too.
 */
static int remap(void *address, size_t old_bytes, size_t new_bytes, int flags, void *target, void **out) {
    if ((flags & MREMAP_DONTUNMAP) != 0 && (is_locked(address) || !holds(&old_pages_stay, try_old_pages))) {
        return EINVAL;
    }
    return call_mremap(address, old_bytes, new_bytes, flags, target, out);
}

/*
 * Whether a range lies in one kernel mapping. A program that locks, protects or advises part of a block makes
 * several of it: the kernel then refuses with EFAULT to make it longer, before it looks at anything else.
 */
static bool is_one_mapping(void *address, size_t bytes) {
    void *same;
    size_t page_bytes = hak_os_page_bytes();
    int error = call_mremap(address, bytes, bytes + page_bytes, 0, NULL, &same);
    if (error == 0) {
        account_mapped((int64_t)page_bytes);
        hak_os_drop((char *)address + bytes, page_bytes);
    }
    return error != EFAULT;
}

/* A move failed for want of something: from then on all targets are marked, not only those that cost no call.
 */
static _Atomic bool marks_all;

/* How a target is known again: by the odd number that stands at its end, if not by one of these. */
#define NOT_MARKED     0u
#define MARKS_NOT_USED 2u /* there is no other thread that could have it */

static uint32_t *last_word(char *end) {
    return (uint32_t *)(void *)(end - sizeof(uint32_t));
}

/*
 * Writes a number that no other target has had lately at the end of a target that may be written there, or
 * that all may be made so. An error if it cannot be made so: the kernel has no mapping more, and would refuse
 * the move as well.
 */
static int mark_end(char *end, bool is_writable, uint32_t *mark) {
    static _Atomic uint32_t moves;
    size_t page_bytes = hak_os_page_bytes();
    if (hak_os_is_only_thread()) {
        *mark = MARKS_NOT_USED;
        return 0;
    }
    /* relaxed: decides only what is lost */
    if (!is_writable && !hak_atomic_load_relaxed(&marks_all)) {
        *mark = NOT_MARKED;
        return 0;
    }
    int error = is_writable ? 0 : hak_os_allow(end - page_bytes, page_bytes);
    if (error == 0) {
        *mark = (hak_atomic_add_relaxed(&moves, 1) << 1) | 1; /* relaxed: only that it is another */
        *last_word(end) = *mark;
    }
    return error;
}

static bool is_marked(char *end, uint32_t mark) {
    return mark == MARKS_NOT_USED || (mark != NOT_MARKED && hak_os_word_is(last_word(end), mark));
}

struct move {
    void *from;
    size_t old_bytes;
    char *target;
    size_t new_bytes;
    int flags;
};

/* Says whether the target is to be unmapped after it: the pages have not come, and nobody else has it. */
static int try_move(const struct move *move, uint32_t mark, bool *is_left) {
    void *moved;
    int error = remap(move->from, move->old_bytes, move->new_bytes, move->flags, move->target, &moved);
    *is_left = error == EINVAL || (error != 0 && is_marked(move->target + move->new_bytes, mark));
    return error;
}

/*
 * Of MREMAP_FIXED: kernels before 6.17 unmap the target before they look whether the process may have more,
 * later ones after that, as if it kept both; for want of mappings (vm.max_map_count) all refuse before. So an
 * error does not tell whether the target is there still or may be another thread's, but a mark in it does. It
 * costs a page fault, and none is needed while there is no other thread.
 * What the process has more of afterwards is asked of its limits first, when a refusal leaves the target as
 * it was; and so is whether the range is one mapping. Of several, older kernels move none, but may have
 * unmapped the target, and newer ones (from 6.17 on) move one by one and leave it at that when one fails.
 */
static int move_to(void *from, size_t old_bytes, char *target, size_t new_bytes, bool old_stays) {
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (old_stays ? MREMAP_DONTUNMAP : 0);
    const struct move move = {from, old_bytes, target, new_bytes, flags};
    size_t freed_bytes = old_stays ? 0 : old_bytes;
    size_t more_bytes = new_bytes > freed_bytes ? new_bytes - freed_bytes : 0;
    char *more = target + new_bytes - more_bytes;
    size_t page_bytes = hak_os_page_bytes();
    uint32_t mark = NOT_MARKED;
    bool is_left = true;
    int error = more_bytes == 0 ? 0 : hak_os_allow(more, more_bytes);
    if (error == 0 && !is_one_mapping(from, old_bytes)) {
        error = EFAULT;
    }
    if (error == 0) {
        error = mark_end(target + new_bytes, more_bytes != 0, &mark);
    }
    if (error == 0) {
        error = try_move(&move, mark, &is_left);
        if (error == ENOMEM && is_left && more_bytes > page_bytes &&
            hak_os_forbid(more, more_bytes - page_bytes) == 0) {
            /* What may be written counts as data (RLIMIT_DATA), as does what the kernel makes of it. */
            error = try_move(&move, mark, &is_left);
        }
        if (error != 0) {
            hak_atomic_store_relaxed(&marks_all, true); /* relaxed: decides only what is lost */
        }
    }
    if (is_left) {
        hak_os_drop(target, new_bytes);
    } else { /* the target was accounted for when it was reserved */
        account_mapped(-(int64_t)(error == 0 ? freed_bytes : new_bytes));
    }
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
            return hak_errno_result(true, saved);
        }
        for (size_t i = 0; i < (step + page_bytes - 1) / page_bytes; i++) {
            resident_bytes += (pages[i] & 1) ? page_bytes : 0;
        }
        offset += step;
    }
    *out_bytes = resident_bytes;
    return 0;
}
