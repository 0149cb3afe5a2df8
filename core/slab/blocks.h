/*
 * blocks.h - moving blocks between slabs and caches: taking them out under the lease, returning them without.
 */
#ifndef HAK_SLAB_BLOCKS_H
#define HAK_SLAB_BLOCKS_H

#include "slab/header_map.h"
#include "slab/slab.h"
#include "slab/tally.h"

/* A block and its header byte: what a cache holds, so that malloc needs no look-up. */
struct block_ref {
    void *block;
    hak_header *header;
};

/*
 * Moves entries down within an array, or to another one. Not memmove(), which from 4 KiB on may be one string
 * instruction: where what that reads lies 16 bytes short of a multiple of 4 KiB behind what it writes, as the
 * halves of a cache do, it takes 25 times as long (AMD Zen 3).
 */
void hak_block_refs_move(struct block_ref *to, const struct block_ref *from, unsigned count);

/*
 * Takes up to `want` blocks out of a slab whose lease the caller holds: freed ones first, else never used
 * ones, each now CACHED or CACHED_ZERO. refs[0 .. result) are in falling order of address, so that a LIFO
 * pops rising ones. The caller passes the result to hak_slab_release().
 */
unsigned hak_blocks_take(struct slab *slab, struct block_ref *refs, unsigned want);

/* One block, where it is found at once and nothing but a header has to be changed; else false. */
bool hak_blocks_take_one(struct slab *slab, struct block_ref *ref);

/* What was said about returned blocks. */
struct hak_returned {
    unsigned foreign; /* of slabs of other heaps */
    unsigned units;   /* that they lay in, at most */
};

/*
 * Returns blocks, of any slabs, whose headers are CACHED, CACHED_ZERO or (just freed) LIVE: FREE into each
 * header byte, then one count per slab and batch. `owner` is the caller's heap. The caller's operation ends
 * with hak_purge_pay(). Slow: no lock held.
 */
struct hak_returned hak_blocks_return(const struct block_ref *refs, unsigned count, uint32_t owner,
                                      hak_event_handler handler, void *context);

/* The same for one block: whether its slab belongs to another heap. */
bool hak_block_return(struct block_ref ref, uint32_t owner, hak_event_handler handler, void *context);

/*
 * Gives the memory beneath runs of free blocks of a leased slab back, whole OS pages only. is_all_touched:
 * what was never handed out may hold some as well. Returns how many of its pages hold no memory then; adds
 * the system calls, at most `calls_max`, to *calls. Slow: no lock held.
 */
HAK_COLD unsigned hak_blocks_purge(struct slab *slab, bool is_all_touched, unsigned calls_max,
                                   unsigned *calls);

/* Of the group's blocks that one is of, those that are FREE on pages that were not given back, as a mask.
 * Lease held. */
HAK_COLD uint32_t hak_blocks_resident(const struct slab *slab, unsigned group);

#endif
