/*
 * upkeep.h - what a thread has to see to once in a while, even if its caches serve every operation.
 *
 * Memory is given back by slow paths, and a program that finds all it needs in its caches takes none. So each
 * thread counts its allocations down in hak_tls.until_slow, on the hit path too; the one that brings it below
 * 0 takes the slow path. Guard sampling (heap/sampled.h) counts in the same number.
 */
#ifndef HAK_HEAP_UPKEEP_H
#define HAK_HEAP_UPKEEP_H

#include "heap/front.h"

/*
 * Narrows wide caches that have stopped swinging, returns what caches have and do not need, lets raised
 * floors fall and empty SuperSlabs age, and gives back what is beyond them then, or else what lies free in
 * ragged slabs: no more than any operation may. Sets hak_tls.until_slow, to until_slow_max (0 or more) at
 * most: sampling, which counts in the same number, has its own use for it then. The owning thread. Slow: no
 * lock held.
 */
HAK_COLD void hak_upkeep(struct heap *heap, int64_t until_slow_max);

/* Whether the thread has counted down. */
HAK_INLINE bool hak_upkeep_is_due(void) {
    return HAK_UNLIKELY(hak_tls.until_slow < 0);
}

/* hak_upkeep(), if so, and it does not sample; for a slow allocation of whatever size. A thread without a
 * heap (NULL) has nothing to see to. */
HAK_INLINE void hak_upkeep_if_due(struct heap *heap) {
    if (hak_upkeep_is_due() && heap != NULL && !hak_front_samples()) {
        hak_upkeep(heap, HAK_NEVER_SLOW);
    }
}

#endif
