/*
 * kit.h - what the scenarios share: small slabs, blocks in use, the look at the end.
 */
#ifndef MODEL_KIT_H
#define MODEL_KIT_H

#include "heap/heap.h"
#include "model/model.h"
#include "slab/blocks.h"
#include "support/classes.h"

/* A class with few blocks in a slab of one unit: eight of 8 KiB. */
#define KIT_CLASS  ((unsigned)CLASS_OF_8192)
#define KIT_BLOCKS 8u

/* One with sixteen, of 4 KiB. */
#define KIT_CLASS_MANY  ((unsigned)CLASS_OF_4096)
#define KIT_BLOCKS_MANY 16u

/* Gives the calling thread a heap. */
void kit_attach(void);

/* The calling thread's heap takes `count` blocks and gives them to the program. */
void kit_take(unsigned class_idx, struct block_ref *refs, unsigned count);

/* The same for so many of KIT_CLASS, more than a slab has; the first two lie in different slabs. */
void kit_take_of_two_slabs(struct block_ref *refs, unsigned count);

/* A refill of one block of KIT_CLASS, which is the caller's alone. */
void kit_refill(struct block_ref *ref);

/* The program writes to the block: a race with whoever else believes that it has it. */
void kit_use(const struct block_ref *ref);

/* Frees blocks as a full cache or batch of the calling thread does. */
void kit_return(const struct block_ref *refs, unsigned count);

/* The program writes to the block for the last time, and frees it. */
void kit_free(const struct block_ref *ref);

/* The slab of a block. */
struct slab *kit_slab(const struct block_ref *ref);

/* After the threads: verification finds nothing broken. */
void kit_is_sound(void);

/* How many of the blocks have that header now. */
unsigned kit_count(const struct block_ref *refs, unsigned count, uint8_t header);

#endif
