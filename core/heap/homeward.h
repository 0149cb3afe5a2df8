/*
 * homeward.h - a thread's batch of freed blocks that belong to slabs of other threads, on their way home.
 *
 * Such a block is not handed out again by the thread that freed it: its neighbours, and the neighbours of its
 * header, are in use elsewhere, and every write would take a cache line from there. The batch keeps the price
 * of a remote free at one store and a share of one atomic addition to a slab's count. Blocks in it are
 * CACHED. All functions: the owning thread, no lock held.
 */
#ifndef HAK_HEAP_HOMEWARD_H
#define HAK_HEAP_HOMEWARD_H

#include "heap/heap.h"

/* Adds a block that was just marked CACHED; when it is the last that fits, all go home. */
void hak_homeward_add(struct heap *heap, struct block_ref ref, unsigned class_idx);

/* Returns the blocks of the batch; gives its array up unless keep_array. */
void hak_homeward_flush(struct heap *heap, bool keep_array);

/* Drops the array with what is in it: for the child of a fork, which has seen to the blocks. */
void hak_homeward_forget(struct heap *heap);

#endif
