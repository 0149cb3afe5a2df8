/*
 * orphans.h - per class, the slabs with free blocks that no thread owns: the shared pool's second half.
 */
#ifndef HAK_SLAB_ORPHANS_H
#define HAK_SLAB_ORPHANS_H

#include "slab/slab_list.h"

/* One list per class, always open. */
extern struct slab_list hak_orphans[HAK_CLASS_COUNT];

/*
 * Lists a leased slab among the orphans of its class and gives the lease back: NONE, or RETIRE with the lease
 * held when all its blocks turn out to be free.
 */
enum hak_slab_event hak_orphans_push(struct slab *slab);

#endif
