/*
 * tally.h - freed blocks that are FREE in their header maps but not counted in their slabs' words yet: how
 * many there are in each unit.
 *
 * Keeps the price of a count, an atomic swap on a line that other threads write too, to one for each slab and
 * batch. By units, not slabs, since a block's address tells its unit. Until they are counted a slab's word is
 * below the truth by so many, and the slab cannot be retired, so its words in the registry stay. Not locked:
 * one thread uses a tally.
 */
#ifndef HAK_SLAB_TALLY_H
#define HAK_SLAB_TALLY_H

#include "base/bits.h"
#include "base/compiler.h"
#include "base/config.h"
#include "slab/slab.h"
#include <string.h>

/* Units in a tally before counts are written back early. A power of two, at most 32. */
#define HAK_TALLY_SLOTS 32u

/*
 * Called with a slab that an event is due for: the lease is held and the callee must see to it
 * (hak_slab_retire() or a place to be listed at, then a release).
 */
typedef void (*hak_event_handler)(struct slab *slab, enum hak_slab_event event, void *context);

/* A small direct-mapped table. Owner: one thread. */
struct tally {
    const void *samples[HAK_TALLY_SLOTS]; /* a block of each slot's unit; NULL: the slot is not in use */
    unsigned blocks[HAK_TALLY_SLOTS];     /* of slots in use */
    uint32_t used;                        /* bits of the slots in use */
    uint32_t owner;                       /* the freeing heap */
    unsigned foreign;                     /* blocks counted in slabs that are not its own */
    unsigned opened;                      /* times that a unit got a slot: no fewer than there were units */
    hak_event_handler handler;
    void *context;
};

/*
 * Makes a tally that counts nothing yet. A few slots at a time: one string instruction for all of them costs
 * as much as the return of ten blocks, and spills may be as small.
 */
HAK_INLINE void hak_tally_begin(struct tally *tally, uint32_t owner, hak_event_handler handler,
                                void *context) {
    enum { CLEARED_AT_ONCE = 4 };
    _Static_assert(HAK_TALLY_SLOTS % CLEARED_AT_ONCE == 0, "all slots");
    for (unsigned slot = 0; slot < HAK_TALLY_SLOTS; slot += CLEARED_AT_ONCE) {
        memset(&tally->samples[slot], 0, CLEARED_AT_ONCE * sizeof tally->samples[0]);
    }
    tally->used = 0;
    tally->owner = owner;
    tally->foreign = tally->opened = 0;
    tally->handler = handler;
    tally->context = context;
}

/* Whether some unit has the slot. */
HAK_INLINE bool hak_tally_has(const struct tally *tally, unsigned slot) {
    return (tally->used >> slot & 1u) != 0;
}

/* Gives the slot to the unit of a block, counting what another one has in it. */
void hak_tally_open(struct tally *tally, unsigned slot, const void *block);

/*
 * Counts `blocks` FREE blocks of one unit, `block` one of them, and has the handler see to an event. Whether
 * their slab is not the owner's. Ends the program if others have returned every block of the slab and it was
 * retired: the block was then freed by two threads at once, each unseen by the other. Slow: no lock held.
 */
bool hak_tally_count(const void *block, unsigned blocks, uint32_t owner, hak_event_handler handler,
                     void *context);

/* Counts everything. Slow: no lock held. */
void hak_tally_settle(struct tally *tally);

/* The slot that a block's unit has or would have. */
HAK_INLINE unsigned hak_tally_slot(const void *block) {
    return (unsigned)((uintptr_t)block >> HAK_UNIT_SHIFT) % HAK_TALLY_SLOTS;
}

/* Whether the slot is that of the block's unit. */
HAK_INLINE bool hak_tally_is_open(const struct tally *tally, unsigned slot, const void *block) {
    return HAK_LIKELY(((uintptr_t)tally->samples[slot] ^ (uintptr_t)block) >> HAK_UNIT_SHIFT == 0);
}

/* Adds `blocks` blocks in a row whose headers this thread has just made FREE. Slow: no lock held. */
HAK_INLINE void hak_tally_add(struct tally *tally, const void *block, unsigned blocks) {
    unsigned slot = hak_tally_slot(block);
    if (!hak_tally_is_open(tally, slot, block)) {
        hak_tally_open(tally, slot, block);
    }
    tally->blocks[slot] += blocks;
}

#endif
