/*
 * atomic.h - stands in front of core/base/atomic.h in the model build: the same wrappers, but every access
 * is a step that the checker schedules, and its order is one that the checker may weaken.
 *
 * Each use is a site: file, line and order, listed in the section "model_sites" of the library, so that the
 * checker knows them all, those that no scenario reaches too.
 */
#ifndef HAK_BASE_ATOMIC_H
#define HAK_BASE_ATOMIC_H

#include "model/model.h"
#include <stdatomic.h>
#include <stdbool.h>

#define MODEL_SITE(what_, order_)                                                                            \
    ({                                                                                                       \
        static const struct model_site site_ = {                                                             \
            .file = __FILE__, .line = __LINE__, .what = (what_), .order = (order_)};                         \
        static const struct model_site *const listed_ __attribute__((section("model_sites"), used)) =        \
            &site_;                                                                                          \
        &site_;                                                                                              \
    })
#define MODEL_TYPE(p)     __typeof__(((void)0, *(p)))
#define MODEL_RAW(p, v)   ((uint64_t)(uintptr_t)(MODEL_TYPE(p))(v))
#define MODEL_VALUE(p, v) ((MODEL_TYPE(p))(uintptr_t)(v))

#define MODEL_LOAD(p, order)     MODEL_VALUE(p, model_load(MODEL_SITE("load", order), (p), sizeof *(p)))
#define MODEL_STORE(p, v, order) model_store(MODEL_SITE("store", order), (p), sizeof *(p), MODEL_RAW(p, v))
#define MODEL_SWAP(p, v, order)                                                                              \
    MODEL_VALUE(p, model_exchange(MODEL_SITE("exchange", order), (p), sizeof *(p), MODEL_RAW(p, v)))
#define MODEL_CAS(p, expected, v, order, is_weak)                                                            \
    ({                                                                                                       \
        MODEL_TYPE(p) *expected_ = (expected);                                                               \
        uint64_t seen_ = (uint64_t)(uintptr_t)*expected_;                                                    \
        bool is_done_ = model_cas(MODEL_SITE("compare-and-swap", order), (p), sizeof *(p), &seen_,           \
                                  MODEL_RAW(p, v), (is_weak));                                               \
        if (!is_done_) {                                                                                     \
            *expected_ = MODEL_VALUE(p, seen_);                                                              \
        }                                                                                                    \
        is_done_;                                                                                            \
    })

#define hak_atomic_load_relaxed(p)     MODEL_LOAD(p, MODEL_RELAXED)
#define hak_atomic_load_acquire(p)     MODEL_LOAD(p, MODEL_ACQUIRE)
#define hak_atomic_store_relaxed(p, v) MODEL_STORE(p, v, MODEL_RELAXED)
#define hak_atomic_store_release(p, v) MODEL_STORE(p, v, MODEL_RELEASE)
#define hak_atomic_add_relaxed(p, v)                                                                         \
    MODEL_VALUE(p, model_add(MODEL_SITE("add", MODEL_RELAXED), (p), sizeof *(p), MODEL_RAW(p, v)))
#define hak_atomic_exchange_acquire(p, v)           MODEL_SWAP(p, v, MODEL_ACQUIRE)
#define hak_atomic_exchange_release(p, v)           MODEL_SWAP(p, v, MODEL_RELEASE)
#define hak_atomic_exchange_relaxed(p, v)           MODEL_SWAP(p, v, MODEL_RELAXED)
#define hak_atomic_cas_acquire(p, expected, v)      MODEL_CAS(p, expected, v, MODEL_ACQUIRE, false)
#define hak_atomic_cas_release(p, expected, v)      MODEL_CAS(p, expected, v, MODEL_RELEASE, false)
#define hak_atomic_cas_relaxed(p, expected, v)      MODEL_CAS(p, expected, v, MODEL_RELAXED, false)
#define hak_atomic_cas_weak_acquire(p, expected, v) MODEL_CAS(p, expected, v, MODEL_ACQUIRE, true)
#define hak_atomic_cas_weak_release(p, expected, v) MODEL_CAS(p, expected, v, MODEL_RELEASE, true)
#define hak_atomic_cas_weak_acq_rel(p, expected, v) MODEL_CAS(p, expected, v, MODEL_ACQ_REL, true)
#define hak_atomic_byte_differs_relaxed(p, v)       (hak_atomic_load_relaxed(p) != (unsigned char)(v))
#define hak_atomic_load_upper_relaxed(p)            ((uint64_t)hak_atomic_load_relaxed(p) << 32)
#define hak_atomic_compiler_fence_acquire()                                                                  \
    ((void)0) /* goes with vector loads, which the model has none of */

#endif
