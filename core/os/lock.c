/*
 * lock.c - see lock.h.
 */
#include "os/lock.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "os/os.h"

#define STATE_FREE      0u
#define STATE_HELD      1u
#define STATE_CONTENDED 2u
#ifndef SPINS_MAX /* the models try once */
#define SPINS_MAX 64u
#endif

/* Address of the forking thread's `self`, or NULL. */
static _Atomic(const void *) fork_owner;
static HAK_TLS uint32_t held_ranks; /* debug: bit r is set while this thread holds a lock of rank r */

static bool passes_through(void) {
    /* relaxed: only the forking thread itself stores its own address, and it reads its own store. */
    return HAK_UNLIKELY(hak_atomic_load_relaxed(&fork_owner) == (const void *)&held_ranks);
}

static void note_acquired(const struct hak_lock *lock) {
    HAK_ASSERT((held_ranks >> lock->rank) == 0); /* ranks rise, one lock of a rank at a time */
    held_ranks |= (uint32_t)1 << lock->rank;
}

static void spin_hint(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static HAK_COLD void acquire_slow(struct hak_lock *lock) {
    for (unsigned spin = 0; spin < SPINS_MAX; spin++) {
        uint32_t expected = STATE_FREE;
        /* acquire: pairs with the exchange in release() */
        if (hak_atomic_load_relaxed(&lock->state) == STATE_FREE && /* relaxed: the swap decides */
            hak_atomic_cas_acquire(&lock->state, &expected, STATE_HELD)) {
            return;
        }
        spin_hint();
    }
    /* acquire: pairs with the exchange in release() */
    while (hak_atomic_exchange_acquire(&lock->state, STATE_CONTENDED) != STATE_FREE) {
        hak_os_futex_wait(&lock->state, STATE_CONTENDED);
    }
}

static void acquire(struct hak_lock *lock) {
    uint32_t expected = STATE_FREE;
    /* acquire: pairs with the exchange in release() */
    if (HAK_UNLIKELY(!hak_atomic_cas_acquire(&lock->state, &expected, STATE_HELD))) {
        acquire_slow(lock);
    }
}

static void release(struct hak_lock *lock) {
    /* release: pairs with the compare-and-swap and the exchange in acquire(), acquire_slow() and
     * hak_lock_acquire_soon() */
    if (hak_atomic_exchange_release(&lock->state, STATE_FREE) == STATE_CONTENDED) {
        hak_os_futex_wake(&lock->state, 1);
    }
}

void hak_lock_acquire(struct hak_lock *lock) {
    if (passes_through()) {
        return;
    }
    acquire(lock);
    if (!HAKMEM_BUILD_RELEASE) {
        note_acquired(lock);
    }
}

bool hak_lock_acquire_soon(struct hak_lock *lock) {
    uint64_t end_ms = hak_os_now_ms() + HAK_LOCK_SOON_MS;
    uint32_t expected = STATE_FREE;
    if (passes_through()) {
        return true;
    }
    if (!HAKMEM_BUILD_RELEASE && (held_ranks >> lock->rank) != 0) {
        return false; /* the ranks' rule holds here too */
    }
    /* acquire: pairs with the exchange in release() */
    while (!hak_atomic_cas_acquire(&lock->state, &expected, STATE_HELD)) {
        if (hak_os_now_ms() > end_ms) {
            return false;
        }
        expected = STATE_FREE;
        spin_hint();
    }
    if (!HAKMEM_BUILD_RELEASE) {
        note_acquired(lock);
    }
    return true;
}

void hak_lock_release(struct hak_lock *lock) {
    if (passes_through()) {
        return;
    }
    if (!HAKMEM_BUILD_RELEASE) {
        HAK_ASSERT((held_ranks & ((uint32_t)1 << lock->rank)) != 0);
        held_ranks &= ~((uint32_t)1 << lock->rank);
    }
    release(lock);
}

void hak_lock_fork_take(struct hak_lock *lock) {
    acquire(lock);
}

void hak_lock_fork_give(struct hak_lock *lock) {
    release(lock);
}

void hak_lock_fork_reset(struct hak_lock *lock) {
    hak_atomic_store_relaxed(&lock->state, STATE_FREE); /* relaxed: the child has one thread */
}

bool hak_lock_is_free(struct hak_lock *lock) {
    return hak_atomic_load_relaxed(&lock->state) == STATE_FREE; /* relaxed: a hint */
}

void hak_lock_fork_begin(void) {
    /* relaxed: read back by this thread alone, see passes_through() */
    hak_atomic_store_relaxed(&fork_owner, (const void *)&held_ranks);
}

void hak_lock_fork_end(void) {
    hak_atomic_store_relaxed(&fork_owner, (const void *)NULL); /* relaxed: as in hak_lock_fork_begin() */
}
