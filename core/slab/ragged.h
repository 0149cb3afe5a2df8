/*
 * ragged.h - slabs so little used that whole OS pages lie free between their blocks.
 *
 * Survivors that lie scattered hold every slab that they are in, but not every page. A slab is ragged when a
 * free leaves it two blocks in use for each of its pages, or half of its blocks if those are fewer. It then
 * waits: a heap that is freed to the end soon is through with it, and the system calls would have been for
 * nothing. When the heap takes a new slab that has no pages yet, the pages beneath free blocks of some that
 * wait are given back, under their leases: what that costs is less than what the new pages cost. And time
 * gives turns, to whoever comes by: so seldom that a heap which is freed to the end, or is filled again, has
 * few, but one that has shrunk for good, and works on, holds no more in the end than its pages with live
 * blocks. A slab that was looked at waits again when half of its blocks are left. A heap of which less than 8
 * MiB is in use has no ragged slabs, as it has no thin ones (thin.h).
 *
 * Where the pages are wanted again soon, most turns are skipped: see hak_ragged_note_missed().
 */
#ifndef HAK_SLAB_RAGGED_H
#define HAK_SLAB_RAGGED_H

#include "slab/slab.h"
#include "slab/thin.h"

struct superslab;

/* From one turn that time gives to the next: at 16 system calls a turn some 0.5 % of a processor's time. */
#define HAK_RAGGED_TURN_MS 20u

/* Under the SuperSlab lock. Which slabs wait stands in their SuperSlabs. */
struct ragged {
    size_t waiting;      /* slabs */
    size_t cursor;       /* number of the SuperSlab that is looked at next */
    unsigned skipped;    /* turns in a row that were skipped */
    unsigned skips;      /* turns to skip after each that is not */
    size_t purged_bytes; /* of late, since turns were last skipped more often */
    size_t missed_bytes; /* handed out again since then */
    uint64_t eased_ms;   /* when skips rose last, or both sums were halved because time had gone by */
};

/* Written under the SuperSlab lock: some slabs wait, or did so since somebody last looked. */
extern _Atomic bool hak_ragged_waits;

/* When the last turn was that time gave, or the first slab came to wait. Written under the lock. */
extern _Atomic uint64_t hak_ragged_turn_ms;

/* Whether time gives a turn now: HAK_RAGGED_TURN_MS after it gave the last one. Any thread. */
HAK_INLINE bool hak_ragged_is_time(uint64_t now_ms) {
    /* relaxed: a hint, the lock decides; a sum, since another thread may have read the clock later */
    return now_ms >= hak_atomic_load_relaxed(&hak_ragged_turn_ms) + HAK_RAGGED_TURN_MS;
}

/* Whether some slab waits. Any thread. */
HAK_INLINE bool hak_ragged_is_waiting(void) {
    return hak_atomic_load_relaxed(&hak_ragged_waits); /* relaxed: a hint, the lock decides */
}

/* Whether a free that leaves `used_blocks` makes the slab ragged. */
HAK_INLINE bool hak_ragged_begins(const struct slab *slab, unsigned used_blocks) {
    return used_blocks <=
               hak_atomic_load_relaxed(&slab->ragged_blocks) && /* relaxed: a hint, as the next is */
           hak_atomic_load_relaxed(&hak_thin_matters); /* relaxed: a hint, the next free asks again */
}

/* For a slab that is set up. Lease held. */
void hak_ragged_reset(struct slab *slab);

/* Blocks are being taken out: it is ragged again when half of what is in use then is left. Lease held. */
void hak_ragged_raise(struct slab *slab, unsigned taken_blocks);

/* It was looked at: the same. Lease held. */
void hak_ragged_lower(struct slab *slab);

/* The slab waits for its turn. Lease held; no lock held. */
HAK_COLD void hak_ragged_enter(struct slab *slab);

/* The same if it is ragged: for a slab that a single count took from full to there. */
HAK_COLD void hak_ragged_enter_if_due(struct slab *slab);

/* Enters it as thin or ragged if the event says that this is due; false if it says something else. */
HAK_COLD bool hak_ragged_or_thin_enter(struct slab *slab, enum hak_slab_event event);

/* Whether it still is what it was when it came to wait. Lease held. */
HAK_COLD bool hak_ragged_is_still(const struct slab *slab);

/* It is about to be nobody's. Under the SuperSlab lock, as all that follow. */
void hak_ragged_forget(struct superslab *superslab, const struct slab *slab);

/* None waits any more: who clears the SuperSlabs' masks calls this. */
void hak_ragged_forget_all(void);

/* Takes the turn that time gives, if it does and some slab waits. */
HAK_COLD bool hak_ragged_take_turn(uint64_t now_ms);

/* Takes the lease of the slab whose turn it is; NULL if the turn is skipped or none can be leased. */
HAK_COLD struct slab *hak_ragged_next(uint64_t now_ms);

/*
 * Pages went back, or blocks on pages that had gone back were taken out. Where half of what goes back is
 * missed, twice as many turns are skipped from then on, and half as many where less than a quarter is, or
 * nothing worth the name for a second.
 */
void hak_ragged_note_purged(size_t bytes);
void hak_ragged_note_missed(size_t bytes, uint64_t now_ms);

#endif
