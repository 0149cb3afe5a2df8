/*
 * slots.h - a set of live blocks with known contents, and the random load that stress tests put on it.
 *
 * A slot holds one block or none. Its contents are a pattern of its own seed, checked before every free and
 * resize, so that two live blocks that overlap, or a block written by the allocator, are found.
 * No locking: a set belongs to one thread at a time. Allocation failure leaves the slot empty, never aborts.
 */
#ifndef HAK_TESTS_SUPPORT_SLOTS_H
#define HAK_TESTS_SUPPORT_SLOTS_H

#include "support/rng.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slot {
    unsigned char *block; /* NULL: empty */
    size_t bytes;         /* asked for */
    uint64_t seed;        /* of the pattern */
    bool is_sparse;       /* pattern_mark, not pattern_fill */
    bool is_dense;        /* set by the owner: never sparse, however large the block */
};

/* Size range and mix of one load. The parts per 256 that are not named here are plain malloc. */
struct load {
    size_t low_bytes, high_bytes; /* logarithmically distributed */
    unsigned calloc_parts;
    unsigned realloc_parts;
    unsigned memalign_parts;
};

/* Puts a block into the empty slot. False: no memory, slot still empty. */
bool slot_fill(struct slot *slot, const struct load *load, struct rng *rng);

/* Resizes the block of a full slot to a random size of the load; contents checked. False: no memory, kept. */
bool slot_resize(struct slot *slot, const struct load *load, struct rng *rng);

/* Aborts unless the slot is empty or its contents hold. */
void slot_check(const struct slot *slot);

/* Checks and frees; does nothing to an empty slot. */
void slot_clear(struct slot *slot);
void slots_clear(struct slot *slots, size_t count);

/* One random step on a random slot: fill an empty one; resize, or clear and refill, a full one. */
void slots_step(struct slot *slots, size_t count, const struct load *load, struct rng *rng);

/* `steps` random steps of the load on each of four threads, the caller's one of them, then everything freed.
 */
void slots_load_threads(const struct load *load, unsigned steps);

/* Aborts when two live blocks of the set share a byte. Allocates nothing; sorts the slots. */
void slots_check_overlap(struct slot *slots, size_t count);

#endif
