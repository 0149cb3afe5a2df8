/*
 * purge.h - giving memory of free units and empty SuperSlabs back to the system, a step at a time.
 */
#ifndef HAK_SLAB_PURGE_H
#define HAK_SLAB_PURGE_H

#include "base/atomic.h"
#include "base/compiler.h"
#include <stdint.h>

#define HAK_PURGE_STEP_BYTES ((size_t)1024 * 1024)
#define HAK_PURGE_STEP_CALLS 16u /* that one malloc or free may make to give memory back */

/* Written under the SuperSlab lock: units were given back since a step last found nothing to do. */
extern _Atomic bool hak_purge_debt;

/* Since then a step has ended at its bound. Cleared with the debt. */
extern _Atomic bool hak_purge_behind;

/* Whether an operation that frees blocks should end with a step. */
HAK_INLINE bool hak_purge_is_owed(void) {
    return hak_atomic_load_relaxed(&hak_purge_debt); /* relaxed: a hint, the step looks under the lock */
}

/*
 * Whether the debt has outlasted a step and so is more than one operation may pay: return few blocks at a
 * time until it is paid. Not so where another thread has just given units back and is about to look.
 */
HAK_INLINE bool hak_purge_is_behind(void) {
    return hak_purge_is_owed() && hak_atomic_load_relaxed(&hak_purge_behind); /* relaxed: a hint, as above */
}

/*
 * Gives back what is above the floor and outside the LRU's bounds: at most calls_max system calls, none after
 * the one that reaches HAK_PURGE_STEP_BYTES. How many it made. Slow: no lock held.
 */
unsigned hak_purge_step(unsigned calls_max);

/* What an operation that frees blocks ends with: a step if one is owed. Slow: no lock held. */
HAK_INLINE void hak_purge_pay(void) {
    if (hak_purge_is_owed()) {
        (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    }
}

/*
 * Gives back free pages between blocks of slabs that wait for that (ragged.h), by at most
 * HAK_PURGE_STEP_CALLS system calls: for who has taken a new slab. Slow: no lock held.
 */
HAK_COLD void hak_purge_ragged(void);

/* The same for who comes by: nothing, and false, if the last time that it was done for one is not long ago.
 */
HAK_COLD bool hak_purge_ragged_in_time(void);

/* Steps until nothing is owed; for a thread that gives back all it has. Slow: no lock held. */
HAK_COLD void hak_purge_settle(void);

/* What the helper thread does when it comes by: hak_purge_age(), and the same for what has waited for it. */
HAK_COLD void hak_purge_help(void);

/* Lets the floor fall with time; what is beyond it then is owed. Slow: no lock held. */
HAK_COLD void hak_purge_age(void);

/* Whether an empty SuperSlab has been kept for as long as it may be, so that hak_purge_age() is to be called.
 * Slow: no lock held. */
HAK_COLD bool hak_purge_lru_is_over(void);

/* The floor is `bytes` of dirty free units from now on, in place of the one that adapts itself. */
void hak_purge_set_floor(size_t bytes);

#endif
