/*
 * defrag.h - for programs that can move their blocks: which ones to move, so that slabs empty.
 *
 * A hinted block's slab becomes sparse: nobody's, and the last one that blocks are taken from. Its registry
 * words lose their owner's tag, so that what is freed in it goes home instead of into a cache. If the program
 * changes its mind nothing is lost: the slab serves again before a new one would.
 */
#ifndef HAK_HEAP_DEFRAG_H
#define HAK_HEAP_DEFRAG_H

#include "base/compiler.h"

/* Whether moving the block would help to empty its slab. Any pointer value; any thread, no lock held. */
HAK_COLD bool hak_defrag_helps(const void *block);

#endif
