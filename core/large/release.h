/*
 * release.h - gives free large memory back to the system: above the floor after each free, or all of it
 * (hak_large_trim() in large.h).
 *
 * Makes its system calls without the lock: the memory in question is held (runs) or in transit (mappings)
 * meanwhile, so nobody hands it out. Called by whoever freed, with no lock held.
 */
#ifndef HAK_LARGE_RELEASE_H
#define HAK_LARGE_RELEASE_H

#include "large/mapping.h"
#include "large/retain.h"
#include "slab/purge.h"

/*
 * Brings dirty memory down to its floor, by at most calls_max system calls, or one more. A MiB of pages takes
 * the kernel some 25 us, so at most release_bytes_max go back, or twice own_bytes if that is more: what
 * the caller itself has just freed, and has paid ten times as much for in page faults, and as much again,
 * since the floor fell by a part of that, and others that free at the same time may not see all that is too
 * much. What is left above the floor then is a debt: the next operations pay it off. False if no call was
 * made. Slow. A purge that fails changes nothing but that its extent is left alone for a minute, and all of
 * them for a second after some in a row.
 */
bool hak_release_excess(size_t own_bytes, unsigned calls_max, uint64_t now_ms);

/* What an operation ends with that has hak_large_lock and has just made own_bytes free: gives the lock back,
 * and then what is too much, as above, by HAK_PURGE_STEP_CALLS. */
HAK_INLINE bool hak_release_unlock(size_t own_bytes, uint64_t now_ms) {
    bool has_excess = hak_retain_is_over() || hak_mapping_totals.kept_count > hak_large_policy.kept_count_max;
    hak_lock_release(&hak_large_lock);
    return has_excess && hak_release_excess(own_bytes, HAK_PURGE_STEP_CALLS, now_ms);
}

/* Lets the floor fall with time and gives back what is above it then, as above; false if that is nothing.
 * Slow. */
HAK_COLD bool hak_release_age(void);

/* What the helper thread does when it comes by: the same for all that has waited for it. Slow. */
HAK_COLD void hak_release_help(void);

/* Whether memory above the floor waits to go back. Relaxed: a hint. */
extern _Atomic bool hak_release_has_debt;

#endif
