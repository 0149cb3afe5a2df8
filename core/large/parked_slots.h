/*
 * parked_slots.h - slots for parked page runs (parked.h), in rows by their length: one swap takes a run out
 * or puts it in.
 *
 * One row for each length below 16 pages, eight for each doubling above; and a slot for the run that comes
 * and goes, whatever its length, where it is found without a search. How much the slots hold, and in which
 * rows, are hints: threads that note something at the same moment may lose it, until one of them looks at all
 * slots. No lock; any thread.
 */
#ifndef HAK_LARGE_PARKED_SLOTS_H
#define HAK_LARGE_PARKED_SLOTS_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/config.h"
#include "large/extent.h"

#define HAK_PARKED_PAGES_MAX 256u /* of a run */
#define HAK_PARKED_ROWS      50u  /* of what a request of so many pages looks for, too */
#define HAK_PARKED_WAYS      4u
#define HAK_PARKED_SLOTS     (HAK_PARKED_ROWS * HAK_PARKED_WAYS)

/* A run's address with its length in pages in the low bits; 0: none. */
typedef uintptr_t hak_parked_run;
#define HAK_PARKED_PAGES_MASK ((hak_parked_run)0xFFF)

HAK_INLINE void *hak_parked_run_address(hak_parked_run run) {
    return (void *)(run & ~HAK_PARKED_PAGES_MASK);
}

HAK_INLINE unsigned hak_parked_run_pages(hak_parked_run run) {
    return (unsigned)(run & HAK_PARKED_PAGES_MASK);
}

struct hak_parked_slots {
    _Atomic uint32_t pages;       /* of what they hold, or are about to, by and large */
    _Atomic uint16_t hand;        /* the slot from which the next eviction looks */
    _Atomic uint64_t filled_rows; /* by and large: a bit for each row that may hold a run */
    _Atomic hak_parked_run latest;
    _Atomic uint8_t too_long; /* runs that were put in while the latest was too long to serve such */
    _Alignas(HAK_CACHE_LINE_BYTES) _Atomic hak_parked_run slots[HAK_PARKED_SLOTS];
};

/* Whether the rows hold nothing, as far as is noted. */
HAK_INLINE bool hak_parked_slots_seem_empty(struct hak_parked_slots *slots) {
    return hak_atomic_load_relaxed(&slots->filled_rows) == 0; /* relaxed: a hint */
}

/* Whether so many pages more are within the bound: then they count as held. */
HAK_INLINE bool hak_parked_slots_reserve(struct hak_parked_slots *slots, unsigned pages,
                                         unsigned bound_pages) {
    uint32_t sum = hak_atomic_load_relaxed(&slots->pages) + pages; /* relaxed: a hint */
    if (sum > bound_pages) {
        return false;
    }
    hak_atomic_store_relaxed(&slots->pages, sum); /* relaxed: as above */
    return true;
}

HAK_INLINE void hak_parked_slots_release(struct hak_parked_slots *slots, unsigned pages) {
    uint32_t before = hak_atomic_load_relaxed(&slots->pages); /* relaxed: a hint, set right by a recount */
    hak_atomic_store_relaxed(&slots->pages, before > pages ? before - pages : 0); /* relaxed: as above */
}

/* Takes what the slot holds, `found` when it was looked at: then it is the caller's. */
HAK_INLINE bool hak_parked_slot_take(struct hak_parked_slots *slots, _Atomic hak_parked_run *slot,
                                     hak_parked_run found) {
    unsigned pages = hak_parked_run_pages(found);
    /* acquire: pairs with the swap in hak_parked_slot_put(): the block's last owner is through with it */
    if (!hak_atomic_cas_acquire(slot, &found, (hak_parked_run)0)) {
        return false;
    }
    hak_parked_slots_release(slots, pages);
    return true;
}

/*
 * The run at `p`, which counts as held, comes into the empty slot; `*at`, its number, becomes 0. False:
 * another thread was faster at either.
 */
HAK_INLINE bool hak_parked_slot_put(_Atomic hak_parked_run *slot, void *p, _Atomic uint16_t *at,
                                    uint16_t number) {
    hak_parked_run none = 0;
    uint16_t found = number;
    /* relaxed: only which of two frees came first matters */
    if (!hak_atomic_cas_relaxed(at, &found, 0)) {
        return false;
    }
    /* release: pairs with the swap in hak_parked_slot_take() */
    if (hak_atomic_cas_release(slot, &none, (hak_parked_run)p | (number & HAK_HANDED_PAGES))) {
        return true;
    }
    hak_atomic_store_relaxed(at, number); /* relaxed: this thread's block still */
    return false;
}

/* Takes a run of least (1 or more) to most pages out of the rows, which then is the caller's, about as short
 * as there is. 0 if there is none. */
hak_parked_run hak_parked_slots_take(struct hak_parked_slots *slots, unsigned least_pages,
                                     unsigned most_pages);

/* Takes the latest run, and every one out of the rows that are noted to hold one, and calls `each` with it.
 */
void hak_parked_slots_drain(struct hak_parked_slots *slots, void (*each)(hak_parked_run run));

/*
 * Puts in the run at `p`, of which `*at` says `number`: its length and, above, what is its own business; that
 * becomes 0. False: another thread has freed it, or there is no room, in its row or within bound_pages in all
 * after one run was taken out for it. That is the caller's now: *evicted, or 0.
 */
bool hak_parked_slots_put(struct hak_parked_slots *slots, void *p, _Atomic uint16_t *at, uint16_t number,
                          unsigned bound_pages, hak_parked_run *evicted);

/* The latest run goes to its row; 0, or it where there is no room: then it is the caller's. */
hak_parked_run hak_parked_slots_settle(struct hak_parked_slots *slots);

/* Sets right what is noted of them. */
void hak_parked_slots_recount(struct hak_parked_slots *slots);

#endif
