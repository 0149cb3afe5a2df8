/*
 * walk.h - visiting slabs and live blocks: what statistics, verification and heap walks stand on.
 */
#ifndef HAK_PROCESS_WALK_H
#define HAK_PROCESS_WALK_H

#include "base/compiler.h"
#include "hakmem.h"
#include "slab/slab.h"

/* Called with the lease held: the slab is assigned and stays so. A result other than 0 ends the walk. */
typedef int (*hak_slab_visitor)(struct slab *slab, void *context);

/*
 * Visits every assigned slab. One that another thread works on is waited for, a second in all, and then left
 * out. Returns what ended the walk, or 0. The visitor must not allocate, free or walk. Any thread; no lock
 * held.
 */
HAK_COLD int hak_walk_slabs(hak_slab_visitor visitor, void *context);

/* hak_heap_walk(). */
HAK_COLD int hak_process_walk(hak_block_visitor visitor, void *context);

#endif
