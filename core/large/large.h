/*
 * large.h - large blocks: all above HAK_MID_MAX_BYTES, and those whose alignment no slab class has.
 *
 * Below the map threshold a block is a run of OS pages in an extent (run.c), above it has a mapping of its
 * own (mapped.c). Descriptors are out of band and exact: only the start of a live block is accepted,
 * everything else ends in a fatal line. The caller has looked the registry word up; its kind is
 * HAK_KIND_EXTENT, HAK_KIND_MAPPED or HAK_KIND_LARGE_FREED.
 *
 * All functions: any thread, no lock of rank LARGE or above held, errno is left alone. `function` is the libc
 * function that the program called, for the fatal line.
 */
#ifndef HAK_LARGE_LARGE_H
#define HAK_LARGE_LARGE_H

#include "large/retain.h"
#include "meta/registry.h"

/*
 * Blocks of at least this many bytes get a mapping of their own (M_MMAP_THRESHOLD); 1 MiB at first. Above
 * 2 MiB they do in any case. Stored relaxed by anyone at any time.
 */
extern _Atomic size_t hak_large_map_threshold;

/*
 * Returns a block of at least `bytes` bytes (1 to HAK_BLOCK_BYTES_MAX; above that NULL) at a multiple of
 * `align`, a power of two of at least 16; in any case at a multiple of the OS page. *is_zero: every byte of
 * the block is known to be zero. NULL when out of memory.
 */
void *hak_large_alloc(size_t bytes, size_t align, bool *is_zero);

/* The same at the OS page's alignment for a request that hak_parked_take_latest() had nothing for. */
void *hak_large_alloc_other(size_t bytes);

/* The same at the OS page's alignment, the first `bytes` bytes zero; writes only to pages not known to be so.
 */
void *hak_large_calloc(size_t bytes);

/* Frees the block that starts at `p`. Fatal: double free, invalid pointer. May give memory back: slow. */
void hak_large_free(const char *function, void *p, hak_word word);

/* Bytes of the live block at `p`, all of which may be written. Fatal: use of a freed block, invalid pointer.
 */
size_t hak_large_usable(const char *function, const void *p, hak_word word);

/*
 * Makes the live block at `p` at least `bytes` bytes long (1 or more), in place if possible, else by moving
 * its pages or copying, and returns its address; contents are kept up to the smaller size. NULL when out of
 * memory, with the block untouched. Fatal: use of a freed block, invalid pointer.
 */
void *hak_large_realloc(const char *function, void *p, hak_word word, size_t bytes);

/* The usable size that a block of `bytes` bytes at the least alignment would have; `bytes` if there can be
 * none. */
size_t hak_large_good_size(size_t bytes);

/* Whether a live large block starts exactly at `p`. */
bool hak_large_owns(const void *p, hak_word word);

/*
 * The start of the live block with a mapping of its own that contains `p`, and its length; NULL when there is
 * none. For fatal paths: goes through all of them. (Units inside such blocks have no registry words.)
 */
HAK_COLD const void *hak_large_find(const void *p, size_t *bytes);

/* As hak_block_visitor: a value other than 0 ends the walk. */
typedef int (*hak_large_visitor)(void *block, size_t usable_bytes, void *context);

/*
 * Visits every live large block, holding no lock while the visitor runs, which may therefore allocate and
 * free; blocks that come or go meanwhile may or may not be visited. Returns 0 or what ended the walk.
 */
HAK_COLD int hak_large_walk(hak_large_visitor visitor, void *context);

/*
 * Visits the address space of extents, live blocks and kept mappings, with no lock held. A range that goes
 * meanwhile may be visited after it went.
 */
void hak_large_visit_mapped(hak_range_visitor visitor, void *context);

struct hak_large_counts {
    size_t live_blocks;
    size_t live_bytes;     /* at their usable size */
    size_t mapped_blocks;  /* of live_blocks, those with a mapping of their own */
    size_t mapped_bytes;   /* of live_bytes, the same */
    size_t free_run_bytes; /* in extents: free pages, those being purged counted in */
    size_t kept_blocks;    /* free mappings kept for reuse */
    size_t kept_bytes;     /* their length */
    size_t dirty_bytes;    /* of both kinds of free memory, what a purge would give back */
    size_t empty_extents;  /* extents without a live block */
};
HAK_COLD struct hak_large_counts hak_large_count(void);

/*
 * Gives back some of what a large free left above the floor, if it did: for slow operations on small blocks,
 * so that it goes back though no large block is touched. No lock held.
 */
void hak_large_pay_debt(void);

/*
 * Gives free large memory back until at most about keep_bytes of it hold data; with 0 also what is clean, and
 * empty extents to the SuperSlab pool. Slow: no lock held. Returns the bytes given back.
 */
HAK_COLD size_t hak_large_trim(size_t keep_bytes);

/* Checks every invariant of the floor. False with a sentence in *why about one that is broken. */
HAK_COLD bool hak_large_verify(const char **why);

/*
 * For the child of a fork, in its only thread: memory that other threads were purging is free again. Pieces
 * that they were moving or unmapping stay lost to the child.
 */
void hak_large_fork_child(void);

#endif
