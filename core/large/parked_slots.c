/*
 * parked_slots.c - see parked_slots.h.
 */
#include "large/parked_slots.h"
#include "base/assert.h"
#include "base/bits.h"

static unsigned row_of(unsigned pages) {
    unsigned doublings = pages < 16 ? 0 : hak_log2(pages) - 3;
    return doublings * 8 + (pages >> doublings);
}

static uint64_t filled_rows(struct hak_parked_slots *slots) {
    return hak_atomic_load_relaxed(&slots->filled_rows); /* relaxed: a hint, set right by a recount */
}

static void set_filled_rows(struct hak_parked_slots *slots, uint64_t rows) {
    hak_atomic_store_relaxed(&slots->filled_rows, rows); /* relaxed: as above */
}

static void note_filled(struct hak_parked_slots *slots, unsigned row) {
    uint64_t rows = filled_rows(slots);
    if ((rows >> row & 1) == 0) {
        set_filled_rows(slots, rows | (uint64_t)1 << row);
    }
}

static void note_empty(struct hak_parked_slots *slots, unsigned row) {
    set_filled_rows(slots, filled_rows(slots) & ~((uint64_t)1 << row));
}

/* Threads that noted something at the same moment may have lost what one of them did. */
void hak_parked_slots_recount(struct hak_parked_slots *slots) {
    uint64_t rows = 0;
    uint32_t pages = hak_parked_run_pages(hak_atomic_load_relaxed(&slots->latest)); /* relaxed: a hint */
    for (unsigned slot = 0; slot < HAK_PARKED_SLOTS; slot++) {
        hak_parked_run found = hak_atomic_load_relaxed(&slots->slots[slot]); /* relaxed: a hint */
        rows |= (uint64_t)(found != 0) << slot / HAK_PARKED_WAYS;
        pages += hak_parked_run_pages(found);
    }
    set_filled_rows(slots, rows);
    hak_atomic_store_relaxed(&slots->pages, pages); /* relaxed: as above */
}

/* What the slot holds, which then is the caller's; 0 if that is no run of least (1 or more) to most pages. */
static hak_parked_run take_at(struct hak_parked_slots *slots, _Atomic hak_parked_run *slot,
                              unsigned least_pages, unsigned most_pages) {
    hak_parked_run found = hak_atomic_load_relaxed(slot); /* relaxed: the swap decides */
    bool is_fit = hak_parked_run_pages(found) - least_pages <= most_pages - least_pages;
    return is_fit && hak_parked_slot_take(slots, slot, found) ? found : 0;
}

static hak_parked_run take_any_at(struct hak_parked_slots *slots, _Atomic hak_parked_run *slot) {
    return take_at(slots, slot, 1, HAK_PARKED_PAGES_MAX);
}

/* The same of a row, of which it is noted when it holds nothing. */
static hak_parked_run take_from_row(struct hak_parked_slots *slots, unsigned row, unsigned least_pages,
                                    unsigned most_pages) {
    hak_parked_run any = 0;
    for (unsigned slot = row * HAK_PARKED_WAYS; slot < (row + 1) * HAK_PARKED_WAYS; slot++) {
        hak_parked_run found = take_at(slots, &slots->slots[slot], least_pages, most_pages);
        if (found != 0) {
            return found;
        }
        any |= hak_atomic_load_relaxed(&slots->slots[slot]); /* relaxed: a hint */
    }
    if (any == 0) {
        note_empty(slots, row);
    }
    return 0;
}

hak_parked_run hak_parked_slots_take(struct hak_parked_slots *slots, unsigned least_pages,
                                     unsigned most_pages) {
    unsigned last_row = row_of(most_pages);
    HAK_ASSERT(least_pages <= most_pages && last_row < HAK_PARKED_ROWS);
    uint64_t rows = filled_rows(slots) & (((uint64_t)2 << last_row) - ((uint64_t)1 << row_of(least_pages)));
    hak_parked_run found = 0;
    for (; rows != 0 && found == 0; rows &= rows - 1) {
        found = take_from_row(slots, hak_ctz64(rows), least_pages, most_pages);
    }
    return found;
}

void hak_parked_slots_drain(struct hak_parked_slots *slots, void (*each)(hak_parked_run run)) {
    hak_parked_run latest = take_any_at(slots, &slots->latest);
    if (latest != 0) {
        each(latest);
    }
    for (uint64_t rows = filled_rows(slots); rows != 0; rows &= rows - 1) {
        unsigned row = hak_ctz64(rows);
        for (unsigned slot = row * HAK_PARKED_WAYS; slot < (row + 1) * HAK_PARKED_WAYS; slot++) {
            hak_parked_run found = take_any_at(slots, &slots->slots[slot]);
            if (found != 0) {
                each(found);
            }
        }
        note_empty(slots, row);
    }
}

/* The next run in turn, to make room, the latest where the rows have none; 0 if there is none. */
static hak_parked_run evict(struct hak_parked_slots *slots) {
    unsigned hand = hak_atomic_load_relaxed(&slots->hand); /* relaxed: whichever run it is */
    hak_parked_run found = 0;
    for (unsigned i = 0; i < HAK_PARKED_SLOTS && found == 0; i++) {
        found = take_any_at(slots, &slots->slots[hand]);
        hand = (hand + 1) % HAK_PARKED_SLOTS;
    }
    hak_atomic_store_relaxed(&slots->hand, (uint16_t)hand); /* relaxed: as above */
    if (found == 0) {
        found = take_any_at(slots, &slots->latest);
    }
    if (found == 0 || hand == 0) { /* a thread that frees alone never comes to another recount */
        hak_parked_slots_recount(slots);
    }
    return found;
}

/* An empty slot of the row, or NULL. */
static _Atomic hak_parked_run *empty_slot(struct hak_parked_slots *slots, unsigned row) {
    for (unsigned slot = row * HAK_PARKED_WAYS; slot < (row + 1) * HAK_PARKED_WAYS; slot++) {
        if (hak_atomic_load_relaxed(&slots->slots[slot]) == 0) { /* relaxed: the swap decides */
            return &slots->slots[slot];
        }
    }
    return NULL;
}

bool hak_parked_slots_put(struct hak_parked_slots *slots, void *p, _Atomic uint16_t *at, uint16_t number,
                          unsigned bound_pages, hak_parked_run *evicted) {
    *evicted = 0;
    unsigned pages = number & HAK_HANDED_PAGES;
    unsigned row = row_of(pages);
    _Atomic hak_parked_run *slot = empty_slot(slots, row);
    if (slot == NULL) {
        return false;
    }
    if (!hak_parked_slots_reserve(slots, pages, bound_pages)) {
        *evicted = evict(slots);
        if (!hak_parked_slots_reserve(slots, pages, bound_pages)) {
            return false;
        }
    }
    if (!hak_parked_slot_put(slot, p, at, number)) {
        hak_parked_slots_release(slots, pages);
        return false;
    }
    note_filled(slots, row);
    return true;
}

hak_parked_run hak_parked_slots_settle(struct hak_parked_slots *slots) {
    hak_parked_run none = 0;
    hak_parked_run found = take_any_at(slots, &slots->latest);
    if (found == 0) {
        return 0;
    }
    unsigned pages = hak_parked_run_pages(found);
    unsigned row = row_of(pages);
    _Atomic hak_parked_run *slot = empty_slot(slots, row);
    /* release: pairs with the swap in hak_parked_slot_take(), as that which brought it here */
    if (slot == NULL || !hak_atomic_cas_release(slot, &none, found)) {
        return found;
    }
    (void)hak_parked_slots_reserve(slots, pages, UINT32_MAX);
    note_filled(slots, row);
    return 0;
}
