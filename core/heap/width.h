/*
 * width.h - how much of a class a thread may cache: a plain bound in bytes and in blocks, and up to eight
 * times as many bytes for a class that swings.
 *
 * A program that builds something up and tears it down again allocates many blocks of a class in a row and
 * then frees as many: the cache spills again and again, and refills again and again, and every block goes
 * through its slab each time. Six such swings in a row, each of at least twice the capacity, widen the bound
 * to what they went through. Blocks that come and go by chance do not get there: one spill in two is followed
 * by another, one refill in three by two others. Where the bound means few blocks, chance goes to and fro
 * over it too: 32 times double it, once.
 *
 * Swings that spill at most half the capacity, eight in a row, may fit in it: if the first spill returned as
 * much as refills bring, those that do would spill and refill each time. The next 16 first spills are small,
 * so that they are soon served by the cache alone; and twelve that go through half the capacity all the same
 * widen the bound as well.
 *
 * What does not swing but ends: spills in a row, without a refill, that go through twice the capacity, for
 * the first time in a second. The program then frees what it may never need again, in whatever order, and
 * each block that stays in a cache pins an OS page; so each further spill of the row narrows the cache, down
 * to what it began with, or to fewer of large blocks or of many threads. A program that builds up again at
 * once pays for one narrowing a second. What its caches then pin after further ends counts as kept until they
 * are empty again, and where that is too much for all threads together, those ends narrow as well.
 *
 * Where the sizes are many, no class spills far. So what any of them spills counts for the thread as a whole
 * too, as long as no class is refilled: a MiB of it, for the first time in a second, is an end as well, and
 * each further spill narrows one more of the classes, whatever it did itself. What all caches pin after
 * further such rows counts as kept too, until each is empty again.
 *
 * What is wide waits in the thread's cache for as long as it swings. Where memory is being given back, each
 * spill narrows by half; a class that has stopped swinging is narrowed by upkeep (heap/upkeep.h). All
 * classes of a thread together have a bound, and all threads HAKMEM_RETAIN_MB, floors and what is kept
 * counted in. All functions: the owning thread.
 */
#ifndef HAK_HEAP_WIDTH_H
#define HAK_HEAP_WIDTH_H

#include "heap/heap.h"

/* How many blocks of the class the thread may cache now. */
unsigned hak_width_capacity(const struct heap *heap, unsigned class_idx);

/* The capacity that no cache is narrowed further than but where all end: fewer of large blocks, and where the
 * process has many threads. */
unsigned hak_width_least(unsigned class_idx);

/* The capacity that each cache is narrowed to while heap->row.is_ending: at an end fewer of the largest
 * blocks.
 */
unsigned hak_width_least_at_end(const struct heap *heap, unsigned class_idx);

/* A row of refills has ended: the cache is full. Its capacity may be larger from now on. */
void hak_width_note_swing(struct heap *heap, unsigned class_idx);

/* How many of the `half` blocks that are its older half a full cache should spill: after shallow swings the
 * first two spills of a row return a quarter of them and the third the rest. */
unsigned hak_width_spill(const struct heap *heap, unsigned class_idx, unsigned half);

/* The cache is empty: it keeps nothing from going back, and no row of frees goes on. */
void hak_width_note_empty(struct heap *heap, unsigned class_idx);

/*
 * A full cache is about to spill `blocks` blocks: part of the row of all classes, which sets
 * heap->row.is_ending. What is wide does not count.
 */
void hak_width_note_row(struct heap *heap, unsigned class_idx, unsigned blocks);

/*
 * The same for the class, where no debt holds spills back. True if what the program frees in this row, or in
 * that of all classes, looks like the end of something, or keeps too much, and the cache should become
 * narrower.
 */
bool hak_width_note_spill(struct heap *heap, unsigned class_idx, unsigned blocks);

/* So many blocks of the class were returned to their slabs, which have so many units beneath them at most. */
void hak_width_note_returned(struct heap *heap, unsigned class_idx, unsigned blocks, unsigned units);

/* Halves what is beyond the plain bound, if anything is. */
void hak_width_narrow(struct heap *heap, unsigned class_idx);

/* The plain bound again, without proofs, and nothing kept: what the cache holds ends. */
void hak_width_end(struct heap *heap, unsigned class_idx);

/* The plain bound again, as for a heap's next thread. */
void hak_width_reset(struct heap *heap, unsigned class_idx);

/* Looks at a wide class with `count` blocks in its cache. True once it has not swung for some looks. */
bool hak_width_is_idle(struct heap *heap, unsigned class_idx, unsigned count);

#endif
