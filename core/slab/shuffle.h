/*
 * shuffle.h - HAKMEM_RANDOMIZE: blocks of a slab in no order that can be foretold.
 */
#ifndef HAK_SLAB_SHUFFLE_H
#define HAK_SLAB_SHUFFLE_H

#include "slab/blocks.h"

/* In place of hak_blocks_take(), with its contract: the blocks come from all over the slab, and in no order.
 */
HAK_COLD unsigned hak_shuffle_take(struct slab *slab, struct block_ref *refs, unsigned want);

#endif
