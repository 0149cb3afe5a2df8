/*
 * hakmem.h - the interface of hakmem beyond the C library's own names.
 *
 * A program needs nothing of this to run on hakmem: preloading or linking the library replaces malloc and its
 * relatives. The hak_ names are for programs that want to name the allocator, ask it questions, or give
 * memory back.
 *
 * Unless a function says otherwise: it may be called from any thread at any time, but not from a signal
 * handler that interrupted hakmem; blocks may be freed by any thread, with free() and hak_free() alike. Sizes
 * are in bytes. Usable from C and C++.
 */
#ifndef HAKMEM_H
#define HAKMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAK_VERSION_MAJOR 0
#define HAK_VERSION_MINOR 1
#define HAK_VERSION_PATCH 0

/* The library's version, as MAJOR * 10000 + MINOR * 100 + PATCH. Never fails. */
int hak_version(void);

/* ---- allocation -------------------------------------------------------------------------------- */

/*
 * Returns a block of at least `bytes` bytes, 16-byte aligned, or NULL with errno ENOMEM. A size of 0 gives a
 * block of its own that can be freed. The contents are undefined.
 */
void *hak_malloc(size_t bytes);

/* As hak_malloc(count * bytes) with every byte 0; NULL and ENOMEM also when the product overflows. */
void *hak_calloc(size_t count, size_t bytes);

/*
 * Makes the block `block` at least `bytes` bytes long, moving it if need be, and returns its address;
 * contents are kept up to the smaller of both sizes. NULL `block`: as hak_malloc. `bytes` 0 with a block:
 * frees it and returns NULL. On failure NULL with errno ENOMEM, and the block is as it was.
 */
void *hak_realloc(void *block, size_t bytes);

/*
 * As hak_malloc, at a multiple of `alignment`. NULL with errno EINVAL when alignment is not a power of two,
 * with ENOMEM when there is no memory.
 */
void *hak_aligned_alloc(size_t alignment, size_t bytes);

/*
 * Gives the block back; NULL is allowed; errno is kept. A pointer that is not the start of a live block ends
 * the program: one line on stderr names the fault, then abort().
 */
void hak_free(void *block);

/* How many bytes of the live block may be read and written: at least what was asked for. 0 for NULL. */
size_t hak_usable_size(const void *block);

/*
 * The usable size that a block of `bytes` bytes would have: asking for that much instead wastes nothing.
 * Where kept memory is reused, a block above 32 KiB may turn out to have more: as a rule an eighth at most,
 * seldom as much again, 1 MiB in all; one of 1 MiB and more less than a quarter and less than 1 MiB.
 * In checked mode, and for blocks that HAKMEM_GUARD_SAMPLE picks, it is what was asked for.
 * `bytes` itself if no such block can exist.
 */
size_t hak_good_size(size_t bytes);

/*
 * True when `pointer` points to the start of a live block of this heap. Any value may be asked about; nothing
 * that it points to is read. Another thread may free the block before the caller uses the answer.
 */
bool hak_owns(const void *pointer);

/*
 * Gives free memory of all threads back to the system, keeping at most about `keep_bytes` of it. Returns true
 * when anything was given back. Takes time in proportion to the heap.
 */
bool hak_trim(size_t keep_bytes);

/*
 * For programs that can move their blocks: true when moving this one would help to empty the memory around
 * it, which then goes back to the system. To move: allocate, copy, free the old block. Only blocks up to 32
 * KiB in memory that is at most three quarters used are named; false for everything else, any pointer value
 * included. A pass over all blocks leaves them nearly as dense as can be, a second one takes up what the
 * first had to leave; between passes nothing needs to be done, and a hint that is not followed costs nothing.
 * Some ten nanoseconds a call. The block must not be freed by another thread meanwhile.
 */
bool hak_defrag_hint(const void *block);

/* ---- statistics -------------------------------------------------------------------------------- */

#define HAK_STATS_VERSION 1
#define HAK_STATS_CLASSES 44

/* One class of blocks of up to 32 KiB. capacity == live + cached + free. */
struct hak_class_stats {
    size_t block_bytes;     /* size of a block */
    size_t slabs;           /* slabs of this class */
    size_t capacity_blocks; /* blocks that these slabs hold, and guests in others; less what guests cover */
    size_t live_blocks;     /* with the program */
    size_t cached_blocks;   /* in threads' unified caches */
    size_t free_blocks;     /* in the slabs, never used ones counted in */
};

/*
 * All figures are bytes unless named otherwise. mapped_bytes is what the kernel counts in Size for hakmem.
 * What no slab has of SuperSlabs counts in mapped_bytes and resident_bytes alone.
 */
struct hak_stats {
    uint32_t version;      /* in: HAK_STATS_VERSION */
    uint32_t struct_bytes; /* in: sizeof(struct hak_stats) */

    size_t live_bytes;     /* blocks with the program, at their usable size; in checked mode with red zones */
    size_t cached_bytes;   /* free blocks in threads' unified caches */
    size_t free_bytes;     /* free blocks in slabs, free page runs and kept mappings */
    size_t metadata_bytes; /* hakmem's own records, header maps and registry, as mapped */
    size_t mapped_bytes;   /* address space held by hakmem, reserved ranges counted in */
    size_t resident_bytes; /* of mapped_bytes, what is in memory now (asks the kernel) */

    size_t live_blocks;       /* number of live blocks of every size */
    size_t large_live_bytes;  /* of live_bytes, blocks above 32 KiB */
    size_t large_live_blocks; /* number of those */
    size_t superslabs;        /* number of 2 MiB SuperSlabs, empty ones counted in */
    size_t superslabs_empty;  /* of those, kept empty for reuse */
    size_t heaps;             /* number of threads that have a heap now */

    struct hak_class_stats classes[HAK_STATS_CLASSES];
};

/*
 * Fills *stats. Returns 0, or EINVAL when version or struct_bytes is none that this library knows. While
 * other threads allocate, each figure is right for some moment of the call, not all for the same one.
 */
int hak_stats_get(struct hak_stats *stats);

/*
 * Checks the invariants of the whole heap. Returns 0, or -1 with a sentence about the first one that is
 * broken in `why` (cut to why_bytes, always ended by a zero byte; NULL with 0 is allowed). Exact on a quiet
 * heap; what other threads move meanwhile is looked at again, for five seconds, before it is held against
 * them, and a slab that they never let go of is left out.
 */
int hak_verify(char *why, size_t why_bytes);

/*
 * Called once for each live block, with its address and usable size. A return value other than 0 ends the
 * walk. The visitor must not allocate, free or fork, nor ask what the heap holds.
 */
typedef int (*hak_block_visitor)(void *block, size_t usable_bytes, void *context);

/*
 * Visits every live block, in no particular order. Returns 0, or what the visitor returned to end the walk.
 * Blocks that other threads allocate or free meanwhile may or may not be visited; each other one is visited
 * once, but for those of slabs that other threads are at work on, and do not let go of within a second in
 * all.
 */
int hak_heap_walk(hak_block_visitor visitor, void *context);

#ifdef __cplusplus
}
#endif

#endif
