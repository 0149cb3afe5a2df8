/*
 * thin.h - slabs of which little is in use: the OS pages beneath their free blocks go back like free units.
 *
 * A slab becomes thin when a free leaves at most a sixteenth of its blocks in use (or four), and again at each
 * halving after that, down to the last. It then counts as dirty memory; what is above the floor is given back by
 * purge steps, the slab staying what it is. Taking blocks out of it ends that. A heap of which no more is in use
 * than the floor itself has no thin slabs. All functions: lease held; no lock held.
 */
#ifndef HAK_SLAB_THIN_H
#define HAK_SLAB_THIN_H

#include "slab/slab.h"

/* Live blocks up to which a slab is thin, if that is more than a sixteenth of its capacity. */
#define HAK_THIN_BLOCKS 4u

/*
 * System calls that one purge of a thin slab makes at most: a run of free pages ends at a page with a live block,
 * and no two runs touch. Slabs with more OS pages than a unit has hold larger blocks, and fewer of them.
 */
#define HAK_THIN_CALLS_MAX 9u

/* Written under the SuperSlab lock: more is in use than may stay free, so that thin slabs matter. */
extern _Atomic bool hak_thin_matters;

/* Whether a slab of which `live_blocks` are in use, `freed_blocks` more until now, has just become thin. */
HAK_INLINE bool hak_thin_begins(const struct slab *slab, unsigned live_blocks, unsigned freed_blocks) {
    unsigned thin_blocks = slab->relist_blocks > HAK_THIN_BLOCKS ? slab->relist_blocks : HAK_THIN_BLOCKS;
    unsigned before_blocks = live_blocks + freed_blocks;
    if (live_blocks > thin_blocks || live_blocks == 0) {
        return false;
    }
    bool has_halved = live_blocks == 1 || __builtin_clz(live_blocks - 1) != __builtin_clz(before_blocks - 1);
    return (before_blocks > thin_blocks || live_blocks < HAK_THIN_BLOCKS || has_halved) &&
           hak_atomic_load_relaxed(&hak_thin_matters); /* relaxed: a hint, the next halving asks again */
}

/* The slab is thin: it counts as dirty from now on, and what that leaves above the floor is owed. */
void hak_thin_enter(struct slab *slab);

/* Blocks of `taken_bytes` in all are taken out, or the slab is retired (0): it is neither thin nor purged. */
void hak_thin_leave(struct slab *slab, size_t taken_bytes);

/* Whether hak_thin_leave() has anything to do. */
bool hak_thin_is_known(const struct slab *slab);

/*
 * Gives the OS pages beneath free blocks of a slab back, thin or not, and accounts for them. Adds the system calls
 * to *calls. Returns the bytes given back. Slow.
 */
HAK_COLD size_t hak_thin_purge(struct slab *slab, unsigned *calls);

#endif
