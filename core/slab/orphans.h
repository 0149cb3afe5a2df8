/*
 * orphans.h - per class, the slabs with free blocks that no thread owns: the shared pool's second half.
 *
 * A class has two lists. Of the second one, sparse slabs, blocks are taken only when the alternative is a new
 * slab: the program is about to move their blocks elsewhere (heap/defrag.h).
 */
#ifndef HAK_SLAB_ORPHANS_H
#define HAK_SLAB_ORPHANS_H

#include "slab/slab_list.h"

#define HAK_ORPHAN_LISTS (2 * HAK_CLASS_COUNT)

/* By class, behind them the sparse ones by class; always open. */
extern struct slab_list hak_orphans[HAK_ORPHAN_LISTS];

HAK_INLINE struct slab_list *hak_sparse_of(unsigned class_idx) {
    return &hak_orphans[HAK_CLASS_COUNT + class_idx];
}

/*
 * Lists a leased slab among the orphans of its class and gives the lease back: NONE, or RETIRE with the lease
 * held when all its blocks turn out to be free.
 */
enum hak_slab_event hak_orphans_push(struct slab *slab);

/* The same, among the sparse ones. */
enum hak_slab_event hak_sparse_push(struct slab *slab);

#endif
