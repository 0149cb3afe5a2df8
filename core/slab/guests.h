/*
 * guests.h - blocks of one class in the holes of slabs of another.
 *
 * Where a program's sizes change and some blocks of each phase stay, slabs of one size cannot serve the next
 * one: their free blocks lie between live ones, so that neither slabs nor pages become free. A guest is a
 * block of another class that takes a row of neighbouring free blocks in such a slab, its host. The first
 * header of the row is the guest's own (CACHED, LIVE + its class), the others are TAIL: a row is as long as
 * there are TAILs behind its first header. All of them belong to whoever has the guest. The gates take no
 * guest for a block of the host's class, since its header is another: hits cost nothing, and the free of a
 * guest takes the slow way.
 *
 * A guest costs more than a block in a slab of its class: it is searched for, and freed slowly. So it is made
 * only where the alternative is a new slab whose pages are not there yet, in a heap of which 8 MiB are in use
 * (thin.h). Hosts are slabs of one unit, nobody's or the heap's own, that are not about to be emptied:
 * neither thin nor sparse (orphans.h). What was given back beneath them stays away.
 *
 * A guest lies at a multiple of 16 bytes, whatever its class: who promises more takes a block from a slab of
 * its class.
 */
#ifndef HAK_SLAB_GUESTS_H
#define HAK_SLAB_GUESTS_H

#include "base/assert.h"
#include "meta/classes.h"
#include "slab/blocks.h"

/* The length of the longest row. Of a heap of which one block in ten is live, at random, rows of 32 free
 * blocks are one in 260. */
#define HAK_ROW_BLOCKS_MAX 64u

/* Set with the first guest. Relaxed: who has a block that may be one got it from a thread that has set it, by
 * a way that orders the two. */
extern _Atomic bool hak_guests_were_made;

/* How many blocks of a host a guest takes. */
HAK_INLINE unsigned hak_row_blocks(unsigned host_class, unsigned class_idx) {
    HAK_ASSERT(class_idx < HAK_CLASS_COUNT);
    uint32_t host_bytes = hak_class_block_bytes[host_class];
    return (hak_class_block_bytes[class_idx] + host_bytes - 1) / host_bytes;
}

/* Whether the caller's block is a guest: each covers two blocks at least. */
HAK_INLINE bool hak_begins_row(const hak_header *header) {
    /* relaxed: what follows is TAIL only if it is the caller's too */
    return hak_atomic_load_relaxed(header + 1) == HAK_HEADER_TAIL;
}

/* The length of the row that begins at the header, which is one for a block that is no guest. Of a block that
 * is not the caller's, a moment's figure. */
HAK_COLD unsigned hak_row_length(const hak_header *header);

/* FREE into each header of the caller's row, which it returns the length of; that is to be counted. */
HAK_COLD unsigned hak_row_to_free(hak_header *header);

/* Whether the row behind a header is that of a guest of the class in a slab of `host_class`. */
HAK_COLD bool hak_guest_is_whole(const hak_header *header, unsigned host_class, unsigned class_idx);

/* Whether `value`, read from a header of a slab of that class, is a live block's, be it a guest, and whole;
 * its class goes into *class_idx. */
HAK_INLINE bool hak_header_is_live(const hak_header *header, unsigned value, unsigned slab_class,
                                   unsigned *class_idx) {
    *class_idx = value - HAK_HEADER_LIVE;
    return *class_idx == slab_class || hak_guest_is_whole(header, slab_class, *class_idx);
}

/*
 * Takes up to `want` guests of the class, each CACHED, for a heap; 0 when no host was found, or as long as it
 * is too early to look again. The caller has seen that thin slabs matter. `handler` sees to hosts that turn
 * out to be empty. Slow: no lock held.
 */
HAK_COLD unsigned hak_guests_take(unsigned class_idx, uint32_t heap_id, struct block_ref *refs, unsigned want,
                                  hak_event_handler handler, void *context);

#endif
