/*
 * shadow.h - what the fuzzer knows about the blocks that it holds: the model that hakmem is compared with.
 *
 * A slot holds one block or none. Block contents are a pattern of the slot's own: whole in small blocks, in
 * large ones at both ends and at the starts of some pages, where a page that was lost or handed out twice
 * shows.
 */
#ifndef HAK_TESTS_FUZZ_SHADOW_H
#define HAK_TESTS_FUZZ_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHADOW_SLOTS 1024u

struct shadow_block {
    unsigned char *start; /* NULL: the slot is empty */
    size_t bytes;         /* asked for */
    size_t usable_bytes;
    size_t counted_bytes; /* by statistics: the whole block where a part of it is red zone */
    size_t align;         /* asked for, at least 16 */
    uint64_t seed;
};

extern struct shadow_block shadow_blocks[SHADOW_SLOTS];

struct shadow_sums {
    size_t blocks;
    size_t usable_bytes;
    size_t counted_bytes;
    uintptr_t addresses; /* each times its usable bytes: tells sets of blocks apart */
};
extern struct shadow_sums shadow_sums;

/* Enters a block that has just been allocated: checks alignment, length and that nobody has it; fills it. */
void shadow_enter(unsigned slot, void *start, size_t bytes, size_t align);

/* In checked mode: writes behind the block and aborts unless hak_verify says where; then puts it right again.
 */
void shadow_damage(const struct shadow_block *block, size_t offset);

/* Checks the contents and forgets the block; the caller then frees what is returned. */
void *shadow_remove(unsigned slot);

/* Forgets the block, whose contents nobody may look at any more. */
void shadow_forget(unsigned slot);

/* After a realloc of the slot's block that gave `start`: contents up to the smaller size, then as entered
 * anew. */
void shadow_resized(unsigned slot, void *start, size_t bytes);

/* Aborts unless the slot's block has its contents and, in checked mode, its red zone. */
void shadow_check(const struct shadow_block *block);

/* Aborts unless the bytes of the block are zero (looks where shadow blocks are written to). */
void shadow_check_zero(const void *start, size_t bytes);

/* Aborts when two blocks share a byte, or one's contents are gone. */
void shadow_check_all(void);

/* The slot of the live block that starts at the pointer, or -1. */
int shadow_find(const void *pointer);

/* The slot of the live block that the pointer points into, or -1. */
int shadow_find_around(const void *pointer);

#endif
