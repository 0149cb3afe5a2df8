/*
 * arena.h - memory for hakmem's own records: header maps, SuperSlab records, heaps, caches, descriptors.
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

/*
 * Header maps keep to themselves: memory that was once a map is never anything else, and is cleared by atomic
 * stores, because a look-up of a stale or wild pointer may read it at any time.
 */
enum hak_meta_kind { HAK_META_RECORD, HAK_META_MAP, HAK_META_KINDS };

/* Returns `bytes` (1 to HAK_META_BYTES_MAX) zeroed bytes, aligned to a cache line, or NULL when out of
 * memory. */
void *hak_meta_alloc(size_t bytes);
void *hak_meta_alloc_kind(enum hak_meta_kind kind, size_t bytes);

/* Takes back what hak_meta_alloc(bytes) or hak_meta_alloc_kind(kind, bytes) returned. */
void hak_meta_free(void *memory, size_t bytes);
void hak_meta_free_kind(enum hak_meta_kind kind, void *memory, size_t bytes);

/* Mapped bytes of all arenas, guard pages counted in. */
size_t hak_meta_mapped_bytes(void);

/* Visits the memory of every arena, guard pages left out. */
void hak_meta_visit_mapped(hak_range_visitor visitor, void *context);

/* For fork: the lock of this file. */
extern struct hak_lock hak_meta_lock;

#endif
