/*
 * front.h - the hit paths of allocation and free, and their cold twins.
 *
 * A hit is one straight line: no loop, no call, no test for "initialised". What is folded into a test that is
 * needed anyway, and what guarantees it:
 *   allocation: size 0 and sizes of the large floor      one compare of size - 1
 *               no heap yet, class cold, cache empty,
 *               front metered                            the entry under the top has block NULL
 *   free:       NULL, not ours, large, interior          the row's reciprocal is 0, or the product is inexact
 *               double free, damaged header              the header byte is not the class's LIVE
 *               no heap yet, class cold, cache full,
 *               front metered                            the slot above the top has block STOP
 */
#ifndef HAK_HEAP_FRONT_H
#define HAK_HEAP_FRONT_H

#include "heap/heap.h"
#include "meta/classes.h"
#include "meta/registry.h"
#include "os/fatal.h"
#include <string.h>

/* Modes in which every operation takes the slow path, there to be counted or changed. Cost nothing while off.
 */
#define HAK_FRONT_METERED 1u /* exact counters in any build */
#define HAK_FRONT_PERTURB 2u /* mallopt(M_PERTURB) */

/*
 * Sets the modes; a thread takes them up at its next slow operation (the calling one at once). perturb_byte
 * as in mallopt(3): new blocks are filled with its complement, freed ones with itself.
 */
void hak_front_set_modes(unsigned modes, uint8_t perturb_byte);
unsigned hak_front_modes(void);

/* The cold twins. `bytes` of 0 or above HAK_MID_MAX_BYTES are welcome; NULL with errno ENOMEM when out of
 * memory. */
void *hak_alloc_slow(size_t bytes);
void *hak_calloc_slow(size_t bytes);

/*
 * Frees what the hit path could not, or ends the program: `function` is the name of the C library's function
 * that was called, for the fatal line. Keeps errno.
 */
void hak_free_slow(void *block, const char *function);

/* Where a block is and which one: what every question about a pointer starts with. */
struct block_place {
    bool is_exact;      /* the pointer is the start of a block of a slab; otherwise block_idx means nothing */
    uint64_t block_idx; /* in its slab */
    const struct hak_registry_row *row;
    hak_word word;
};

HAK_ALWAYS_INLINE struct block_place hak_place_of(const void *pointer) {
    struct block_place place;
    struct hak_registry *registry = hak_registry_base();
    place.word = hak_registry_word_in(registry, pointer);
    place.row = hak_word_row_in(registry, place.word);
    uint64_t offset = (uint64_t)(uint16_t)(uintptr_t)pointer + place.row->offset_bias;
    unsigned __int128 product = (unsigned __int128)offset * place.row->reciprocal;
    place.is_exact = (uint64_t)product < place.row->reciprocal;
    place.block_idx = (uint64_t)(product >> 64);
    return place;
}

/* The header of an exact place. */
HAK_ALWAYS_INLINE hak_header *hak_place_header(struct block_place place) {
    return (hak_header *)hak_word_address(place.word) + place.block_idx;
}

/*
 * The top pointer of an exact place's class. It is on the way from this free to the next malloc of the class,
 * so it is found as early as can be: not by the header, and for the first unit of a slab not by the row
 * either, but by the word.
 */
HAK_ALWAYS_INLINE struct block_ref **hak_top_slot_of(struct block_place place) {
    size_t scaled_row = (uint16_t)place.word;
    if (HAK_LIKELY(scaled_row < (HAK_FIRST_SLAB_ROW + HAK_CLASS_COUNT) * HAK_WORD_ROW_SCALE)) {
        uintptr_t row_0 = (uintptr_t)hak_tls.top - HAK_FIRST_SLAB_ROW * HAK_WORD_ROW_SCALE;
        return (struct block_ref **)(row_0 + scaled_row);
    }
    return &hak_tls.top[place.row->class_idx];
}

/*
 * LIVE -> CACHED. Two threads that free one block within some hundred nanoseconds can both pass the check
 * before: in the debug flavour an exchange tells them apart, in release that would cost every free a locked
 * instruction.
 */
HAK_ALWAYS_INLINE void hak_live_to_cached(hak_header *header, void *block, const char *function) {
    if (HAKMEM_BUILD_RELEASE) {
        /* relaxed: the freeing thread's own business until it returns the block */
        hak_atomic_store_relaxed(header, HAK_HEADER_CACHED);
        return;
    }
    /* relaxed: only which of two frees came first matters */
    unsigned before = hak_atomic_exchange_relaxed(header, HAK_HEADER_CACHED);
    if (before < HAK_HEADER_LIVE) {
        hak_fatal_pointer(function, HAK_FAULT_DOUBLE_FREE, block,
                          hak_class_block_bytes[hak_slab_of_block(block)->class_idx]);
    }
}

/* Gives a block out: its header becomes LIVE. */
HAK_ALWAYS_INLINE void *hak_ref_to_live(struct block_ref ref, size_t live_header) {
    /* relaxed: CACHED to LIVE is the allocating thread's own business until it hands the block on */
    hak_atomic_store_relaxed(ref.header, (uint8_t)live_header);
    return ref.block;
}

HAK_ALWAYS_INLINE void hak_count_hit(unsigned class_idx) {
    if (HAKMEM_DEBUG_COUNTERS) {
        HAK_COUNT(&hak_tls.heap->classes[class_idx].counters, allocations, 1);
        HAK_COUNT(&hak_tls.heap->classes[class_idx].counters, cache_hits, 1);
    }
}

HAK_ALWAYS_INLINE void *hak_alloc_gate(size_t bytes) {
    if (HAK_UNLIKELY(bytes - 1 >= HAK_MID_MAX_BYTES)) {
        return hak_alloc_slow(bytes);
    }
    size_t live_header = hak_live_header_of_size[(bytes - 1) >> HAK_SIZE_SHIFT];
    struct block_ref *top = hak_tls.top[live_header - HAK_HEADER_LIVE] - 1;
    if (HAK_UNLIKELY(top->block == NULL)) {
        return hak_alloc_slow(bytes);
    }
    hak_tls.top[live_header - HAK_HEADER_LIVE] = top;
    hak_count_hit(live_header - HAK_HEADER_LIVE);
    return hak_ref_to_live(*top, live_header);
}

HAK_ALWAYS_INLINE void *hak_calloc_gate(size_t count, size_t each_bytes) {
    size_t bytes;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, each_bytes, &bytes))) {
        return hak_calloc_slow(SIZE_MAX);
    }
    if (HAK_UNLIKELY(bytes - 1 >= HAK_MID_MAX_BYTES)) {
        return hak_calloc_slow(bytes);
    }
    size_t live_header = hak_live_header_of_size[(bytes - 1) >> HAK_SIZE_SHIFT];
    struct block_ref *top = hak_tls.top[live_header - HAK_HEADER_LIVE] - 1;
    if (HAK_UNLIKELY(top->block == NULL)) {
        return hak_calloc_slow(bytes);
    }
    hak_tls.top[live_header - HAK_HEADER_LIVE] = top;
    hak_count_hit(live_header - HAK_HEADER_LIVE);
    /* relaxed: the block is this thread's */
    bool is_zero = hak_atomic_load_relaxed(top->header) == HAK_HEADER_CACHED_ZERO;
    void *block = hak_ref_to_live(*top, live_header);
    return is_zero ? block : memset(block, 0, bytes);
}

HAK_ALWAYS_INLINE void hak_free_gate(void *block, const char *function) {
    struct block_place place = hak_place_of(block);
    if (HAK_UNLIKELY(!place.is_exact)) {
        hak_free_slow(block, function);
        return;
    }
    hak_header *header_byte = hak_place_header(place);
    /* relaxed: LIVE was stored by the thread that allocated; the program has ordered that before this call */
    size_t header = hak_atomic_load_relaxed(header_byte);
    if (HAK_UNLIKELY(header != place.row->live_header)) {
        hak_free_slow(block, function);
        return;
    }
    struct block_ref **slot = hak_top_slot_of(place);
    struct block_ref *top = *slot;
    if (HAK_UNLIKELY(top->block == HAK_CACHE_STOP)) {
        hak_free_slow(block, function);
        return;
    }
    hak_live_to_cached(header_byte, block, function);
    *top = (struct block_ref){.block = block, .header = header_byte};
    *slot = top + 1;
    if (HAKMEM_DEBUG_COUNTERS) {
        HAK_COUNT(&hak_tls.heap->classes[place.row->class_idx].counters, frees, 1);
    }
}

#endif
