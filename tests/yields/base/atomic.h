/*
 * atomic.h - stands in front of core/base/atomic.h in the flavour `yields`: the same wrappers, but now and
 * then a thread gives its processor up, or sleeps, right before an access. Orders that are rare become
 * common.
 *
 * By chance, each thread from a seed of its own; often before what takes part in a protocol (an acquire, a
 * release, a swap), rarely before a relaxed access, since those are on the hit path.
 */
#ifndef HAK_YIELDS_ATOMIC_H
#define HAK_YIELDS_ATOMIC_H

#include_next "base/atomic.h"
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

#define HAK_YIELD_RARE  16u /* one of 2^16 */
#define HAK_YIELD_LOAD  12u /* an acquire is in every free's look-up too */
#define HAK_YIELD_OFTEN 6u
#define HAK_YIELD_SLEEP 12u /* of those often ones, one of 2^6 sleeps */

static inline void hak_yield_by_chance(unsigned shift) {
    static __thread uint32_t state __attribute__((tls_model("initial-exec")));
    state = (state != 0 ? state : (uint32_t)(uintptr_t)&state >> 4 | 1) * 747796405u + 2891336453u;
    uint32_t chance = (state >> 4) ^ (state >> 18);
    if ((chance & (((uint32_t)1 << shift) - 1)) == 0) {
        int saved_errno = errno;
        if ((chance & (((uint32_t)1 << HAK_YIELD_SLEEP) - 1)) == 0) {
            (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        } else {
            (void)sched_yield();
        }
        errno = saved_errno;
    }
}

#define HAK_LOADING(p) (hak_yield_by_chance(HAK_YIELD_LOAD), (p))
#define HAK_RARELY(p)  (hak_yield_by_chance(HAK_YIELD_RARE), (p))
#define HAK_OFTEN(p)   (hak_yield_by_chance(HAK_YIELD_OFTEN), (p))

#undef hak_atomic_load_relaxed
#undef hak_atomic_load_acquire
#undef hak_atomic_store_relaxed
#undef hak_atomic_store_release
#undef hak_atomic_exchange_acquire
#undef hak_atomic_exchange_release
#undef hak_atomic_cas_acquire
#undef hak_atomic_cas_release
#undef hak_atomic_cas_relaxed
#undef hak_atomic_cas_weak_acquire
#undef hak_atomic_cas_weak_release
#undef hak_atomic_cas_weak_acq_rel
#define hak_atomic_load_relaxed(p)        atomic_load_explicit(HAK_RARELY(p), memory_order_relaxed)
#define hak_atomic_load_acquire(p)        atomic_load_explicit(HAK_LOADING(p), memory_order_acquire)
#define hak_atomic_store_relaxed(p, v)    atomic_store_explicit(HAK_RARELY(p), (v), memory_order_relaxed)
#define hak_atomic_store_release(p, v)    atomic_store_explicit(HAK_OFTEN(p), (v), memory_order_release)
#define hak_atomic_exchange_acquire(p, v) atomic_exchange_explicit(HAK_OFTEN(p), (v), memory_order_acquire)
#define hak_atomic_exchange_release(p, v) atomic_exchange_explicit(HAK_OFTEN(p), (v), memory_order_release)
#define hak_yield_cas(strength, p, expected, v, order)                                                       \
    atomic_compare_exchange_##strength##_explicit(HAK_OFTEN(p), (expected), (v), order, memory_order_relaxed)
#define hak_atomic_cas_acquire(p, expected, v)      hak_yield_cas(strong, p, expected, v, memory_order_acquire)
#define hak_atomic_cas_release(p, expected, v)      hak_yield_cas(strong, p, expected, v, memory_order_release)
#define hak_atomic_cas_relaxed(p, expected, v)      hak_yield_cas(strong, p, expected, v, memory_order_relaxed)
#define hak_atomic_cas_weak_acquire(p, expected, v) hak_yield_cas(weak, p, expected, v, memory_order_acquire)
#define hak_atomic_cas_weak_release(p, expected, v) hak_yield_cas(weak, p, expected, v, memory_order_release)
#define hak_atomic_cas_weak_acq_rel(p, expected, v) hak_yield_cas(weak, p, expected, v, memory_order_acq_rel)

#endif
