/*
 * front.c - the cold twins of front.h: empty and full caches, cold classes, threads without a heap, wrong
 * pointers.
 */
#include "heap/front.h"
#include "base/assert.h"
#include "conf/options.h"
#include "heap/checked.h"
#include "heap/child.h"
#include "heap/diagnose.h"
#include "heap/fill.h"
#include "heap/front_large.h"
#include "heap/homeward.h"
#include "heap/reclaim.h"
#include "heap/requests.h"
#include "heap/sampled.h"
#include "heap/supply.h"
#include "heap/unified_cache.h"
#include "heap/upkeep.h"
#include "large/large.h"
#include "slab/guests.h"
#include "slab/purge.h"
#include <errno.h>
#include <string.h>

HAK_READ_MOSTLY _Atomic unsigned hak_front_modes_now;

/* ---- modes ------------------------------------------------------------------------------------- */

struct heap *hak_front_heap(void) {
    hak_child_rebuild_if_pending();
    struct heap *heap = hak_heap_attach();
    if (heap != NULL && HAK_UNLIKELY(heap->is_metered != hak_front_is_metered())) {
        hak_heap_set_metered(heap, !heap->is_metered);
    }
    return heap;
}

void hak_front_set_modes(unsigned modes, uint8_t fill) {
    hak_fill_set(fill);
    hak_atomic_store_relaxed(&hak_front_modes_now, modes); /* relaxed: threads may take it up late */
    (void)hak_front_heap();
}

/* ---- taking ------------------------------------------------------------------------------------ */

/* One block for a thread that has exited, or a first one while memory is short. */
static bool take_borrowed(unsigned class_idx, struct block_ref *ref) {
    struct heap *heap = hak_heap_borrow();
    if (heap == NULL) {
        return false;
    }
    bool is_taken = hak_supply_take(heap, class_idx, ref, 1) == 1;
    hak_heap_give_back(heap);
    return is_taken;
}

static void count_allocation(struct class_state *state, bool is_hit) {
    if (HAKMEM_DEBUG_COUNTERS || hak_front_is_metered()) {
        HAK_COUNT(&state->counters, allocations, 1);
        HAK_COUNT(&state->counters, cache_hits, is_hit);
    }
    HAK_COUNT(&state->counters, cache_misses, !is_hit);
}

/* From the heap's cache, filling it if it is empty, or straight from a slab while the class is cold. */
static bool take_from_heap(struct heap *heap, unsigned class_idx, struct block_ref *ref) {
    struct class_state *state = &heap->classes[class_idx];
    hak_upkeep_if_due(heap);
    if (state->array == NULL && !hak_cache_warms_up(heap, class_idx)) {
        bool is_taken = hak_supply_take_cold(heap, class_idx, ref);
        count_allocation(state, false);
        return is_taken;
    }
    if (HAK_UNLIKELY(hak_cache_is_at_mark(heap, class_idx))) {
        hak_cache_lower_mark(heap, class_idx);
    }
    bool is_hit = hak_cache_count(heap, class_idx) != 0;
    if (!is_hit && hak_cache_refill(heap, class_idx) == 0) {
        return false;
    }
    count_allocation(state, is_hit);
    *ref = *--*hak_heap_top_slot(heap, class_idx);
    return true;
}

/* The same past the cache, where guests may be. */
static bool take_no_guest_from_heap(struct heap *heap, unsigned class_idx, struct block_ref *ref) {
    if (hak_supply_take(heap, class_idx, ref, 1) == 0) {
        return false;
    }
    count_allocation(&heap->classes[class_idx], false);
    return true;
}

/* A CACHED or CACHED_ZERO block; false when out of memory, after everything that can be given back was. */
HAK_ALWAYS_INLINE bool take_by(bool (*from_heap)(struct heap *, unsigned, struct block_ref *),
                               unsigned class_idx, struct block_ref *ref) {
    hak_large_pay_debt();
    for (unsigned attempt = 0; attempt < 2; attempt++) {
        struct heap *heap = hak_front_heap();
        if (attempt != 0) {
            hak_reclaim_blocks(heap);
        }
        if (heap != NULL ? from_heap(heap, class_idx, ref) : take_borrowed(class_idx, ref)) {
            return true;
        }
    }
    return false;
}

static bool take(unsigned class_idx, struct block_ref *ref) {
    return take_by(take_from_heap, class_idx, ref);
}

void *hak_front_out_of_memory(void) {
    errno = ENOMEM;
    return NULL;
}

/* In this file twice, so that the slow path has it without a call. */
HAK_ALWAYS_INLINE void *alloc_plain(size_t bytes) {
    if (bytes > HAK_MID_MAX_BYTES) {
        return hak_front_alloc_large(bytes, false);
    }
    unsigned class_idx = hak_class_of(bytes);
    struct block_ref ref;
    if (!take(class_idx, &ref)) {
        return hak_front_out_of_memory();
    }
    hak_cached_to_live(ref.header, HAK_HEADER_LIVE + class_idx);
    return ref.block;
}

void *hak_alloc_no_guest(size_t bytes) {
    unsigned class_idx = hak_class_of(bytes);
    struct block_ref ref;
    if (!take_by(take_no_guest_from_heap, class_idx, &ref)) {
        return hak_front_out_of_memory();
    }
    hak_cached_to_live(ref.header, HAK_HEADER_LIVE + class_idx);
    hak_fill_new(ref.block, bytes);
    return ref.block;
}

HAK_COLD void *hak_alloc_plain(size_t bytes) {
    return alloc_plain(bytes);
}

/* Either a sampled block, or one of ordinary make. */
static HAK_COLD void *alloc_sampling(size_t bytes, void *(*plain)(size_t bytes)) {
    struct heap *heap = hak_front_heap();
    void *block = heap != NULL ? hak_sampled_alloc(heap, bytes) : NULL;
    return block != NULL ? block : plain(bytes);
}

static HAK_COLD void *alloc_in_modes(size_t bytes) {
    if (hak_is_checked()) {
        return hak_checked_alloc(bytes, HAK_ALIGN_BYTES, false);
    }
    void *block = hak_front_samples() ? alloc_sampling(bytes, hak_alloc_plain) : alloc_plain(bytes);
    if (block != NULL) {
        hak_fill_new(block, bytes);
    }
    return block;
}

/* Whether a mode makes this allocation other than an ordinary one. Sampling does so once in a long while. */
HAK_ALWAYS_INLINE bool is_in_modes(void) {
    unsigned modes = hak_front_modes();
    return HAK_UNLIKELY(modes != 0) && (modes != HAK_FRONT_SAMPLED || !hak_sampled_passes());
}

void *hak_alloc_slow(size_t bytes) {
    if (HAK_UNLIKELY(is_in_modes())) {
        return alloc_in_modes(bytes);
    }
    void *parked = bytes > HAK_MID_MAX_BYTES ? hak_front_take_latest(bytes) : NULL;
    return parked != NULL ? parked : alloc_plain(bytes);
}

HAK_ALWAYS_INLINE void *calloc_plain(size_t bytes) {
    if (bytes > HAK_MID_MAX_BYTES) {
        return hak_front_alloc_large(bytes, true);
    }
    unsigned class_idx = hak_class_of(bytes);
    struct block_ref ref;
    if (!take(class_idx, &ref)) {
        return hak_front_out_of_memory();
    }
    /* relaxed: the block is this thread's */
    bool is_zero = hak_atomic_load_relaxed(ref.header) == HAK_HEADER_CACHED_ZERO;
    hak_cached_to_live(ref.header, HAK_HEADER_LIVE + class_idx);
    return is_zero ? ref.block : memset(ref.block, 0, bytes);
}

static HAK_COLD void *calloc_ordinary(size_t bytes) {
    return calloc_plain(bytes);
}

static HAK_COLD void *calloc_in_modes(size_t bytes) {
    if (hak_is_checked()) {
        return hak_checked_alloc(bytes, HAK_ALIGN_BYTES, true);
    }
    return hak_front_samples() ? alloc_sampling(bytes, calloc_ordinary) : calloc_plain(bytes);
}

void *hak_calloc_slow(size_t bytes) {
    if (HAK_UNLIKELY(is_in_modes())) {
        return calloc_in_modes(bytes);
    }
    return calloc_plain(bytes);
}

/* ---- freeing ----------------------------------------------------------------------------------- */

/* Straight home: for cold classes, and in a heap borrowed for it (NULL when there is no memory for one). */
static void return_one(struct heap *heap, struct block_ref ref, unsigned class_idx) {
    uint32_t owner = heap != NULL ? heap->id : 0;
    bool is_foreign = hak_block_return(ref, owner, hak_heap_handle_event, heap);
    hak_purge_pay();
    if (heap != NULL) {
        HAK_COUNT(&heap->classes[class_idx].counters, remote_frees, is_foreign);
    }
}

/* The same for a thread that has exited. By a heap, which tells the child of a fork that somebody was at it.
 */
static void return_borrowed(struct block_ref ref, unsigned class_idx) {
    struct heap *heap = hak_heap_borrow();
    return_one(heap, ref, class_idx);
    if (heap != NULL) {
        hak_heap_give_back(heap);
    }
}

/* Whether the word is of a slab of this heap, as far as tags tell. */
static bool is_own(const struct heap *heap, hak_word word) {
    return hak_word_has_tag_of(word, hak_word_low_of_heap(heap->id));
}

static void free_to_heap(struct heap *heap, struct block_ref ref, unsigned class_idx, bool is_own_slab) {
    struct class_state *state = &heap->classes[class_idx];
    hak_large_pay_debt();
    if (HAKMEM_DEBUG_COUNTERS || hak_front_is_metered()) {
        HAK_COUNT(&state->counters, frees, 1);
    }
    if (!is_own_slab && hak_begins_row(ref.header)) {
        return_one(heap, ref, class_idx);
        return;
    }
    if (!is_own_slab) {
        /* release: pairs with the acquire loads in hak_headers_equal(), as in hak_live_to_free() */
        hak_atomic_store_release(ref.header, HAK_HEADER_FREE);
        hak_homeward_add(heap, ref.block, class_idx);
        return;
    }
    if (state->array == NULL && !hak_cache_warms_up(heap, class_idx)) {
        state->is_used = true;
        return_one(heap, ref, class_idx);
        return;
    }
    struct block_ref **top = hak_heap_top_slot(heap, class_idx);
    if ((*top)->block == HAK_CACHE_STOP) {
        hak_cache_make_room(heap, class_idx);
    }
    *(*top)++ = ref;
}

HAK_ALWAYS_INLINE void send_home(struct heap *heap, void *block, hak_header *header, unsigned class_idx,
                                 const char *function) {
    hak_live_to_free(header, block, class_idx, function);
    hak_count_free(class_idx);
    hak_homeward_add(heap, block, class_idx);
}

/* Apart, so that the others are spared the frame that this needs. */
static HAK_NOINLINE void free_foreign_widening(void *block, hak_header *header, unsigned class_idx,
                                               hak_word word, const char *function) {
    struct heap *heap = hak_tls.heap;
    if (hak_homeward_widen(heap, class_idx) && hak_homeward_stays(heap, word)) {
        hak_push_own(block, header, HAK_HEADER_LIVE + class_idx, function);
        return;
    }
    send_home(heap, block, header, class_idx, function);
}

/* Apart, so that small blocks are spared the registers that its questions need. */
static HAK_NOINLINE void free_foreign_of_many_lines(void *block, hak_header *header, unsigned class_idx,
                                                    hak_word word, const char *function) {
    struct heap *heap = hak_tls.heap;
    struct class_state *state = &heap->classes[class_idx];
    struct block_ref *top = hak_tls.top[class_idx];
    size_t cached = (size_t)(top - &state->array[1]);
    if (cached < state->staying_blocks) {
        if (hak_homeward_stays(heap, word)) {
            hak_push_to(top, block, header, HAK_HEADER_LIVE + class_idx, function);
            return;
        }
    } else if (cached < state->staying_max) {
        free_foreign_widening(block, header, class_idx, word, function);
        return;
    }
    send_home(heap, block, header, class_idx, function);
}

HAK_ALWAYS_INLINE void free_foreign(struct heap *heap, void *block, hak_header *header, unsigned class_idx,
                                    hak_word word, const char *function) {
    if (hak_homeward_is_to_ask(class_idx)) {
        free_foreign_of_many_lines(block, header, class_idx, word, function);
    } else {
        send_home(heap, block, header, class_idx, function);
    }
}

HAK_NOINLINE void hak_free_no_room(void *block, hak_header *header, const char *function) {
    /* relaxed: the block was live a moment ago; another thread that frees it too is seen here or later */
    unsigned class_idx = hak_atomic_load_relaxed(header) - HAK_HEADER_LIVE;
    if (hak_front_is_metered() || hak_child_is_pending() || HAK_UNLIKELY(class_idx >= HAK_CLASS_COUNT)) {
        hak_free_slow(block, function);
        return;
    }
    hak_live_to_cached(header, block, class_idx, function);
    free_to_heap(hak_tls.heap, (struct block_ref){.block = block, .header = header}, class_idx, true);
}

/* The free of a block that is not in the first unit of a slab, or by a thread that cannot free it at once. */
static HAK_NOINLINE void free_farther(void *block, hak_word word, const char *function) {
    hak_child_rebuild_if_pending(); /* first: it takes what is marked CACHED for a lost thread's */
    struct heap *heap = hak_tls.heap;
    if (heap == NULL || heap->is_metered || hak_front_is_metered()) { /* everything goes the slow way */
        hak_free_slow(block, function);
        return;
    }
    if (hak_is_large(block, word)) {
        hak_large_free(function, block, word);
        return;
    }
    struct block_place place = hak_place_in(word, block);
    if (!place.is_exact || HAK_UNLIKELY(!hak_place_is_live(&place))) {
        hak_free_slow(block, function);
        return;
    }
    hak_header *header = hak_place_header(&place);
    unsigned class_idx = place.row->class_idx;
    if (!hak_word_has_tag_of(word, hak_tls.low)) {
        free_foreign(heap, block, header, class_idx, word, function);
        return;
    }
    hak_push_own(block, header, HAK_HEADER_LIVE + class_idx, function);
}

/* The free of a block in a unit of kind EXTENT. Apart, so that other frees are spared the registers that this
 * needs. */
static HAK_NOINLINE void free_run(void *block, hak_word word, const char *function) {
    if (!hak_front_put_latest(block, word)) {
        free_farther(block, word, function);
    }
}

HAK_NOINLINE void hak_free_far(void *block, struct hak_at at, const char *function) {
    size_t live_header = (uint8_t)at.word;
    if (HAK_UNLIKELY(live_header - HAK_FIRST_SLAB_ROW >= HAK_CLASS_COUNT) ||
        HAK_UNLIKELY(hak_tls.low == HAK_LOW_OF_NO_HEAP) || hak_child_is_pending()) {
        if (live_header == HAK_KIND_EXTENT) { /* the row of that kind */
            free_run(block, at.word, function);
        } else {
            free_farther(block, at.word, function);
        }
        return;
    }
    hak_header *header;
    if (HAK_UNLIKELY(!hak_first_is_live(at, live_header, block, &header))) {
        hak_free_slow(block, function);
        return;
    }
    free_foreign(hak_tls.heap, block, header, live_header - HAK_HEADER_LIVE, at.word, function);
}

/* A block of no slab and not of the large floor. */
static HAK_COLD void free_elsewhere(void *block, hak_word word, const char *function) {
    if (hak_word_kind(word) == HAK_KIND_GUARDED) {
        hak_sampled_free(block, function);
    } else {
        hak_foreign.free(block);
    }
}

HAK_ALWAYS_INLINE void free_plain(void *block, const char *function) {
    struct heap *heap = hak_front_heap();
    hak_word word = hak_registry_word(block);
    if (hak_is_large(block, word)) {
        hak_large_free(function, block, word);
        return;
    }
    unsigned class_idx;
    hak_header *header = hak_live_header_or_die(function, block, HAK_FAULT_DOUBLE_FREE, &class_idx);
    if (header == NULL) {
        free_elsewhere(block, word, function);
        return;
    }
    hak_live_to_cached(header, block, class_idx, function);
    struct block_ref ref = {.block = block, .header = header};
    if (heap != NULL) {
        free_to_heap(heap, ref, class_idx, is_own(heap, word));
    } else {
        return_borrowed(ref, class_idx);
    }
}

HAK_COLD void hak_free_plain(void *block, const char *function) {
    free_plain(block, function);
}

static HAK_COLD void free_in_modes(void *block, const char *function) {
    if (hak_is_checked()) {
        hak_checked_free(block, function, HAK_NO_CLAIM);
        return;
    }
    if (hak_fill_is_of_freed() && hak_owns_plain(block)) {
        hak_fill_freed(block, hak_usable_plain(function, block));
    }
    free_plain(block, function);
}

void hak_free_slow(void *block, const char *function) {
    if (block == NULL) {
        return;
    }
    if (hak_front_is_metered()) {
        free_in_modes(block, function);
        return;
    }
    free_plain(block, function);
}

HAK_NOINLINE void hak_free_far_claimed(void *block, size_t bytes, const char *function, size_t align,
                                       struct hak_at at) {
    if (HAK_UNLIKELY(hak_tls.low == HAK_LOW_OF_NO_HEAP) && hak_is_checked()) {
        hak_checked_free(block, function, (struct hak_claim){.bytes = bytes, .align = align});
        return;
    }
    hak_free_far(block, at, function);
}
