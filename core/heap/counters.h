/*
 * counters.h - what is counted per class and thread.
 *
 * Written by the owning thread alone, read by reports: relaxed loads and stores, no locked instruction. The
 * columns marked HIT are counted on the hit path: only in the debug flavour, with HAKMEM_DEBUG_COUNTERS=1, or
 * while the front is metered (see front.h); the others always.
 */
#ifndef HAK_HEAP_COUNTERS_H
#define HAK_HEAP_COUNTERS_H

#include "base/atomic.h"
#include "base/config.h"

/* X(name, help) */
#define HAK_FRONT_COUNTERS(X)                                                                                \
    X(allocations, "blocks given to the program (HIT)")                                                      \
    X(frees, "blocks taken back from the program (HIT)")                                                     \
    X(cache_hits, "allocations served by the unified cache (HIT)")                                           \
    X(cache_misses, "refills, and single blocks of cold classes")                                            \
    X(cache_spills, "times the oldest half of a full cache went home")                                       \
    X(warm_hits, "misses served by the current slab or the warm pool")                                       \
    X(warm_misses, "misses that found the warm pool empty")                                                  \
    X(warm_prefills, "slabs put into the warm pool ahead of need")                                           \
    X(pool_visits, "visits to the shared pool")                                                              \
    X(pool_adoptions, "orphan slabs taken over")                                                             \
    X(new_slabs, "slabs set up from empty units")                                                            \
    X(new_superslabs, "of those, with a SuperSlab mapped for them")                                          \
    X(guests, "blocks in the holes of slabs of other classes")                                               \
    X(remote_frees, "blocks returned to slabs of other threads or of nobody; guests as what they cover")

#define HAK_COUNTER_FIELD(name, help) _Atomic uint64_t name;

struct front_counters {
    HAK_FRONT_COUNTERS(HAK_COUNTER_FIELD)
};

/* Plain sums, for reports. */
#define HAK_COUNTER_SUM(name, help) uint64_t name;

struct front_counts {
    HAK_FRONT_COUNTERS(HAK_COUNTER_SUM)
};

#define HAK_COUNT(counters, name, n)                                                                         \
    do {                                                                                                     \
        _Atomic uint64_t *counter_ = &(counters)->name;                                                      \
        /* relaxed: one writer; readers want any recent value */                                             \
        hak_atomic_store_relaxed(counter_, hak_atomic_load_relaxed(counter_) + (n));                         \
    } while (0)

#endif
