/*
 * thin.h - slabs of which little is in use: the OS pages beneath their free blocks go back like free units.
 *
 * A slab becomes thin when a free leaves at most four of its blocks, and a sixteenth of them, in use. It then
 * counts as dirty memory until a purge step gives back what is free of it, the slab staying what it is; the
 * next free makes it thin again. Taking blocks out of it ends that. Not before four, since an earlier look
 * would cost system calls for pages that are likely to go together with the slab. A heap of which less than 8
 * MiB is in use has no thin slabs: where every class has a slab with a few blocks, each free would make one.
 * All functions: lease held; no lock held.
 */
#ifndef HAK_SLAB_THIN_H
#define HAK_SLAB_THIN_H

#include "slab/slab.h"

/* Blocks in use up to which a slab is thin, if they are no more than a sixteenth of its blocks. */
#define HAK_THIN_BLOCKS 4u

/* System calls that one purge of a thin slab makes at most: a run of free blocks ends at a live one, and one
 * call for a huge page. */
#define HAK_THIN_CALLS_MAX (HAK_THIN_BLOCKS + 2)

/* Units in use from which on thin slabs matter. */
#define HAK_THIN_UNITS_MIN 128u

/* Written under the SuperSlab lock: as many units are in use. */
extern _Atomic bool hak_thin_matters;

/* Whether a free that leaves `live_blocks` in use makes a slab thin that is not marked so. */
HAK_INLINE bool hak_thin_begins(const struct slab *slab, unsigned live_blocks) {
    return live_blocks <= HAK_THIN_BLOCKS && live_blocks <= hak_slab_relist_blocks(slab) &&
           hak_atomic_load_relaxed(&hak_thin_matters); /* relaxed: a hint, the next free asks again */
}

/* The slab is thin: it counts as dirty from now on, and what that leaves above the floor is owed. */
void hak_thin_enter(struct slab *slab);

/* The same if so little of it is in use: for a slab that a single count took from full to there. */
void hak_thin_enter_if_due(struct slab *slab);

/* Blocks are about to be taken out: the slab is not thin. Before they are, since what was counted for it
 * goes. */
void hak_thin_end(struct slab *slab);

/*
 * Blocks of `taken_bytes` in all were taken out: of a slab of one unit those `pages` (a mask), of a larger
 * one all are not purged any more.
 */
void hak_thin_take(struct slab *slab, uint32_t pages, size_t taken_bytes);

/* The slab is retired: it is neither thin nor purged. */
void hak_thin_leave(struct slab *slab);

/* Whether the three above have anything to do. */
bool hak_thin_is_known(const struct slab *slab);

/*
 * Gives the OS pages beneath free blocks of a slab back, thin or not, and accounts for them. Adds the system
 * calls, at most `calls_max`, to *calls. Returns the bytes given back. Slow.
 */
HAK_COLD size_t hak_thin_purge(struct slab *slab, unsigned calls_max, unsigned *calls);

#endif
