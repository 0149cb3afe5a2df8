/*
 * orphans.h - per class, the slabs with free blocks that no thread owns: the shared pool's second half.
 *
 * A class has two lists, by the heap that a slab was last tagged with: threads that produce beside each other
 * then take turns with their own slabs, whose blocks stay near their processor, and take another's before a
 * new one. Of a third list, sparse slabs, blocks are taken only when the alternative is a new slab: the
 * program is about to move their blocks elsewhere (heap/defrag.h).
 */
#ifndef HAK_SLAB_ORPHANS_H
#define HAK_SLAB_ORPHANS_H

#include "slab/slab_list.h"

#define HAK_ORPHAN_SIDES 2u
#define HAK_ORPHAN_LISTS ((HAK_ORPHAN_SIDES + 1) * HAK_CLASS_COUNT)

/* By class, side after side, behind them the sparse ones; always open. */
extern struct slab_list hak_orphans[HAK_ORPHAN_LISTS];

HAK_INLINE struct slab_list *hak_orphans_of(unsigned class_idx, unsigned side) {
    return &hak_orphans[side % HAK_ORPHAN_SIDES * HAK_CLASS_COUNT + class_idx];
}

HAK_INLINE struct slab_list *hak_sparse_of(unsigned class_idx) {
    return &hak_orphans[HAK_ORPHAN_SIDES * HAK_CLASS_COUNT + class_idx];
}

/*
 * Lists a leased slab among the orphans of its class and gives the lease back: NONE, or RETIRE with the lease
 * held when all its blocks turn out to be free.
 */
enum hak_slab_event hak_orphans_push(struct slab *slab);

/* The same, among the sparse ones. */
enum hak_slab_event hak_sparse_push(struct slab *slab);

/*
 * Takes an orphan of the class and its lease, for the heap of that number: rather of those on its side than
 * of the others, of the sparse ones last. NULL when there is none.
 */
struct slab *hak_orphans_pop(unsigned class_idx, uint32_t heap_id);

/* Whether there was none a moment ago. */
HAK_INLINE bool hak_orphans_look_empty(unsigned class_idx) {
    return hak_slab_list_looks_empty(hak_orphans_of(class_idx, 0)) &&
           hak_slab_list_looks_empty(hak_orphans_of(class_idx, 1)) &&
           hak_slab_list_looks_empty(hak_sparse_of(class_idx));
}

/* Whether there were some of smaller classes a moment ago. */
HAK_COLD bool hak_orphans_below(unsigned class_idx);

#endif
