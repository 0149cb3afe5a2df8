/*
 * checked.h - checked mode (HAKMEM_CHECK=1): what the slow paths do instead, when every operation comes to
 * them.
 *
 * Each block has a record and a red zone; freed blocks are filled, wait in quarantine and are looked at when
 * they leave it. Blocks that a slab cannot hold lie between guard pages. What was allocated before the mode
 * began has no record and is handled as in ordinary mode. All functions: any thread, no lock held.
 */
#ifndef HAK_HEAP_CHECKED_H
#define HAK_HEAP_CHECKED_H

#include "base/compiler.h"
#include "hakmem.h"
#include "heap/front.h"
#include "os/lock.h"

/* Of what the process may map: one is for blocks that wait, one for slots of sampled blocks. */
#define HAK_SPACE_PARTS 8u

/* Begins HAK_FRONT_CHECKED, or HAK_FRONT_SAMPLED for sampled.c, in a constructor. */
void hak_checked_start(unsigned mode);

/* A zeroed block between guard pages; NULL when there cannot be one. errno is left alone. */
void *hak_checked_alloc_guarded(size_t bytes, unsigned align_shift);

/*
 * A block of `bytes` bytes at a multiple of `align`, a power of two of at least 16; zeroed, or filled with a
 * value that is not zero. NULL with errno ENOMEM.
 */
void *hak_checked_alloc(size_t bytes, size_t align, bool is_zeroed);

/* Frees the block, or ends the program with a report; a wrong claim is fatal too. errno is kept. */
void hak_checked_free(void *block, const char *function, struct hak_claim claim);

/* Not for NULL, as the questions below. */
void *hak_checked_realloc(const char *function, void *block, size_t bytes);
/* Ends the program if the pointer leads into or beside a block that has a record, but not to its start. */
void hak_checked_die_if_invalid(const char *function, const void *pointer);

size_t hak_checked_usable(const char *function, const void *block);
/* Whether a block that is live to the rest of the heap is not being freed; *bytes becomes its size, if it has
 * a record. */
bool hak_checked_is_live(const void *block, size_t *bytes);

bool hak_checked_owns(const void *pointer);

/* NULL, or a sentence about the first damage, whose report is on stderr. */
const char *hak_checked_verify(void);

/* At exit: ends the program if any block is damaged. */
void hak_checked_end(void);

/* Empties the quarantine: when memory is short. */
void hak_checked_empty_quarantine(void);

/* In the child of a fork whose header maps will be rebuilt, which frees what is quarantined in slabs, and
 * what threads that are gone were freeing there. */
void hak_checked_child_begin(void);

/* The live blocks that lie between guard pages: visited as by hak_heap_walk(), and counted. */
int hak_checked_walk(hak_block_visitor visitor, void *context);
void hak_checked_count(size_t *blocks, size_t *bytes);

/* For the fork handlers. */
void hak_checked_for_each_lock(void (*action)(struct hak_lock *));

#endif
