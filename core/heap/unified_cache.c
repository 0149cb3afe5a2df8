/*
 * unified_cache.c - see unified_cache.h.
 */
#include "heap/unified_cache.h"
#include "base/assert.h"
#include "conf/options.h"
#include "heap/homeward.h"
#include "heap/supply.h"
#include "heap/width.h"
#include "meta/arena.h"
#include "meta/classes.h"
#include "slab/purge.h"

/* Capacities are two less than a power of two: with bottom and stop, an array fills whole cache lines. */
#define MARKS          2u
#define CAPACITY_FIRST 30u
#define PREWARM_MAX    2046u  /* whatever is asked for */
#define HEAT_TO_ARRAY  32u    /* operations on a cold class before it may cache */
#define ROW_TO_GROW    16u    /* refills in a row, without a spill, that make a cache grow too */
#define EXPORT_BYTES   32768u /* of blocks in a refill of a class that exports (supply.h), */
#define SHARED_BYTES   16384u /* and where it shares */
#define SPILL_IN_DEBT                                                                                        \
    2u /* blocks that a spill returns while earlier ones have left more to purge than it may */

static size_t array_bytes(unsigned capacity) {
    return (capacity + MARKS) * sizeof(struct block_ref);
}

static unsigned first_refill(unsigned capacity) {
    return capacity / 4 == 0 ? 1 : capacity / 4;
}

unsigned hak_cache_count(struct heap *heap, unsigned class_idx) {
    const struct class_state *state = &heap->classes[class_idx];
    return state->array == NULL ? 0 : (unsigned)(*hak_heap_top_slot(heap, class_idx) - &state->array[1]);
}

static void set_refill(struct class_state *state, unsigned class_idx, unsigned blocks) {
    if (blocks != state->refill_blocks) {
        state->refill_blocks = (uint16_t)blocks;
        hak_homeward_set_max(state, class_idx);
    }
}

/* The mark is at that position of the array from now on; 0: there is none. */
static void set_mark(struct class_state *state, unsigned position) {
    if (state->marked != 0) {
        state->array[state->marked].block = state->marked_block;
    }
    if (position != 0) {
        state->marked_block = state->array[position].block;
        state->array[position].block = NULL;
    }
    state->marked = (uint16_t)position;
}

/* Replaces the array by one of another capacity that holds the same entries. False when out of memory. */
static bool resize(struct heap *heap, unsigned class_idx, unsigned capacity) {
    struct class_state *state = &heap->classes[class_idx];
    unsigned count = hak_cache_count(heap, class_idx);
    struct block_ref *array = hak_meta_alloc(array_bytes(capacity));
    if (array == NULL) {
        return false;
    }
    HAK_ASSERT(count <= capacity);
    set_mark(state, 0);
    if (state->array != NULL) {
        hak_block_refs_move(&array[1], &state->array[1], count);
        hak_meta_free(state->array, array_bytes(state->capacity_blocks));
    }
    array[0].block = NULL;
    array[capacity + 1].block = HAK_CACHE_STOP;
    state->array = array;
    state->capacity_blocks = (uint16_t)capacity;
    set_refill(state, class_idx, first_refill(capacity));
    *hak_heap_top_slot(heap, class_idx) = &array[1 + count];
    return true;
}

bool hak_cache_make_hot(struct heap *heap, unsigned class_idx, unsigned blocks) {
    struct class_state *state = &heap->classes[class_idx];
    unsigned bound =
        heap->row.is_ending ? hak_width_least_at_end(heap, class_idx) : hak_width_capacity(heap, class_idx);
    unsigned capacity = CAPACITY_FIRST;
    while (capacity < blocks && capacity < PREWARM_MAX) {
        capacity = capacity * 2 + MARKS;
    }
    state->is_used = true;
    return state->array != NULL ||
           resize(heap, class_idx, capacity < bound || blocks > bound ? capacity : bound);
}

bool hak_cache_warms_up(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    if (state->heat < HEAT_TO_ARRAY) {
        state->heat++;
        return false;
    }
    unsigned bound = hak_width_capacity(heap, class_idx);
    return hak_cache_make_hot(heap, class_idx, (unsigned)hak_smaller(hak_options.tiny_refill_count, bound));
}

/* Doubles the capacity within the bound. False at the bound or when out of memory. */
static bool grow(struct heap *heap, unsigned class_idx) {
    const struct class_state *state = &heap->classes[class_idx];
    unsigned bound = hak_width_capacity(heap, class_idx);
    unsigned capacity = state->capacity_blocks * 2u + MARKS;
    capacity = capacity < bound ? capacity : bound;
    return capacity > state->capacity_blocks && resize(heap, class_idx, capacity);
}

/* The capacity one step down: half down to the least one, and within the bound. */
static unsigned lower_capacity(const struct heap *heap, unsigned class_idx) {
    unsigned capacity = heap->classes[class_idx].capacity_blocks;
    unsigned bound = hak_width_capacity(heap, class_idx);
    unsigned half = (capacity - MARKS) / 2;
    unsigned lower = half >= hak_width_least(class_idx) ? half : capacity;
    return lower < bound ? lower : bound;
}

/*
 * What others free is taken few at a time, since what waits here no other producer can have: until the
 * capacity is down to where a refill is a quarter of it, each refill halves it.
 */
static void adapt_to_export(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    unsigned bytes = hak_supply_shares(heap, class_idx) ? SHARED_BYTES : EXPORT_BYTES;
    unsigned few = bytes / hak_class_block_bytes[class_idx];
    few = few < first_refill(CAPACITY_FIRST) ? first_refill(CAPACITY_FIRST) : few;
    unsigned capacity = lower_capacity(heap, class_idx);
    if (first_refill(state->capacity_blocks) > few && capacity < state->capacity_blocks) {
        (void)resize(heap, class_idx, capacity);
    }
    set_refill(state, class_idx, few < state->capacity_blocks ? few : state->capacity_blocks);
}

/* A heap that only allocates asks for more at a time; each spill takes it back to a quarter of the capacity.
 */
static void adapt_refill(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    if (hak_options.tiny_refill_count != 0) {
        unsigned asked = hak_options.tiny_refill_count;
        set_refill(state, class_idx, asked < state->capacity_blocks ? asked : state->capacity_blocks);
        return;
    }
    state->refills_in_row += state->refills_in_row != UINT16_MAX;
    state->refills_alone += state->refills_alone != UINT8_MAX;
    if (state->exports) {
        adapt_to_export(heap, class_idx);
        return;
    }
    if (state->refills_in_row % ROW_TO_GROW == 0) {
        (void)grow(heap, class_idx);
    }
    if (state->refills_in_row > 1 && state->refill_blocks < state->capacity_blocks / 2) {
        set_refill(state, class_idx, state->refill_blocks * 2u);
    }
}

unsigned hak_cache_refill(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    HAK_ASSERT(hak_cache_count(heap, class_idx) == 0);
    hak_width_note_empty(heap, class_idx);
    adapt_refill(heap, class_idx);
    unsigned got = hak_supply_take_any(heap, class_idx, &state->array[1], state->refill_blocks);
    *hak_heap_top_slot(heap, class_idx) = &state->array[1 + got];
    return got;
}

void hak_cache_fill(struct heap *heap, unsigned class_idx, unsigned blocks) {
    struct class_state *state = &heap->classes[class_idx];
    unsigned have = hak_cache_count(heap, class_idx);
    unsigned goal = blocks < state->capacity_blocks ? blocks : state->capacity_blocks;
    unsigned got = 1;
    for (; have < goal && got != 0; have += got) {
        got = hak_supply_take_any(heap, class_idx, &state->array[1 + have], goal - have);
    }
    *hak_heap_top_slot(heap, class_idx) = &state->array[1 + have];
}

/* Returns the `count` oldest blocks to their slabs; a purge step that is owed then stays so. */
static void return_oldest(struct heap *heap, unsigned class_idx, unsigned count) {
    struct class_state *state = &heap->classes[class_idx];
    unsigned had = hak_cache_count(heap, class_idx);
    set_mark(state, 0);
    struct hak_returned returned =
        hak_blocks_return(&state->array[1], count, heap->id, hak_heap_handle_event, heap);
    HAK_COUNT(&state->counters, remote_frees, returned.foreign);
    hak_width_note_returned(heap, class_idx, count, returned.units);
    hak_block_refs_move(&state->array[1], &state->array[1 + count], had - count);
    *hak_heap_top_slot(heap, class_idx) = &state->array[1 + had - count];
}

/*
 * Brings a cache down to `capacity`, at most `fill` blocks in it. Where memory for a smaller array lacks, it
 * has no more than those all the same.
 */
static void shrink(struct heap *heap, unsigned class_idx, unsigned capacity, unsigned fill) {
    unsigned count = hak_cache_count(heap, class_idx);
    return_oldest(heap, class_idx, count - (unsigned)hak_smaller(count, fill));
    (void)resize(heap, class_idx, capacity);
}

/* How many blocks a spill of a full cache returns: of the older half, but few in debt. */
static unsigned spill_count(struct heap *heap, unsigned class_idx, bool is_behind) {
    unsigned count = hak_width_spill(heap, class_idx, (hak_cache_count(heap, class_idx) + 1) / 2);
    return is_behind && count > SPILL_IN_DEBT ? SPILL_IN_DEBT : count;
}

/* Takes the capacity one step down; what is at its least spills. */
static void spill_narrowing(struct heap *heap, unsigned class_idx, bool is_behind) {
    struct class_state *state = &heap->classes[class_idx];
    state->width.proofs = 0;
    hak_width_narrow(heap, class_idx);
    unsigned capacity = lower_capacity(heap, class_idx);
    if (capacity < state->capacity_blocks) {
        shrink(heap, class_idx, capacity, capacity - 1); /* room for one */
    } else {
        return_oldest(heap, class_idx, spill_count(heap, class_idx, is_behind));
    }
}

/* Brings a class down to the capacity that it has when all ends. False if it has that. */
static bool narrow_to_end(struct heap *heap, unsigned class_idx) {
    unsigned least = hak_width_least_at_end(heap, class_idx);
    if (heap->classes[class_idx].capacity_blocks <= least) {
        return false;
    }
    hak_width_end(heap, class_idx);
    shrink(heap, class_idx, least, least);
    return true;
}

/* While what all caches of the thread hold ends: the next class that is wider than it need be, if one is. */
static void narrow_next(struct heap *heap) {
    while (heap->row.narrowed < HAK_CLASS_COUNT && !narrow_to_end(heap, heap->row.narrowed++)) {
    }
}

void hak_cache_make_room(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    bool is_ping_pong = state->refills_in_row != 0;
    bool has_rows = hak_options.tiny_refill_count == 0; /* else no refill is noted, which would end one */
    if (is_ping_pong) {
        hak_width_note_swing(heap, class_idx);
    }
    state->refills_in_row = 0;
    hak_supply_note_spill(heap, class_idx);
    if (is_ping_pong && !heap->row.is_ending && grow(heap, class_idx)) {
        return;
    }
    set_refill(state, class_idx, first_refill(state->capacity_blocks));
    HAK_COUNT(&state->counters, cache_spills, 1);
    bool is_behind = hak_purge_is_behind();
    unsigned count = spill_count(heap, class_idx, is_behind);
    if (has_rows) {
        hak_width_note_row(heap, class_idx, count);
    }
    bool ends = !is_behind && has_rows && hak_width_note_spill(heap, class_idx, count);
    if (ends && heap->row.is_ending) {
        narrow_next(heap);
    }
    if (is_behind || ends) {
        /* Each block that stays here may pin an OS page of a slab that nobody needs. */
        spill_narrowing(heap, class_idx, is_behind);
    } else {
        return_oldest(heap, class_idx, count);
    }
    hak_purge_pay();
}

void hak_cache_mark(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    if (state->marked != 0) {
        return_oldest(heap, class_idx, state->marked);
    }
    set_mark(state, hak_cache_count(heap, class_idx));
}

void hak_cache_lower_mark(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    set_mark(state, state->marked / 2u);
}

void hak_cache_forget(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    if (state->array == NULL) {
        return;
    }
    *hak_heap_top_slot(heap, class_idx) = HAK_NO_CACHE_TOP;
    hak_meta_free(state->array, array_bytes(state->capacity_blocks));
    state->array = NULL;
    state->capacity_blocks = 0;
    state->marked = 0;
    state->heat = 0;
    hak_width_reset(heap, class_idx);
}

void hak_cache_fit(struct heap *heap, unsigned class_idx) {
    unsigned capacity = hak_width_capacity(heap, class_idx);
    if (heap->classes[class_idx].capacity_blocks > capacity) {
        shrink(heap, class_idx, capacity, capacity);
    }
}

void hak_cache_flush(struct heap *heap, unsigned class_idx, bool keep_array) {
    if (heap->classes[class_idx].array == NULL) {
        return;
    }
    return_oldest(heap, class_idx, hak_cache_count(heap, class_idx));
    hak_width_note_empty(heap, class_idx);
    if (!keep_array) {
        hak_cache_forget(heap, class_idx);
    }
}
