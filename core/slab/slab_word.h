/*
 * slab_word.h - the layout of a slab's word, and pure functions over it. No memory access here.
 *
 *   bits  0-15  counted free blocks, biased: a sweep may take bytes before their free is counted
 *   bit  16     leased
 *   bits 17-18  enum hak_place
 *   bit  19     assigned to a class
 *   bits 20-25  class
 *   bit  26     thin: nearly all blocks are free, and the pages beneath them count as dirty
 *   bit  27     blocks were freed by others than the owner since the lease was last given back
 *   bit  28     pages due: a free under somebody's lease left it thin or ragged; who gives that back sees to
 *               it, or the next one where it was given back for a refill
 *   bits 32-63  owner: number of a heap, 0 for nobody
 */
#ifndef HAK_SLAB_SLAB_WORD_H
#define HAK_SLAB_SLAB_WORD_H

#include "slab/slab.h"

#define HAK_COUNT_MASK      ((uint64_t)0xFFFF)
#define HAK_COUNT_BIAS      8192u
#define HAK_LEASED          ((uint64_t)1 << 16)
#define HAK_PLACE_SHIFT     17u
#define HAK_PLACE_MASK      ((uint64_t)3 << HAK_PLACE_SHIFT)
#define HAK_ASSIGNED        ((uint64_t)1 << 19)
#define HAK_CLASS_SHIFT     20u
#define HAK_CLASS_MASK      ((uint64_t)63 << HAK_CLASS_SHIFT)
#define HAK_THIN            ((uint64_t)1 << 26)
#define HAK_FOREIGN_FREES   ((uint64_t)1 << 27)
#define HAK_PAGES_DUE       ((uint64_t)1 << 28)
#define HAK_OWNER_SHIFT     32u
#define HAK_OWNER_MASK      ((uint64_t)UINT32_MAX << HAK_OWNER_SHIFT)
#define HAK_OWNER_NOBODY    0u
#define HAK_WORD_UNASSIGNED ((uint64_t)0)

_Static_assert(HAK_COUNT_BIAS > HAK_SLAB_BLOCKS_MAX, "a count may run below zero by a slab's capacity");
_Static_assert(HAK_COUNT_BIAS + 2 * HAK_SLAB_BLOCKS_MAX <= HAK_COUNT_MASK,
               "a count must not overflow its field");
_Static_assert(HAK_CLASS_COUNT <= 64, "six bits of class");

HAK_INLINE int hak_slab_word_count(uint64_t word) {
    return (int)(word & HAK_COUNT_MASK) - (int)HAK_COUNT_BIAS;
}

HAK_INLINE bool hak_slab_word_is_leased(uint64_t word) {
    return (word & HAK_LEASED) != 0;
}

HAK_INLINE bool hak_slab_word_is_assigned(uint64_t word) {
    return (word & HAK_ASSIGNED) != 0;
}

HAK_INLINE bool hak_slab_word_is_thin(uint64_t word) {
    return (word & HAK_THIN) != 0;
}

HAK_INLINE enum hak_place hak_slab_word_place(uint64_t word) {
    return (enum hak_place)((word & HAK_PLACE_MASK) >> HAK_PLACE_SHIFT);
}

HAK_INLINE unsigned hak_slab_word_class(uint64_t word) {
    return (unsigned)((word & HAK_CLASS_MASK) >> HAK_CLASS_SHIFT);
}

HAK_INLINE uint32_t hak_slab_word_owner(uint64_t word) {
    return (uint32_t)(word >> HAK_OWNER_SHIFT);
}

HAK_INLINE uint64_t hak_slab_word_with_place(uint64_t word, enum hak_place place) {
    return (word & ~HAK_PLACE_MASK) | ((uint64_t)place << HAK_PLACE_SHIFT);
}

HAK_INLINE uint64_t hak_slab_word_with_owner(uint64_t word, uint32_t owner) {
    return (word & ~HAK_OWNER_MASK) | ((uint64_t)owner << HAK_OWNER_SHIFT);
}

HAK_INLINE uint64_t hak_slab_word_with_count(uint64_t word, unsigned count) {
    return (word & ~HAK_COUNT_MASK) | (count + HAK_COUNT_BIAS);
}

/* What a word says, within the mask, of a slab that waits for its owner to take blocks of the class from it.
 */
#define HAK_WARM_MASK (HAK_ASSIGNED | HAK_PLACE_MASK | HAK_CLASS_MASK | HAK_OWNER_MASK)

HAK_INLINE uint64_t hak_slab_word_warm(unsigned class_idx, uint32_t owner) {
    return ((uint64_t)owner << HAK_OWNER_SHIFT) | ((uint64_t)class_idx << HAK_CLASS_SHIFT) | HAK_ASSIGNED |
           ((uint64_t)HAK_PLACE_WARM << HAK_PLACE_SHIFT);
}

/* Whether it says so, be it leased or not. */
HAK_INLINE bool hak_slab_word_is_warm(uint64_t word, unsigned class_idx, uint32_t owner) {
    return (word & HAK_WARM_MASK) == hak_slab_word_warm(class_idx, owner);
}

/* The word of a slab just set up: all blocks free, leased by the thread that does so. */
HAK_INLINE uint64_t hak_slab_word_initial(unsigned class_idx, uint32_t owner, unsigned capacity_blocks) {
    return ((uint64_t)owner << HAK_OWNER_SHIFT) | ((uint64_t)class_idx << HAK_CLASS_SHIFT) | HAK_ASSIGNED |
           HAK_LEASED | (capacity_blocks + HAK_COUNT_BIAS);
}

/* Blocks in use or cached, as far as frees are counted. A hint unless all threads are quiet. */
HAK_INLINE unsigned hak_slab_used_blocks(const struct slab *slab) {
    /* relaxed: what is freed meanwhile is counted by a swap that decides anew */
    return (unsigned)(slab->capacity_blocks - hak_slab_word_count(hak_atomic_load_relaxed(&slab->word)));
}

#endif
