/*
 * blocks.c - see blocks.h.
 *
 * Order: a returned block's FREE byte is stored (release) before its slab's count is raised, and the count is
 * this thread's last access to the slab. A sweep may find FREE bytes that are not counted yet; the count then
 * runs below the truth until it is, never above, so a slab is never retired while a count is under way.
 */
#include "slab/blocks.h"
#include "base/assert.h"
#include "meta/classes.h"
#include "os/os.h"
#include "slab/purge.h"
#include "slab/slab_word.h"
#include <string.h>

/* Slabs that a returned batch may touch before counts are written back early. A power of two. */
#define TALLY_SLOTS 32u

struct sweep {
    struct slab *slab;
    struct block_ref *refs; /* filled from the end downwards */
    unsigned want;
    unsigned got;
};

static void take_block(struct sweep *sweep, unsigned block_idx, uint8_t header_value) {
    struct slab *slab = sweep->slab;
    struct block_ref *ref = &sweep->refs[sweep->want - 1 - sweep->got++];
    ref->block = (void *)(slab->base + (size_t)block_idx * hak_class_block_bytes[slab->class_idx]);
    ref->header = &slab->map[block_idx];
    /* relaxed: only the lease holder turns FREE or NEVER into anything; the release of the lease publishes it
     */
    hak_atomic_store_relaxed(ref->header, header_value);
}

/* Takes FREE blocks in [from, to) until enough are had; returns where the next sweep should start. */
static unsigned sweep_range(struct sweep *sweep, unsigned from, unsigned to) {
    for (unsigned group = from & ~(HAK_MAP_GROUP_BLOCKS - 1); group < to; group += HAK_MAP_GROUP_BLOCKS) {
        uint32_t free_mask = hak_headers_equal(&sweep->slab->map[group], HAK_HEADER_FREE);
        if (group < from) {
            free_mask &= ~hak_mask32(from - group);
        }
        if (to - group < HAK_MAP_GROUP_BLOCKS) {
            free_mask &= hak_mask32(to - group);
        }
        for (; free_mask != 0; free_mask &= free_mask - 1) {
            unsigned block_idx = group + hak_ctz32(free_mask);
            take_block(sweep, block_idx, HAK_HEADER_CACHED);
            if (sweep->got == sweep->want) {
                return block_idx + 1;
            }
        }
    }
    return to;
}

static void sweep_freed(struct sweep *sweep) {
    struct slab *slab = sweep->slab;
    unsigned start = slab->sweep_cursor;
    unsigned end = slab->carved_blocks;
    unsigned cursor = sweep_range(sweep, start, end);
    if (sweep->got < sweep->want && start != 0) {
        cursor = sweep_range(sweep, 0, start);
    }
    slab->sweep_cursor = (uint16_t)(cursor < end ? cursor : 0);
}

static void carve(struct sweep *sweep) {
    struct slab *slab = sweep->slab;
    uint8_t header_value = slab->is_zero ? HAK_HEADER_CACHED_ZERO : HAK_HEADER_CACHED;
    while (sweep->got < sweep->want && slab->carved_blocks < slab->capacity_blocks) {
        take_block(sweep, slab->carved_blocks, header_value);
        slab->carved_blocks++;
    }
}

/* Debug: what was taken is inside the slab, each block's header found again by the look-up that free makes.
 */
static void check_batch(const struct slab *slab, const struct block_ref *refs, unsigned count) {
    size_t block_bytes = hak_class_block_bytes[slab->class_idx];
    for (unsigned i = 0; i < count; i++) {
        size_t offset = (uintptr_t)refs[i].block - slab->base;
        HAK_ASSERT(offset % block_bytes == 0 && offset / block_bytes < slab->carved_blocks);
        HAK_ASSERT(refs[i].header == &slab->map[offset / block_bytes]);
        HAK_ASSERT(hak_slab_of_block(refs[i].block) == slab);
        HAK_ASSERT(i == 0 || refs[i].block != refs[i - 1].block);
    }
}

/* FREE bytes there may be: counted ones below carved_blocks, or some on their way. */
static bool may_have_freed(const struct slab *slab) {
    /* relaxed: a hint; a free that is counted a moment later is found by the next refill */
    int counted = hak_slab_word_count(hak_atomic_load_relaxed(&slab->word));
    return counted > (int)(slab->capacity_blocks - slab->carved_blocks);
}

unsigned hak_blocks_take(struct slab *slab, struct block_ref *refs, unsigned want) {
    struct sweep sweep = {.slab = slab, .refs = refs, .want = want, .got = 0};
    slab->purged_blocks = HAK_NEVER_PURGED;
    if (may_have_freed(slab)) {
        sweep_freed(&sweep);
    }
    carve(&sweep);
    if (sweep.got < want && sweep.got != 0) {
        memmove(refs, refs + (want - sweep.got), sweep.got * sizeof *refs);
    }
    if (!HAKMEM_BUILD_RELEASE) {
        check_batch(slab, refs, sweep.got);
    }
    return sweep.got;
}

/* How many blocks of a batch each slab gets: a small direct-mapped table, written back on a collision. */
struct tally {
    struct slab *slabs[TALLY_SLOTS];
    unsigned blocks[TALLY_SLOTS];
    uint32_t owner;   /* the returning heap */
    unsigned foreign; /* blocks of slabs that are not its own */
    hak_event_handler handler;
    void *context;
};

static void tally_flush(struct tally *tally, unsigned slot) {
    struct slab *slab = tally->slabs[slot];
    /* relaxed: only counted; an adoption meanwhile makes it a block more or less */
    uint32_t owner = hak_slab_word_owner(hak_atomic_load_relaxed(&slab->word));
    tally->foreign += owner != tally->owner ? tally->blocks[slot] : 0;
    enum hak_slab_event event = hak_slab_count_free(slab, tally->blocks[slot]);
    if (event != HAK_EVENT_NONE) {
        tally->handler(slab, event, tally->context);
    }
    tally->blocks[slot] = 0;
}

static void tally_add(struct tally *tally, struct slab *slab) {
    unsigned slot = (unsigned)((uintptr_t)slab / sizeof *slab) & (TALLY_SLOTS - 1);
    if (tally->blocks[slot] != 0 && tally->slabs[slot] != slab) {
        tally_flush(tally, slot);
    }
    tally->slabs[slot] = slab;
    tally->blocks[slot]++;
}

unsigned hak_blocks_return(const struct block_ref *refs, unsigned count, uint32_t owner,
                           hak_event_handler handler, void *context) {
    struct tally tally = {.owner = owner, .handler = handler, .context = context};
    for (unsigned i = 0; i < count; i++) {
        /* release: pairs with the acquire loads in hak_headers_equal(): whoever takes the block out sees our
         * writes */
        hak_atomic_store_release(refs[i].header, HAK_HEADER_FREE);
    }
    for (unsigned i = 0; i < count; i++) {
        tally_add(&tally, hak_slab_of_block(refs[i].block));
    }
    for (unsigned slot = 0; slot < TALLY_SLOTS; slot++) {
        if (tally.blocks[slot] != 0) {
            tally_flush(&tally, slot);
        }
    }
    if (hak_purge_is_owed()) {
        hak_purge_step();
    }
    return tally.foreign;
}

static bool is_free_header(uint8_t header) {
    return header == HAK_HEADER_FREE || header == HAK_HEADER_NEVER;
}

/* Purges the OS pages wholly inside blocks [first, end). */
static size_t purge_blocks(struct slab *slab, unsigned first, unsigned end) {
    size_t block_bytes = hak_class_block_bytes[slab->class_idx];
    size_t page_bytes = hak_os_page_bytes();
    uintptr_t from = hak_round_up(slab->base + first * block_bytes, page_bytes);
    uintptr_t to = hak_round_down(slab->base + end * block_bytes, page_bytes);
    if (from >= to || hak_os_purge((void *)from, to - from) != 0) {
        return 0;
    }
    return to - from;
}

size_t hak_blocks_purge(struct slab *slab) {
    size_t given_bytes = 0;
    unsigned run_start = 0;
    /* relaxed: frees counted since change it, and only frees happen under the lease */
    int counted = hak_slab_word_count(hak_atomic_load_relaxed(&slab->word));
    if (counted == (int)slab->purged_blocks) {
        return 0;
    }
    /* What was not carved yet holds the dirt of the slab's units, if they were not zero. */
    unsigned end = slab->is_zero ? slab->carved_blocks : slab->capacity_blocks;
    for (unsigned i = 0; i <= end; i++) {
        /* acquire: pairs with the FREE stores in hak_blocks_return(): the purge comes after the last use */
        bool is_free = i < end && is_free_header(hak_atomic_load_acquire(&slab->map[i]));
        if (!is_free) {
            given_bytes += i > run_start ? purge_blocks(slab, run_start, i) : 0;
            run_start = i + 1;
        }
    }
    slab->purged_blocks = (uint16_t)counted;
    return given_bytes;
}
