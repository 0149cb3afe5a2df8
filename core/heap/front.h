/*
 * front.h - the hit paths of allocation and free, and their cold twins.
 *
 * A hit is one straight line: no loop, no call, no test for "initialised". What each test covers:
 *
 * - allocation, the count down: any size, time for upkeep or a sampled block (heap/upkeep.h, heap/sampled.h);
 * - allocation, size - 1 against a bound: size 0, sizes of the large floor;
 * - allocation, the entry under the top has block NULL: no heap yet, class cold, cache empty, front metered;
 * - free, the word less the own one is no class: NULL, not ours, large, further unit, another
 *   thread's slab;
 * - free, the product is inexact: interior pointers;
 * - free, the header byte is not the class's LIVE: double free, damaged header;
 * - free, the slot above the top has block STOP: no heap yet, class cold, cache full, front metered.
 */
#ifndef HAK_HEAP_FRONT_H
#define HAK_HEAP_FRONT_H

#include "base/assert.h"
#include "heap/heap.h"
#include "meta/classes.h"
#include "meta/registry.h"
#include "os/fatal.h"
#include <string.h>

/* Modes in which every operation takes the slow path, there to be counted or changed. Cost nothing while off.
 */
#define HAK_FRONT_METERED         1u /* exact counters in any build */
#define HAK_FRONT_PERTURB         2u /* mallopt(M_PERTURB) */
#define HAK_FRONT_CHECKED         4u /* HAKMEM_CHECK: see heap/checked.h */
#define HAK_FRONT_EVERY_OPERATION (HAK_FRONT_METERED | HAK_FRONT_PERTURB | HAK_FRONT_CHECKED)

/* A mode of the slow path alone. */
#define HAK_FRONT_SAMPLED 8u /* HAKMEM_GUARD_SAMPLE: see heap/sampled.h */

/*
 * Sets the modes; a thread takes them up at its next slow operation (the calling one at once). perturb_byte
 * as in mallopt(3): new blocks are filled with its complement, freed ones with itself.
 */
HAK_COLD void hak_front_set_modes(unsigned modes, uint8_t perturb_byte);

extern _Atomic unsigned hak_front_modes_now;

/* The calling thread's heap in the mode that is asked for; NULL if it cannot have one. At the start of slow
 * operations. */
struct heap *hak_front_heap(void);

/* NULL, with errno ENOMEM. */
void *hak_front_out_of_memory(void);

HAK_INLINE unsigned hak_front_modes(void) {
    return hak_atomic_load_relaxed(&hak_front_modes_now); /* relaxed: threads may take a mode up late */
}

/* The cold twins. `bytes` of 0 or above HAK_MID_MAX_BYTES are welcome; NULL with errno ENOMEM when out of
 * memory. */
void *hak_alloc_slow(size_t bytes);
void *hak_calloc_slow(size_t bytes);

HAK_INLINE bool hak_front_is_metered(void) {
    return HAK_UNLIKELY((hak_front_modes() & HAK_FRONT_EVERY_OPERATION) != 0);
}

/* Whether the process samples: see heap/sampled.h. */
HAK_INLINE bool hak_front_samples(void) {
    return (hak_front_modes() & HAK_FRONT_SAMPLED) != 0;
}

/* Whether some blocks have records: see heap/checked.h. */
HAK_INLINE bool hak_keeps_records(void) {
    return HAK_UNLIKELY((hak_front_modes() & (HAK_FRONT_CHECKED | HAK_FRONT_SAMPLED)) != 0);
}

/* Whether the calling process is in checked mode. */
HAK_INLINE bool hak_is_checked(void) {
    return HAK_UNLIKELY((hak_front_modes() & HAK_FRONT_CHECKED) != 0);
}

/* A block in a slab of its class, aligned as those are; up to HAK_MID_MAX_BYTES. NULL with errno ENOMEM. */
HAK_COLD void *hak_alloc_no_guest(size_t bytes);

/* The same without regard to modes, for those who carry them out: blocks of ordinary make. */
void *hak_alloc_plain(size_t bytes);
void hak_free_plain(void *block, const char *function);
size_t hak_usable_plain(const char *function, const void *block);
bool hak_owns_plain(const void *pointer);

/*
 * Frees what the hit path could not, or ends the program: `function` is the name of the C library's function
 * that was called, for the fatal line. Keeps errno.
 */
void hak_free_slow(void *block, const char *function);

/* The same for a block of another thread's slab, or of this thread's but in a further unit; `at` is what the
 * registry has of it. */
void hak_free_far(void *block, struct hak_at at, const char *function);

/* The same for a live block of this thread's whose class has no room for it in its cache. */
void hak_free_no_room(void *block, hak_header *header, const char *function);

/* What the caller of a sized or aligned free says about the block. */
struct hak_claim {
    size_t bytes; /* HAK_CLAIMS_NO_SIZE: nothing */
    size_t align; /* 0: nothing */
};
#define HAK_CLAIMS_NO_SIZE SIZE_MAX
#define HAK_NO_CLAIM       ((struct hak_claim){.bytes = HAK_CLAIMS_NO_SIZE, .align = 0})

/* hak_free_far() of a block with a claim. Block and size stand where a sized delete has them, and what is
 * known of it where that is not in the way: its hit moves none of them. */
void hak_free_far_claimed(void *block, size_t bytes, const char *function, size_t align, struct hak_at at);

/* Where a block is and which one: what every question about a pointer starts with. */
struct block_place {
    bool is_exact;      /* the pointer is the start of a block of a slab */
    uint64_t block_idx; /* in its slab, if it is in one */
    const struct hak_registry_row *row;
    hak_word word;
};

HAK_INLINE struct block_place hak_place_in(hak_word word, const void *pointer) {
    struct block_place place = {.word = word, .row = hak_word_row(word)};
    unsigned class_idx = place.row->class_idx;
    uint64_t offset = (uint64_t)(uint16_t)(uintptr_t)pointer + place.row->offset_bias;
    bool is_start = hak_divides(hak_registry.reciprocal[class_idx], offset, &place.block_idx);
    place.is_exact = place.row->kind == HAK_KIND_SLAB && is_start;
    return place;
}

/* The header of a place in a slab: of the block that the pointer points to or into. */
HAK_INLINE hak_header *hak_place_header(const struct block_place *place) {
    HAK_ASSERT(place->row->kind == HAK_KIND_SLAB);
    return (hak_header *)hak_word_address(place->word) + place->block_idx;
}

/* Whether the block at an exact place is the caller's, and of the slab's class. */
HAK_INLINE bool hak_place_is_live(const struct block_place *place) {
    /* relaxed: LIVE was stored by the thread that allocated; the program has ordered that before this call */
    return hak_atomic_load_relaxed(hak_place_header(place)) == HAK_HEADER_LIVE + place->row->class_idx;
}

/* Whether a block, guest or not, that is the caller's begins at the place; if so, its class. */
HAK_COLD bool hak_place_class(const struct block_place *place, unsigned *class_idx);

/*
 * LIVE -> CACHED. Two threads that free one block within some hundred nanoseconds can both pass the check
 * before: in the debug flavour an exchange tells them apart, in release that would cost every free a locked
 * instruction.
 */
HAK_ALWAYS_INLINE void hak_live_to_cached(hak_header *header, void *block, size_t class_idx,
                                          const char *function) {
    if (HAKMEM_BUILD_RELEASE) {
        /* relaxed: the freeing thread's own business until it returns the block */
        hak_atomic_store_relaxed(header, HAK_HEADER_CACHED);
        return;
    }
    /* relaxed: only which of two frees came first matters */
    unsigned before = hak_atomic_exchange_relaxed(header, HAK_HEADER_CACHED);
    if (before < HAK_HEADER_LIVE) {
        hak_fatal_pointer(function, HAK_FAULT_DOUBLE_FREE, block, hak_class_block_bytes[class_idx]);
    }
}

/* LIVE -> FREE, not counted yet: the same for a block of another thread's slab. */
HAK_ALWAYS_INLINE void hak_live_to_free(hak_header *header, void *block, size_t class_idx,
                                        const char *function) {
    if (HAKMEM_BUILD_RELEASE) {
        /* release: pairs with the acquire loads in hak_headers_equal(): who takes the block out sees our
         * writes */
        hak_atomic_store_release(header, HAK_HEADER_FREE);
        return;
    }
    /* release: pairs with the acquire loads in hak_headers_equal(), as above */
    unsigned before = hak_atomic_exchange_release(header, HAK_HEADER_FREE);
    if (before < HAK_HEADER_LIVE) {
        hak_fatal_pointer(function, HAK_FAULT_DOUBLE_FREE, block, hak_class_block_bytes[class_idx]);
    }
}

/* CACHED -> LIVE: the block is about to be given out. */
HAK_ALWAYS_INLINE void hak_cached_to_live(hak_header *header, size_t live_header) {
    /* relaxed: the allocating thread's own business until it hands the block on */
    hak_atomic_store_relaxed(header, (uint8_t)live_header);
}

HAK_ALWAYS_INLINE void hak_count_hit(size_t class_idx) {
    if (HAKMEM_DEBUG_COUNTERS) {
        HAK_COUNT(&hak_tls.heap->classes[class_idx].counters, allocations, 1);
        HAK_COUNT(&hak_tls.heap->classes[class_idx].counters, cache_hits, 1);
    }
}

HAK_ALWAYS_INLINE void hak_count_free(size_t class_idx) {
    if (HAKMEM_DEBUG_COUNTERS) {
        HAK_COUNT(&hak_tls.heap->classes[class_idx].counters, frees, 1);
    }
}

/* The class's top block leaves its cache. */
HAK_ALWAYS_INLINE void hak_drop_top(size_t live_header) {
    hak_read_anew();
    hak_tls.top[live_header - HAK_HEADER_LIVE]--;
    hak_count_hit(live_header - HAK_HEADER_LIVE);
}

/* In the place of a live header in a table of sizes: the size's class is not known, each allocation of it is
 * a miss. */
#define HAK_LIVE_OF_NO_CLASS (HAK_HEADER_LIVE + HAK_CLASS_COUNT)

/* `miss` does what the hit path cannot, by a tail call. `live_of_slot` has what hak_live_of_slot has, or no
 * class. */
HAK_ALWAYS_INLINE void *hak_alloc_gate_by(const _Atomic uint8_t *live_of_slot, size_t bytes,
                                          void *(*miss)(size_t bytes)) {
    if (HAK_UNLIKELY(--hak_tls.until_slow < 0)) {
        return miss(bytes);
    }
    if (HAK_UNLIKELY(bytes - 1 >= HAK_MID_MAX_BYTES)) {
        return miss(bytes);
    }
    /* relaxed: a table that is filled meanwhile has either */
    size_t live_header = hak_atomic_load_relaxed(&live_of_slot[(bytes - 1) >> HAK_SIZE_SHIFT]);
    struct block_ref *top = hak_tls.top[live_header - HAK_HEADER_LIVE] - 1;
    if (HAK_UNLIKELY(top->block == NULL)) {
        return miss(bytes);
    }
    live_header = hak_in_register(live_header);
    hak_drop_top(live_header);
    hak_cached_to_live(top->header, live_header);
    return top->block;
}

HAK_ALWAYS_INLINE void *hak_alloc_gate_or(size_t bytes, void *(*miss)(size_t bytes)) {
    return hak_alloc_gate_by((const _Atomic uint8_t *)hak_live_of_slot, bytes, miss);
}

HAK_ALWAYS_INLINE void *hak_alloc_gate(size_t bytes) {
    return hak_alloc_gate_or(bytes, hak_alloc_slow);
}

/*
 * The top block of the class that `bytes` rounded up to a multiple of `align`, a power of two, has, if that
 * class's blocks lie at such multiples and this one does: guests need not. Else NULL, and nothing has been
 * done. What rounds up to more than there can be comes to 0, and is as none.
 */
HAK_ALWAYS_INLINE void *hak_take_aligned(size_t align, size_t bytes) {
    size_t last_byte = hak_round_up(bytes, align) - 1;
    if (HAK_UNLIKELY(last_byte >= HAK_MID_MAX_BYTES) || HAK_UNLIKELY(hak_tls.until_slow <= 0)) {
        return NULL;
    }
    size_t live_header = hak_in_register(hak_live_of_slot[last_byte >> HAK_SIZE_SHIFT]);
    if (HAK_UNLIKELY(!hak_is_aligned(hak_class_block_bytes[live_header - HAK_HEADER_LIVE], align))) {
        return NULL;
    }
    struct block_ref *top = hak_tls.top[live_header - HAK_HEADER_LIVE] - 1;
    void *block = top->block;
    if (HAK_UNLIKELY(block == NULL) || HAK_UNLIKELY(!hak_is_aligned((uintptr_t)block, align))) {
        return NULL;
    }
    hak_drop_top(live_header);
    hak_tls.until_slow--; /* read anew: a register less all the way here */
    hak_cached_to_live(top->header, live_header);
    return block;
}

HAK_ALWAYS_INLINE void *hak_calloc_gate(size_t count, size_t each_bytes) {
    size_t bytes;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, each_bytes, &bytes))) {
        return hak_calloc_slow(SIZE_MAX);
    }
    if (HAK_UNLIKELY(--hak_tls.until_slow < 0)) {
        return hak_calloc_slow(bytes);
    }
    if (HAK_UNLIKELY(bytes - 1 >= HAK_MID_MAX_BYTES)) {
        return hak_calloc_slow(bytes);
    }
    size_t live_header = hak_live_of_slot[(bytes - 1) >> HAK_SIZE_SHIFT];
    struct block_ref *top = hak_tls.top[live_header - HAK_HEADER_LIVE] - 1;
    if (HAK_UNLIKELY(top->block == NULL)) {
        return hak_calloc_slow(bytes);
    }
    live_header = hak_in_register(live_header);
    hak_drop_top(live_header);
    /* relaxed: the block is this thread's */
    bool is_zero = hak_atomic_load_relaxed(top->header) == HAK_HEADER_CACHED_ZERO;
    hak_cached_to_live(top->header, live_header);
    return is_zero ? top->block : memset(top->block, 0, bytes);
}

/*
 * Whether a live block starts there, in the first unit of a slab of that class; if so, its header. The
 * reciprocal is in a register: on Zen 3 a product with an operand in memory came so late that each free
 * waited for the one before, and took a third longer.
 */
HAK_ALWAYS_INLINE bool hak_first_is_live(struct hak_at at, size_t live_header, const void *block,
                                         hak_header **header) {
    uintptr_t map = hak_in_register((uintptr_t)hak_word_address(at.word));
    uint64_t offset = hak_in_register((uint16_t)(uintptr_t)block);
    uint64_t block_idx;
    if (HAK_UNLIKELY(!hak_divides(hak_in_register(at.reciprocal), offset, &block_idx))) {
        return false;
    }
    map += block_idx;
    *header = (hak_header *)map;
    /* relaxed: as in hak_place_is_live() */
    return !hak_atomic_byte_differs_relaxed(*header, live_header);
}

/* Puts a live block on top of its class's cache, which has room. */
HAK_ALWAYS_INLINE void hak_push_to(struct block_ref *top, void *block, hak_header *header, size_t live_header,
                                   const char *function) {
    live_header = hak_in_register(live_header); /* each use has the difference in its address, as in malloc */
    hak_live_to_cached(header, block, live_header - HAK_HEADER_LIVE, function);
    *top = (struct block_ref){.block = block, .header = header};
    hak_tls.top[live_header - HAK_HEADER_LIVE] = top + 1;
    hak_count_free(live_header - HAK_HEADER_LIVE);
}

/* The same for a block of an own slab, whether there is room or not. */
HAK_ALWAYS_INLINE void hak_push_own(void *block, hak_header *header, size_t live_header,
                                    const char *function) {
    live_header = hak_in_register(live_header); /* as above */
    struct block_ref *top = hak_tls.top[live_header - HAK_HEADER_LIVE];
    if (HAK_UNLIKELY(top->block == HAK_CACHE_STOP)) {
        hak_free_no_room(block, header, function);
        return;
    }
    hak_push_to(top, block, header, live_header, function);
}

/*
 * A word's row and tag less the caller's tag: at most HAK_LAST_SLAB_ROW exactly when the unit is the first of
 * a slab of the caller's, and then the row, which is the live header of the class. So one compare is for
 * "ours", "mine" and "no offset to add". The class's top pointer lies between this free and the next malloc
 * of the class, so it is found from the word and not by way of the header.
 */
HAK_ALWAYS_INLINE size_t hak_own_row(hak_word word) {
    return hak_in_register((uint16_t)word - hak_tls.low);
}

/* The gate once it is known what the registry has of the block. */
HAK_ALWAYS_INLINE void hak_free_at(struct hak_at at, void *block, const char *function, bool has_claim,
                                   struct hak_claim claim) {
    size_t row = hak_own_row(at.word);
    if (HAK_UNLIKELY(row > HAK_LAST_SLAB_ROW)) {
        if (has_claim) {
            hak_free_far_claimed(block, claim.bytes, function, claim.align, at);
        } else {
            hak_free_far(block, at, function);
        }
        return;
    }
    __builtin_prefetch(block); /* whoever gets it next writes there at once: see core/README.md */
    hak_header *header;
    if (HAK_UNLIKELY(!hak_first_is_live(at, row, block, &header))) {
        hak_free_slow(block, function);
        return;
    }
    hak_push_own(block, header, row, function);
}

HAK_ALWAYS_INLINE void hak_free_gate_with(void *block, const char *function, bool has_claim,
                                          struct hak_claim claim) {
    const struct hak_registry *registry = hak_registry_at_hand();
    struct hak_at at;
    if (!hak_registry_at_home(registry, &hak_registry_minus_home, block, &at)) {
        if (block == NULL) {
            return; /* before anything is asked of the heap: free(NULL) is what clean-up code does most */
        }
        at = hak_registry_abroad(registry, block);
    }
    hak_free_at(at, block, function, has_claim, claim);
}

HAK_ALWAYS_INLINE void hak_free_gate(void *block, const char *function) {
    hak_free_gate_with(block, function, false, HAK_NO_CLAIM);
}

/* The claim is looked at in checked mode alone, where every free fails the first compare. */
HAK_ALWAYS_INLINE void hak_free_gate_claiming(void *block, const char *function, size_t bytes, size_t align) {
    hak_free_gate_with(block, function, true, (struct hak_claim){.bytes = bytes, .align = align});
}

#endif
