/*
 * child.h - putting the heap right in the child of a fork, where the other threads were cut off anywhere.
 *
 * Locks are consistent, because the forking thread held them all. What is not: blocks in the caches of
 * threads that do not exist, slabs they had leased, frees they had stored and not counted. The header maps
 * are the truth: once the surviving thread has given up its own cache, every CACHED byte belongs to nobody,
 * becomes FREE, and each slab is counted anew. That costs a look at every map, so it is left to the first
 * slow operation in the child: one that goes straight to exec never pays.
 */
#ifndef HAK_HEAP_CHILD_H
#define HAK_HEAP_CHILD_H

#include "base/atomic.h"
#include "base/compiler.h"

/* In the child, before anything else and alone. Does nothing more when no other thread has ever had a heap.
 */
HAK_COLD void hak_child_begin(void);

extern _Atomic bool hak_child_waits;

/* Whether the rebuild is still to be done. */
HAK_INLINE bool hak_child_is_pending(void) {
    /* acquire: pairs with the store in rebuild_once() */
    return HAK_UNLIKELY(hak_atomic_load_acquire(&hak_child_waits));
}

/* At the start of every slow operation. */
void hak_child_rebuild_if_pending(void);

/* For the fork handlers. */
extern struct hak_lock hak_child_lock;

#endif
