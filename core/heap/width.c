/*
 * width.c - see width.h.
 */
#include "heap/width.h"
#include "base/bits.h"
#include "conf/options.h"
#include "heap/unified_cache.h"
#include "meta/classes.h"
#include "os/os.h"
#include "slab/retention.h"

#define CAPACITY_MIN      4u    /* for the largest blocks, whatever the bound in bytes says */
#define CAPACITY_MAX      2046u /* two less than a power of two, see unified_cache.c */
#define DOUBLINGS_MAX     3u
#define SWINGS_TO_WIDEN   6u
#define REFILLS_OF_SWING  3u
#define PARTS_FROM        16u /* blocks that may be spilled in parts */
#define SHALLOW_IN_ROW    8u  /* swings, until spills are in parts, */
#define SHALLOW_TO_LAST   24u /* and until they are no more: that did not help */
#define HALVES_TO_WIDEN   12u /* of those in between, through half the capacity */
#define REFILLS_OF_HALF   2u
#define LOOKS_TO_NARROW   8u
#define PROOFS_TO_DOUBLE  32u                   /* rows of refills that end at the bound, */
#define FEW_BLOCKS        128u                  /* where it is fewer: chance alone moves as many to and fro */
#define CAPACITIES_OF_END 2u                    /* spilled in a row */
#define BYTES_OF_END      ((size_t)1024 * 1024) /* in a row of all classes */
#define END_AGAIN_MS      1000u /* what ends again within this time was built up in between, and will be again */
#define SAMPLE_BLOCKS_MIN 8u    /* in a spill that tells how near blocks lie to each other */
#define LEAST             30u    /* blocks that a cache is narrowed to, */
#define LEAST_BYTES       16384u /* or fewer, where they are more than that, */
#define LEAST_OF_MANY     14u    /* or the threads are many, */
#define LEAST_OF_LARGE    6u     /* or very many */
#define LARGEST_BYTES     65536u /* where even those are more than that, at an end of all classes */
#define LEAST_OF_LARGEST  2u     /* two, since each may keep a slab of several units */
#define MANY_THREADS      16u
#define VERY_MANY_THREADS 32u
#define WIDE_FLOORS       4u /* what all classes of a thread may be wider by, in constant parts of the floor */

/* Bytes of blocks that one class may cache in one thread without proof, by profile. */
static const size_t plain_bytes[] = {
    [HAK_PROFILE_DEFAULT] = (size_t)128 * 1024,
    [HAK_PROFILE_CONSERVATIVE] = (size_t)8 * 1024,
    [HAK_PROFILE_THROUGHPUT] = (size_t)256 * 1024,
};

static unsigned capacity_of(unsigned class_idx, unsigned doublings) {
    size_t blocks = (plain_bytes[hak_options.tiny_profile] << doublings) / hak_class_block_bytes[class_idx];
    unsigned most = doublings != 0 ? 2 * CAPACITY_MAX + 2 : CAPACITY_MAX;
    return blocks < CAPACITY_MIN ? CAPACITY_MIN : blocks < most ? (unsigned)blocks : most;
}

unsigned hak_width_capacity(const struct heap *heap, unsigned class_idx) {
    const struct class_width *width = &heap->classes[class_idx].width;
    bool is_proved = width->proofs == PROOFS_TO_DOUBLE;
    return capacity_of(class_idx, width->doublings != 0 ? width->doublings : is_proved);
}

static unsigned least_of_threads(uint32_t threads) {
    return threads < MANY_THREADS ? LEAST : threads < VERY_MANY_THREADS ? LEAST_OF_MANY : LEAST_OF_LARGE;
}

unsigned hak_width_least(unsigned class_idx) {
    unsigned capacity = least_of_threads(hak_heap_attached_count());
    while (capacity > LEAST_OF_LARGE && capacity * hak_class_block_bytes[class_idx] > LEAST_BYTES) {
        capacity = (capacity - 2) / 2;
    }
    return capacity;
}

unsigned hak_width_least_at_end(const struct heap *heap, unsigned class_idx) {
    unsigned capacity = hak_width_least(class_idx);
    bool is_much = capacity * hak_class_block_bytes[class_idx] > LARGEST_BYTES;
    return is_much && !heap->row.keeps_much ? LEAST_OF_LARGEST : capacity;
}

static size_t wider_bytes(unsigned class_idx, unsigned doublings) {
    unsigned blocks = capacity_of(class_idx, doublings) - capacity_of(class_idx, 0);
    return (size_t)blocks * hak_class_block_bytes[class_idx];
}

/* By how much the classes of the thread but for one are wider. */
static size_t others_wider_bytes(const struct heap *heap, unsigned class_idx) {
    size_t bytes = 0;
    for (uint64_t left = heap->wide & ~(UINT64_C(1) << class_idx); left != 0; left &= left - 1) {
        unsigned other = hak_ctz64(left);
        bytes += wider_bytes(other, heap->classes[other].width.doublings);
    }
    return bytes;
}

static void set_doublings(struct heap *heap, unsigned class_idx, unsigned doublings) {
    struct class_width *width = &heap->classes[class_idx].width;
    if (width->doublings != doublings) {
        hak_retention_note_wider((ptrdiff_t)wider_bytes(class_idx, doublings) -
                                 (ptrdiff_t)wider_bytes(class_idx, width->doublings));
    }
    width->doublings = (uint8_t)doublings;
    width->looks = 0;
    heap->wide &= ~(UINT64_C(1) << class_idx);
    heap->wide |= (uint64_t)(doublings != 0) << class_idx;
}

static void set_kept(struct class_width *width, size_t kib) {
    if (kib != width->kept_kib) {
        hak_retention_note_wider(((ptrdiff_t)kib - (ptrdiff_t)width->kept_kib) * 1024);
        width->kept_kib = (uint32_t)kib;
    }
}

/* What all threads together may keep beyond what they do, with the class's own bytes that are counted now. */
static size_t left_of_all(size_t own_bytes) {
    size_t most_bytes = hak_retention_raise_max(HAK_RETAINER_CACHES) + own_bytes;
    return most_bytes - hak_smaller(most_bytes, hak_retention_raised_bytes(HAK_RETAINER_CACHES));
}

/* By how much the class may be wider: what is left for this thread, and for the process. */
static size_t wider_max(const struct heap *heap, unsigned class_idx) {
    size_t own_bytes = wider_bytes(class_idx, heap->classes[class_idx].width.doublings);
    size_t of_thread = ((size_t)hak_options.base_floor_kib << 10) * WIDE_FLOORS;
    size_t others_bytes = others_wider_bytes(heap, class_idx);
    of_thread -= hak_smaller(of_thread, others_bytes);
    return hak_smaller(of_thread, left_of_all(own_bytes));
}

/* As many doublings as the swings went through, and as there is room for. */
static void widen(struct heap *heap, unsigned class_idx) {
    const struct class_state *state = &heap->classes[class_idx];
    size_t max_bytes = wider_max(heap, class_idx);
    unsigned wanted = state->capacity_blocks + state->width.swing_blocks;
    unsigned doublings = state->width.doublings;
    while (doublings < DOUBLINGS_MAX && capacity_of(class_idx, doublings) < wanted &&
           wider_bytes(class_idx, doublings + 1) <= max_bytes) {
        doublings++;
    }
    if (capacity_of(class_idx, doublings) > hak_width_capacity(heap, class_idx)) {
        set_doublings(heap, class_idx, doublings);
    }
}

static bool spills_in_parts(const struct class_width *width) {
    return width->shallow >= SHALLOW_IN_ROW && width->shallow < SHALLOW_TO_LAST;
}

unsigned hak_width_spill(const struct heap *heap, unsigned class_idx, unsigned half) {
    const struct class_width *width = &heap->classes[class_idx].width;
    unsigned spilled = width->spilled_blocks;
    if (half < PARTS_FROM || !spills_in_parts(width) || spilled >= half) {
        return half;
    }
    return spilled < half / 2 ? half / 4 : half - spilled;
}

/* No swing counts any more towards a wider bound. */
static void forget_swings(struct class_width *width) {
    width->swings = 0;
    width->halves = 0;
}

/* A swing through so many blocks and refills. */
static void note_depth(struct heap *heap, unsigned class_idx, unsigned spilled) {
    const struct class_state *state = &heap->classes[class_idx];
    struct class_width *width = &heap->classes[class_idx].width;
    unsigned half = (state->capacity_blocks + 1) / 2;
    bool is_shallow = state->capacity_blocks >= FEW_BLOCKS && spilled != 0 && spilled <= half;
    width->shallow = !is_shallow ? 0 : (uint8_t)hak_smaller(width->shallow + 1u, SHALLOW_TO_LAST);
    bool is_half = spills_in_parts(width) && spilled == half && state->refills_in_row >= REFILLS_OF_HALF;
    bool is_deep = spilled >= state->capacity_blocks && state->refills_in_row >= REFILLS_OF_SWING;
    if ((width->swings == 0 && width->halves == 0) || spilled < width->swing_blocks) {
        width->swing_blocks = (uint16_t)spilled;
    }
    width->swings = is_deep ? width->swings + 1u : 0;
    width->halves = is_half ? width->halves + 1u : 0;
    if (width->swings == SWINGS_TO_WIDEN || width->halves == HALVES_TO_WIDEN) {
        forget_swings(width);
        widen(heap, class_idx);
    }
}

void hak_width_note_swing(struct heap *heap, unsigned class_idx) {
    const struct class_state *state = &heap->classes[class_idx];
    struct class_width *width = &heap->classes[class_idx].width;
    unsigned spilled = width->spilled_blocks;
    width->spilled_blocks = 0;
    width->is_ending = false;
    note_depth(heap, class_idx, spilled);
    bool is_at_bound = state->capacity_blocks >= hak_width_capacity(heap, class_idx);
    if (is_at_bound && state->capacity_blocks < FEW_BLOCKS) {
        width->proofs += width->proofs < PROOFS_TO_DOUBLE;
    }
}

/* Whether spills in a row now go through so many blocks as the program would hardly find in its cache again.
 */
static bool is_far(const struct class_state *state, unsigned spilled) {
    return spilled >= CAPACITIES_OF_END * state->capacity_blocks;
}

/* Whether a further power of two lies between the two. */
static bool has_doubled(size_t before, size_t sum) {
    return hak_log2(before) != hak_log2(sum);
}

/* Of a row that has come that far: whether it is the first one for long. */
static bool begins_end(uint32_t *ended_ms) {
    uint32_t now_ms = (uint32_t)hak_os_now_ms();
    bool is_first = *ended_ms == 0 || now_ms - *ended_ms >= END_AGAIN_MS;
    *ended_ms = now_ms != 0 ? now_ms : 1;
    return is_first;
}

/* What a block in a cache may keep from going back. */
static size_t pinning_bytes(unsigned class_idx) {
    return hak_larger(hak_class_block_bytes[class_idx], hak_os_page_bytes());
}

void hak_width_note_returned(struct heap *heap, unsigned class_idx, unsigned blocks, unsigned units) {
    struct class_width *width = &heap->classes[class_idx].width;
    if (blocks >= SAMPLE_BLOCKS_MIN) {
        width->sample_blocks = (uint16_t)blocks;
        width->sample_units = (uint16_t)units;
    } else if (heap->classes[class_idx].capacity_blocks < 2 * SAMPLE_BLOCKS_MIN) {
        width->sample_blocks = 0; /* no spill will be larger */
    }
}

/* What so many blocks of a cache keep from going back: an OS page each, but no more units than there are
 * beneath them if they lie as near to each other as those of the last spill. */
static size_t pinned_bytes(const struct class_width *width, unsigned class_idx, unsigned blocks) {
    size_t bytes = blocks * pinning_bytes(class_idx);
    if (width->sample_blocks == 0) {
        return bytes;
    }
    size_t spills = (blocks + width->sample_blocks - 1) / width->sample_blocks;
    return hak_smaller(bytes, spills * width->sample_units * HAK_UNIT_BYTES);
}

/* The most that the cache keeps from going back, in KiB, after spills in a row through so many blocks: no
 * more than was freed. */
static size_t pinned_kib(const struct class_state *state, unsigned class_idx, unsigned spilled) {
    size_t freed_bytes = (size_t)spilled * hak_class_block_bytes[class_idx];
    size_t bytes = pinned_bytes(&state->width, class_idx, state->capacity_blocks);
    return hak_smaller(bytes, freed_bytes) >> 10;
}

/* Whether there is room for that in what all threads together may keep; if so it is taken. */
static bool keeps(struct class_width *width, size_t kib) {
    if (kib > left_of_all((size_t)width->kept_kib << 10) >> 10) {
        return false;
    }
    set_kept(width, kib);
    return true;
}

void hak_width_note_empty(struct heap *heap, unsigned class_idx) {
    set_kept(&heap->classes[class_idx].width, 0);
    heap->row.bytes = 0;
    heap->row.is_ending = false;
}

/* What the class's cache pins now beyond what it is counted for, in KiB. */
static size_t uncounted_kib(struct heap *heap, unsigned class_idx) {
    const struct class_width *width = &heap->classes[class_idx].width;
    size_t kib = pinned_bytes(width, class_idx, hak_cache_count(heap, class_idx)) >> 10;
    return width->doublings != 0 || kib < width->kept_kib ? 0 : kib - width->kept_kib;
}

/* As keeps(), of what all caches of the thread pin now. */
static bool all_keep(struct heap *heap) {
    size_t kib = 0;
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        kib += uncounted_kib(heap, c);
    }
    if (kib > left_of_all(0) >> 10) {
        return false;
    }
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        struct class_width *width = &heap->classes[c].width;
        set_kept(width, width->kept_kib + uncounted_kib(heap, c));
    }
    return true;
}

void hak_width_note_row(struct heap *heap, unsigned class_idx, unsigned blocks) {
    struct spill_row *row = &heap->row;
    bool is_wide = heap->classes[class_idx].width.doublings != 0; /* often swung: its end is another matter */
    size_t before = row->bytes;
    row->bytes += is_wide ? 0 : (size_t)blocks * hak_class_block_bytes[class_idx];
    bool was_far = before >= BYTES_OF_END;
    bool is_further = was_far ? has_doubled(before, row->bytes) : row->bytes >= BYTES_OF_END;
    if (!row->is_ending && is_further) {
        bool is_end = !was_far && begins_end(&row->ended_ms);
        row->keeps_much = !is_end && !all_keep(heap);
        row->is_ending = is_end || row->keeps_much;
        row->narrowed = 0;
    }
}

bool hak_width_note_spill(struct heap *heap, unsigned class_idx, unsigned blocks) {
    const struct class_state *state = &heap->classes[class_idx];
    struct class_width *width = &heap->classes[class_idx].width;
    unsigned before = width->spilled_blocks;
    unsigned sum = before + blocks < UINT16_MAX ? before + blocks : UINT16_MAX;
    width->spilled_blocks = (uint16_t)sum;
    bool was_far = is_far(state, before);
    bool ends = width->is_ending || heap->row.is_ending;
    if (!ends && is_far(state, sum)) {
        bool is_further = !was_far || has_doubled(before, sum);
        if (is_further || pinned_kib(state, class_idx, sum) > width->kept_kib) {
            /* Until the next look at this row it may go through as many again. */
            size_t kib = pinned_kib(state, class_idx, 2 * sum);
            ends = width->is_ending = (!was_far && begins_end(&width->ended_ms)) || !keeps(width, kib);
        }
    }
    if (ends) {
        set_kept(width, 0);
    }
    return ends;
}

void hak_width_narrow(struct heap *heap, unsigned class_idx) {
    struct class_width *width = &heap->classes[class_idx].width;
    forget_swings(width);
    if (width->doublings != 0) {
        set_doublings(heap, class_idx, width->doublings - 1u);
    }
}

void hak_width_end(struct heap *heap, unsigned class_idx) {
    struct class_width *width = &heap->classes[class_idx].width;
    forget_swings(width);
    width->proofs = 0;
    set_doublings(heap, class_idx, 0);
    set_kept(width, 0);
}

void hak_width_reset(struct heap *heap, unsigned class_idx) {
    hak_width_end(heap, class_idx);
    heap->classes[class_idx].width = (struct class_width){0};
}

bool hak_width_is_idle(struct heap *heap, unsigned class_idx, unsigned count) {
    struct class_width *width = &heap->classes[class_idx].width;
    if (width->looks == 0 || count < width->least_blocks) {
        width->least_blocks = (uint16_t)count;
    }
    if (width->looks == 0 || count > width->most_blocks) {
        width->most_blocks = (uint16_t)count;
    }
    if (++width->looks < LOOKS_TO_NARROW) {
        return false;
    }
    width->looks = 0;
    return (unsigned)(width->most_blocks - width->least_blocks) <= capacity_of(class_idx, 0);
}
