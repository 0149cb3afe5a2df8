/*
 * shuffle.c - see shuffle.h.
 *
 * A slab is opened whole at its first take, so that any of its blocks can be the next; its pages are touched
 * in no order either. Groups of headers are visited at random, and from each some blocks are taken. When
 * several visits find nothing the slab is nearly full, and one pass over all its groups takes what there is.
 */
#include "slab/shuffle.h"
#include "base/bits.h"
#include "meta/classes.h"
#include "slab/chance.h"

#define EMPTY_VISITS_MAX 8u

struct shuffle {
    struct slab *slab;
    struct block_ref *refs;
    unsigned want;
    unsigned got;
};

/* What was never carved becomes free like the rest. */
static void open_whole(struct slab *slab) {
    for (unsigned i = slab->carved_blocks; i < slab->capacity_blocks; i++) {
        /* relaxed: only the lease holder turns NEVER into anything; the release of the lease publishes it */
        hak_atomic_store_relaxed(&slab->map[i], HAK_HEADER_FREE);
    }
    if (slab->carved_blocks != slab->capacity_blocks) {
        hak_slab_set_carved(slab, slab->capacity_blocks);
    }
    slab->is_zero = false;
}

/* What lies behind the last header is 0 for ever. */
static uint32_t free_in_group(const struct slab *slab, unsigned group) {
    return hak_headers_equal(&slab->map[group], HAK_HEADER_FREE);
}

static void take(struct shuffle *shuffle, unsigned group, uint32_t mask) {
    struct slab *slab = shuffle->slab;
    size_t block_bytes = hak_class_block_bytes[slab->class_idx];
    for (; mask != 0 && shuffle->got != shuffle->want; mask &= mask - 1) {
        unsigned i = group + hak_ctz32(mask);
        shuffle->refs[shuffle->got++] =
            (struct block_ref){.block = (void *)(slab->base + i * block_bytes), .header = &slab->map[i]};
        /* relaxed: only the lease holder turns FREE into anything; the release of the lease publishes it */
        hak_atomic_store_relaxed(&slab->map[i], HAK_HEADER_CACHED);
    }
}

static uint32_t some_of(uint32_t mask) {
    uint32_t some = mask & hak_chance_below(UINT32_MAX);
    return some != 0 ? some : (uint32_t)1 << hak_chance_bit(mask);
}

static void mix(struct block_ref *refs, unsigned count) {
    for (unsigned left = count; left > 1; left--) {
        unsigned other = hak_chance_below(left);
        struct block_ref last = refs[left - 1];
        refs[left - 1] = refs[other];
        refs[other] = last;
    }
}

unsigned hak_shuffle_take(struct slab *slab, struct block_ref *refs, unsigned want) {
    struct shuffle shuffle = {.slab = slab, .refs = refs, .want = want};
    unsigned groups = (slab->capacity_blocks + HAK_MAP_GROUP_BLOCKS - 1) / HAK_MAP_GROUP_BLOCKS;
    open_whole(slab);
    for (unsigned empty_visits = 0; shuffle.got != want && empty_visits != EMPTY_VISITS_MAX;) {
        unsigned group = hak_chance_below(groups) * HAK_MAP_GROUP_BLOCKS;
        uint32_t mask = free_in_group(slab, group);
        if (mask == 0) {
            empty_visits++;
        } else {
            take(&shuffle, group, some_of(mask));
        }
    }
    unsigned first = hak_chance_below(groups);
    for (unsigned i = 0; shuffle.got != want && i < groups; i++) {
        unsigned group = (first + i) % groups * HAK_MAP_GROUP_BLOCKS;
        take(&shuffle, group, free_in_group(slab, group));
    }
    mix(refs, shuffle.got);
    return shuffle.got;
}
