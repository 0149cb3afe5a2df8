/*
 * orphans.h - per class, the slabs with free blocks that no thread owns: the shared pool's second half.
 *
 * A class has a list for each *side*, by the heap that a slab was last tagged with, so that threads do not
 * wait for each other's locks, and find their own blocks again: as many sides as heaps, at most 16. Who
 * takes an orphan looks through its own side first and through all others before there is a new slab.
 * Threads that only produce go through the sides in *groups*, all members of a group in the same order:
 * producers that take turns then take turns with the same slabs, near their processor, in place of one
 * each that is not full. There are two groups and, for good, twice as many whenever threads have had to
 * wait too often for one list. Of one list more, sparse slabs, blocks are taken only when the alternative
 * is a new slab: the program is about to move their blocks elsewhere (heap/defrag.h).
 */
#ifndef HAK_SLAB_ORPHANS_H
#define HAK_SLAB_ORPHANS_H

#include "slab/slab_list.h"

#define HAK_ORPHAN_GROUPS_MIN 2u
#define HAK_ORPHAN_SIDES_MAX  16u /* both powers of two */

extern _Atomic unsigned hak_orphan_sides_now;

/* Written under the heaps lock. Never falls: a slab may lie on a list of any side that there was. */
HAK_INLINE unsigned hak_orphan_sides(void) {
    /* acquire: pairs with the release in hak_orphans_note_heaps() */
    return hak_atomic_load_acquire(&hak_orphan_sides_now);
}

/* Lists of all classes and sides, and of sparse slabs. Who holds the heaps lock keeps it so. */
HAK_INLINE unsigned hak_orphan_lists(void) {
    return (hak_orphan_sides() + 1) * HAK_CLASS_COUNT;
}

/* One of them: by class, the sparse ones first, then side after side. Always open. */
struct slab_list *hak_orphans_at(unsigned list_idx);

/* There are so many heaps from now on. Heaps lock held. */
void hak_orphans_note_heaps(uint32_t heaps);

/* The list of one of the sides that there are. */
HAK_INLINE struct slab_list *hak_orphans_of(unsigned class_idx, unsigned side) {
    return hak_orphans_at((side + 1) * HAK_CLASS_COUNT + class_idx);
}

/* The side of a heap of that number or tag. */
HAK_INLINE unsigned hak_orphan_side_of(uint32_t heap_id) {
    return heap_id & (hak_orphan_sides() - 1);
}

HAK_INLINE struct slab_list *hak_sparse_of(unsigned class_idx) {
    return hak_orphans_at(class_idx);
}

/*
 * Lists a leased slab among the orphans of its class and gives the lease back: NONE, or RETIRE with the lease
 * held when all its blocks turn out to be free.
 */
enum hak_slab_event hak_orphans_push(struct slab *slab);

/* The same, among the sparse ones. */
enum hak_slab_event hak_sparse_push(struct slab *slab);

/*
 * Takes an orphan of the class and its lease, for the heap of that number: of those on its side first, or of
 * its group if the thread produces only, of the sparse ones last. NULL when there is none.
 */
struct slab *hak_orphans_pop(unsigned class_idx, uint32_t heap_id, bool produces_only);

/* Whether there was none a moment ago. */
bool hak_orphans_look_empty(unsigned class_idx);

/* Whether there were some of smaller classes a moment ago. */
HAK_COLD bool hak_orphans_below(unsigned class_idx);

#endif
