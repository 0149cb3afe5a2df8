/*
 * atomic.h - every atomic access of hakmem, by wrappers that name their order.
 *
 * There is no default order and no seq_cst here. At each call a comment beside it says, for an acquire or a
 * release, which function it pairs with ("pairs with ... in f()"), and for a relaxed access why that is
 * enough ("relaxed: ..."); the test run checks that the comment is there.
 */
#ifndef HAK_BASE_ATOMIC_H
#define HAK_BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define hak_atomic_load_relaxed(p)        atomic_load_explicit((p), memory_order_relaxed)
#define hak_atomic_load_acquire(p)        atomic_load_explicit((p), memory_order_acquire)
#define hak_atomic_store_relaxed(p, v)    atomic_store_explicit((p), (v), memory_order_relaxed)
#define hak_atomic_store_release(p, v)    atomic_store_explicit((p), (v), memory_order_release)
#define hak_atomic_add_relaxed(p, v)      atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define hak_atomic_exchange_acquire(p, v) atomic_exchange_explicit((p), (v), memory_order_acquire)
#define hak_atomic_exchange_release(p, v) atomic_exchange_explicit((p), (v), memory_order_release)
#define hak_atomic_exchange_relaxed(p, v) atomic_exchange_explicit((p), (v), memory_order_relaxed)
/* *expected is updated with the value found when the swap does not happen. */
#define hak_atomic_cas_acquire(p, expected, v)                                                               \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_acquire, memory_order_relaxed)
#define hak_atomic_cas_release(p, expected, v)                                                               \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_release, memory_order_relaxed)
#define hak_atomic_cas_relaxed(p, expected, v)                                                               \
    atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_relaxed, memory_order_relaxed)
/* A weak one may fail without a cause; a loop around it reads the value found. */
#define hak_atomic_cas_weak_acquire(p, expected, v)                                                          \
    atomic_compare_exchange_weak_explicit((p), (expected), (v), memory_order_acquire, memory_order_relaxed)
#define hak_atomic_cas_weak_release(p, expected, v)                                                          \
    atomic_compare_exchange_weak_explicit((p), (expected), (v), memory_order_release, memory_order_relaxed)
#define hak_atomic_cas_weak_acq_rel(p, expected, v)                                                          \
    atomic_compare_exchange_weak_explicit((p), (expected), (v), memory_order_acq_rel, memory_order_relaxed)
/*
 * Whether an atomic byte differs from `v`, for the free gate: compared where it lies, in one instruction. gcc
 * 12 makes two of an atomic load and a compare.
 */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define hak_atomic_byte_differs_relaxed(p, v)                                                                \
    ({                                                                                                       \
        bool differs_;                                                                                       \
        __asm__("cmpb %2, %1" : "=@ccne"(differs_) : "m"(*(p)), "q"((unsigned char)(v)));                    \
        differs_;                                                                                            \
    })
#else
#define hak_atomic_byte_differs_relaxed(p, v) (hak_atomic_load_relaxed(p) != (unsigned char)(v))
#endif
/*
 * The atomic uint32_t at `p` as the upper half of 64 bits, whose lower half may be anything: one load of both
 * words, the one before it too. Each is read whole, since each lies in one cache line.
 */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
struct hak_two_words {
    uint64_t value;
} __attribute__((packed, may_alias));
#define hak_atomic_load_upper_relaxed(p)                                                                     \
    ({                                                                                                       \
        uint64_t upper_;                                                                                     \
        __asm__("movq %1, %0" : "=r"(upper_) : "m"(*(const struct hak_two_words *)((p)-1)));                 \
        upper_;                                                                                              \
    })
#else
#define hak_atomic_load_upper_relaxed(p) ((uint64_t)hak_atomic_load_relaxed(p) << 32)
#endif
/* Orders what the compiler does, not the processor: for a vector load that the wrappers above cannot name. */
#define hak_atomic_compiler_fence_acquire() atomic_signal_fence(memory_order_acquire)

#endif
