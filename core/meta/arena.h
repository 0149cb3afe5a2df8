/*
 * arena.h - memory for hakmem's own records: SuperSlab records, heaps, caches, descriptors. Header maps have
 * memory of their own kind (maps.h), which comes from here.
 *
 * Lives in mappings of its own with an inaccessible OS page on either side, never next to a block. Given out
 * in whole cache lines; what is freed is kept for reuse by size, never unmapped, so that a stale look-up
 * reads something harmless. Any thread; one lock of rank META inside, not held across system calls.
 */
#ifndef HAK_META_ARENA_H
#define HAK_META_ARENA_H

#include "base/compiler.h"
#include "os/lock.h"

#define HAK_META_BYTES_MAX ((size_t)64 * 1024)

/* Returns `bytes` (1 to HAK_META_BYTES_MAX) zeroed bytes, aligned to a cache line, or NULL when out of
 * memory. */
void *hak_meta_alloc(size_t bytes);

/* Takes back what hak_meta_alloc(bytes) returned. */
void hak_meta_free(void *memory, size_t bytes);

/* Stores zeros into whole words, by atomic stores: a stale look-up may be reading there. */
void hak_meta_clear(void *memory, size_t bytes);

/*
 * Zeroed memory for good, whole OS pages of them, between two guard pages: the caller's but for its first
 * line, which is this floor's. NULL when out of memory. Slow: no lock held.
 */
void *hak_meta_map_chunk(size_t bytes);
#define HAK_META_CHUNK_LEAD_LINES 1u

/* Mapped bytes of all arenas, guard pages counted in. */
size_t hak_meta_mapped_bytes(void);

/* Visits the memory of every arena, guard pages left out. */
void hak_meta_visit_mapped(hak_range_visitor visitor, void *context);

/* For fork: the lock of this file, and of maps.c. */
extern struct hak_lock hak_meta_lock;

#endif
