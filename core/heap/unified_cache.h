/*
 * unified_cache.h - the one array of blocks per class and thread in front of everything: capacity, refill,
 * spill.
 *
 * LIFO at the top; spills the oldest half from the bottom. A class gets an array when it has proved hot; the
 * array starts small and doubles on overflow, up to a number of entries and a number of bytes in blocks; that
 * doubles once where it means few blocks and these prove too few. No thread ever touches another's. All
 * functions: the owning thread, no lock held.
 */
#ifndef HAK_HEAP_UNIFIED_CACHE_H
#define HAK_HEAP_UNIFIED_CACHE_H

#include "heap/heap.h"

/* Counts an operation on a cold class; true once it has proved hot and has its array. */
bool hak_cache_warms_up(struct heap *heap, unsigned class_idx);

/* Gives the class an array of at least `blocks` capacity (bounded) if it has none. False when out of memory.
 */
bool hak_cache_make_hot(struct heap *heap, unsigned class_idx, unsigned blocks);

/* Fills the empty cache from slabs; the number of blocks that it holds then, 0 when out of memory. */
unsigned hak_cache_refill(struct heap *heap, unsigned class_idx);

/* Adds blocks until the cache holds `blocks` or as many as it can, for prewarming. */
void hak_cache_fill(struct heap *heap, unsigned class_idx, unsigned blocks);

/* Makes room in a full cache: by doubling it where it ping-pongs, else by spilling the oldest half; while
 * what the thread holds ends by narrowing it, and one class more. */
void hak_cache_make_room(struct heap *heap, unsigned class_idx);

/* Returns every block of the cache; gives the array up unless keep_array. A purge step may be owed then. */
void hak_cache_flush(struct heap *heap, unsigned class_idx, bool keep_array);

/* Brings the capacity down to what the class may cache now (width.h). A purge step may be owed then. */
void hak_cache_fit(struct heap *heap, unsigned class_idx);

/*
 * How little of its cache a class needs is told by a mark: in place of the newest block stands what the
 * bottom has, NULL, so that an allocation that comes to it takes the slow path and moves it half of the way
 * down. What lies from the mark down has not been needed since it was set: hak_cache_mark() returns it, and
 * marks what is left. A cache whose blocks are moved, by a spill for one, loses its mark. A purge step may be
 * owed then.
 */
void hak_cache_mark(struct heap *heap, unsigned class_idx);

/* Whether the next block is the marked one, which hak_cache_lower_mark() puts back. */
HAK_INLINE bool hak_cache_is_at_mark(struct heap *heap, unsigned class_idx) {
    const struct class_state *state = &heap->classes[class_idx];
    return state->marked != 0 && *hak_heap_top_slot(heap, class_idx) == &state->array[state->marked + 1];
}
void hak_cache_lower_mark(struct heap *heap, unsigned class_idx);

/* Drops the array with what is in it: for the child of a fork, which has seen to the blocks. */
void hak_cache_forget(struct heap *heap, unsigned class_idx);

/* Blocks in the cache. */
unsigned hak_cache_count(struct heap *heap, unsigned class_idx);

#endif
