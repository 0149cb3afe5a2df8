/*
 * reclaim.h - giving everything back that is free, for malloc_trim and before an allocation fails.
 */
#ifndef HAK_HEAP_RECLAIM_H
#define HAK_HEAP_RECLAIM_H

#include "heap/heap.h"

/*
 * Empties the heap's caches (NULL: none) and the quarantine of a mode that has one, then gives all free
 * memory of slabs and of the large floor back to the system. Slow: no lock held.
 */
HAK_COLD void hak_reclaim_everything(struct heap *heap);

/* The same, and free blocks in every thread's slabs are any thread's: before a small block is refused. */
HAK_COLD void hak_reclaim_blocks(struct heap *heap);

/*
 * malloc_trim: what hak_reclaim_everything() does for the calling thread's heap, but for the quarantine, and
 * pages beneath free blocks of every thread's slabs; keeps about keep_bytes. Returns the bytes given back.
 * Takes time in proportion to the heap. Any thread.
 */
HAK_COLD size_t hak_reclaim_pages(size_t keep_bytes);

#endif
