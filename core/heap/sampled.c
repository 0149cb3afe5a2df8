/*
 * sampled.c - see sampled.h.
 */
#include "heap/sampled.h"
#include "base/bits.h"
#include "check/guarded.h"
#include "check/slots.h"
#include "conf/options.h"
#include "heap/checked.h"
#include "heap/front.h"
#include "heap/unified_cache.h"
#include <string.h>

#define SAMPLED_BYTES_MAX                                                                                    \
    ((size_t)1024 * 1024)       /* larger ones have a mapping, and mostly a neighbour without access */
#define SAMPLED_LIVE_MAX  8192u /* each is two kernel mappings, of 65 530 that a process may have */
#define CHANCE_MULTIPLIER UINT64_C(0xD1342543DE82EF95)
#define CHANCE_SHIFT      32

void hak_sampled_start(void) {
    hak_checked_prepare(HAK_FRONT_SAMPLED);
}

/* From half to one and a half times the option's, so that no program's own rhythm meets it. */
static int64_t next_interval(struct heap *heap) {
    heap->sample_chance = heap->sample_chance * CHANCE_MULTIPLIER + (uintptr_t)heap + 1;
    uint64_t every = hak_options.guard_sample;
    uint64_t half = every / 2;
    return (int64_t)(every - half + (heap->sample_chance >> CHANCE_SHIFT) % (2 * half + 1));
}

/* Blocks of a class are aligned to what divides its size, and aligned requests ask for such sizes. */
static unsigned align_shift_of(size_t bytes) {
    unsigned shift = bytes == 0 ? 0 : hak_ctz64(bytes);
    unsigned least = hak_log2(HAK_ALIGN_BYTES);
    unsigned most = hak_log2(HAK_MID_MAX_BYTES);
    return shift < least ? least : shift > most ? most : shift;
}

void *hak_sampled_alloc(struct heap *heap, size_t bytes) {
    if (bytes > SAMPLED_BYTES_MAX) {
        return NULL;
    }
    if (heap->sample_chance == 0) {
        heap->sample_left = next_interval(heap); /* a thread's first allocation */
    }
    heap->sample_left--;
    if (heap->sample_left > 0) {
        return NULL;
    }
    /* A refill may have brought more than an interval: then the next allocations are sampled until that is
     * made up. */
    heap->sample_left += next_interval(heap);
    return hak_slots_live() + hak_guarded_live() < SAMPLED_LIVE_MAX
               ? hak_checked_alloc_guarded(bytes, align_shift_of(bytes))
               : NULL;
}

void hak_sampled_count(struct heap *heap, size_t bytes) {
    if (bytes <= HAK_MID_MAX_BYTES) {
        heap->sample_left -= hak_cache_count(heap, hak_class_of(bytes));
    }
}

void *hak_sampled_realloc(const char *function, void *block, size_t bytes) {
    size_t old_bytes = hak_checked_usable(function, block);
    if (bytes == old_bytes) {
        return block;
    }
    void *moved = hak_alloc_gate(bytes);
    if (moved != NULL) {
        memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
        hak_checked_free(block, function, HAK_NO_CLAIM);
    }
    return moved;
}
