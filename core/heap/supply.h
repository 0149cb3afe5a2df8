/*
 * supply.h - where a heap's blocks come from: current slab, remote frees, warm pool, orphans, new slabs.
 *
 * The warm pool is a thread's short list of slabs of a class that are known to have free blocks. It holds
 * hints, not property: a slab in it that has become wholly free may be retired by whoever freed its last
 * block. All functions: the owning thread, no lock held.
 *
 * A class exports in a thread that allocates for others to free: refill follows refill without a spill, and
 * the blocks come back from other threads. What it has exhausted is then nobody's and goes to the orphans, of
 * which the fuller ones are taken first. Where a class exports in two threads or more these share its slabs:
 * also what is not exhausted goes there after each refill, so that producers that take turns hold two slabs
 * together (see slab/orphans.h) instead of one each. It ends with the first spill. The registry's tags stay
 * as they are meanwhile, unless the thread sends blocks of the class home itself and most of a slab is free:
 * it will free some of these, too, and those are its own then.
 */
#ifndef HAK_HEAP_SUPPLY_H
#define HAK_HEAP_SUPPLY_H

#include "heap/heap.h"

/* Takes 1 to `want` blocks of the class out of slabs into refs[0 ..]; 0 when out of memory. */
unsigned hak_supply_take(struct heap *heap, unsigned class_idx, struct block_ref *refs, unsigned want);

/* The same, or guests in slabs of other classes (slab/guests.h), which are only as aligned as every block. */
unsigned hak_supply_take_any(struct heap *heap, unsigned class_idx, struct block_ref *refs, unsigned want);

/* One block, likewise, for a class without a cache; false when out of memory. */
bool hak_supply_take_cold(struct heap *heap, unsigned class_idx, struct block_ref *ref);

/* The class's cache was full and is about to spill: it exports no longer. */
void hak_supply_note_spill(struct heap *heap, unsigned class_idx);

/* Whether the class exports in this heap and in others. */
bool hak_supply_shares(const struct heap *heap, unsigned class_idx);

/* In the child of a fork, alone: only the survivor (NULL: has no heap) may export, whatever others were at.
 */
HAK_COLD void hak_supply_forget_exporters(const struct heap *survivor);

/* Notes a leased slab of this heap in the warm pool; false when that is full. The caller releases it as WARM.
 */
bool hak_warm_push(struct heap *heap, struct slab *slab);

/* Hands the current slab and the warm pool over to the orphans. */
void hak_supply_flush(struct heap *heap, unsigned class_idx);

/* Takes up the slabs with remote frees: into warm pools, or to the orphans what does not fit. One that
 * somebody works on stays listed for the next visit, by this thread or the next that gets the heap. */
void hak_supply_drain_remote(struct heap *heap);

#endif
