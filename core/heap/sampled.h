/*
 * sampled.h - guard sampling (HAKMEM_GUARD_SAMPLE=N): one of N allocations lies between guard pages, in
 * production.
 *
 * Decided where an allocation takes the slow path, by what the thread has taken from slabs since: a refill
 * counts as many as it brings. So the hit path is as ever, a block that a cache hands out again and again is
 * counted once, and N is met on average by what is newly taken. A sampled block has a record as in checked
 * mode (checked.h) and is handled by the same functions once it exists. All functions: any thread, no lock
 * held.
 */
#ifndef HAK_HEAP_SAMPLED_H
#define HAK_HEAP_SAMPLED_H

#include "heap/heap.h"
#include "meta/registry.h"

/* Begins sampling, in a constructor. */
void hak_sampled_start(void);

/*
 * In place of an ordinary allocation of `bytes` bytes for which there is no block in the cache, and which the
 * heap counts: a sampled block, zeroed, or NULL when it is not the turn of one, or there cannot be one.
 */
void *hak_sampled_alloc(struct heap *heap, size_t bytes);

/* After the ordinary allocation then: counts what a refill has left in the cache. */
void hak_sampled_count(struct heap *heap, size_t bytes);

/* realloc of a sampled block. */
void *hak_sampled_realloc(const char *function, void *block, size_t bytes);

#endif
