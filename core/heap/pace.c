/*
 * pace.c - see pace.h.
 */
#include "heap/pace.h"
#include "base/atomic.h"

static _Atomic uint64_t due_ns; /* when the next block may be taken */

bool hak_pace_take(uint64_t now_ns, uint64_t gap_ns) {
    uint64_t due = hak_atomic_load_relaxed(&due_ns); /* relaxed: the swap decides */
    return now_ns >= due &&
           hak_atomic_cas_relaxed(&due_ns, &due, now_ns + gap_ns); /* relaxed: it orders nothing */
}

void hak_pace_spend(uint64_t now_ns, uint64_t spent_ns, uint64_t times) {
    uint64_t wait_ns = (spent_ns < HAK_PACE_SPENT_NS_MAX ? spent_ns : HAK_PACE_SPENT_NS_MAX) * times;
    uint64_t due = hak_atomic_load_relaxed(&due_ns); /* relaxed: the swap decides */
    uint64_t next;
    do {
        next = (due > now_ns ? due : now_ns) + wait_ns;
    } while (!hak_atomic_cas_relaxed(&due_ns, &due, next)); /* relaxed: it orders nothing */
}
