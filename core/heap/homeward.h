/*
 * homeward.h - a thread's freed blocks that belong to slabs of other threads.
 *
 * Such a block is not handed out again by the thread that freed it: its neighbours, and the neighbours of its
 * header, are in use elsewhere, and every write would take a cache line from there. So the block is FREE, its
 * slab's, at once; only its count is put off, so that a remote free costs one store and a share of one atomic
 * addition. All functions: the owning thread, no lock held.
 */
#ifndef HAK_HEAP_HOMEWARD_H
#define HAK_HEAP_HOMEWARD_H

#include "heap/heap.h"

/* Adds a block that was just made FREE; when it is the last that fits, all are counted. */
void hak_homeward_add(struct heap *heap, const void *block, unsigned class_idx);

/* Counts the blocks that are not counted yet. */
void hak_homeward_flush(struct heap *heap);

/* Drops the counts: for the child of a fork, where all slabs are counted anew. */
void hak_homeward_forget(struct heap *heap);

/* Blocks that all heaps have made FREE and not counted yet. Any thread; a moment's figure. */
HAK_COLD size_t hak_homeward_uncounted(void);

#endif
