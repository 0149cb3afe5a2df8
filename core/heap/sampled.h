/*
 * sampled.h - guard sampling (HAKMEM_GUARD_SAMPLE=N): one of N allocations lies between guard pages, in
 * production.
 *
 * Each thread counts its allocations down in hak_tls.until_slow, on the hit path too; the one that brings
 * it below 0 takes the slow path. A sampled block has a record as in checked mode (checked.h) and is handled
 * by the same functions once it exists. All functions: any thread, no lock held.
 */
#ifndef HAK_HEAP_SAMPLED_H
#define HAK_HEAP_SAMPLED_H

#include "conf/options.h"
#include "heap/heap.h"
#include "meta/registry.h"

/* Begins sampling, in a constructor. */
void hak_sampled_start(void);

/* While it samples: whether the allocation just counted is certainly not one to be sampled. */
HAK_INLINE bool hak_sampled_passes(void) {
    return (uint64_t)hak_tls.until_slow <= 2 * (uint64_t)hak_options.guard_sample;
}

/*
 * In place of an ordinary allocation of `bytes` bytes that is counted: a sampled block, zeroed, or NULL when
 * it is not the turn of one, or there cannot be one.
 */
void *hak_sampled_alloc(struct heap *heap, size_t bytes);

/* free of what may be a sampled block: frees it, or ends the program with a report. */
void hak_sampled_free(void *block, const char *function);

/* realloc of a sampled block. */
void *hak_sampled_realloc(const char *function, void *block, size_t bytes);

#endif
