/*
 * blocks.c - see blocks.h.
 *
 * Order: a returned block's FREE byte is stored (release) before its slab's count is raised, and the last
 * count is this thread's last access to the slab. A sweep may find FREE bytes that are not counted yet; the
 * count then runs below the truth until it is, never above, so a slab is never retired while a count is under
 * way.
 */
#include "slab/blocks.h"
#include "base/assert.h"
#include "conf/options.h"
#include "meta/classes.h"
#include "os/fatal.h"
#include "os/os.h"
#include "slab/guests.h"
#include "slab/ragged.h"
#include "slab/shuffle.h"
#include "slab/slab_word.h"
#include "slab/thin.h"
#include <string.h>

/* A refill under way: free entries of the caller's array are [first, next), filled from the end downwards. */
struct sweep {
    struct slab *slab;
    size_t block_bytes;
    struct block_ref *first;
    struct block_ref *next;
};

/*
 * An entry of the caller's array, its block and its header side by side, so that both are stored at once and
 * go on to the next block's by one addition.
 */
typedef uintptr_t ref_pair __attribute__((vector_size(2 * sizeof(uintptr_t))));
_Static_assert(sizeof(ref_pair) == sizeof(struct block_ref), "a pair is an entry");

#define AT_ONCE 4 /* entries: a line's */

HAK_NOINLINE void hak_block_refs_move(struct block_ref *to, const struct block_ref *from, unsigned count) {
    const struct block_ref *end = from + count;
    HAK_ASSERT(to <= from || to >= end);
    for (; end - from >= AT_ONCE; from += AT_ONCE, to += AT_ONCE) {
        ref_pair pairs[AT_ONCE];
        memcpy(pairs, from, sizeof pairs);
        memcpy(to, pairs, sizeof pairs);
    }
    for (; from != end; from++, to++) {
        *to = *from;
    }
}

static unsigned room_of(const struct sweep *sweep) {
    return (unsigned)(sweep->next - sweep->first);
}

/* The lowest `count` set bits of a mask. */
static uint32_t lowest_bits(uint32_t mask, unsigned count) {
    uint32_t rest = mask;
    for (; rest != 0 && count != 0; count--) {
        rest &= rest - 1;
    }
    return mask ^ rest;
}

/* Takes `count` blocks in a row, FREE or NEVER, from `block` on; there is room for them. */
HAK_ALWAYS_INLINE void take_row(struct sweep *sweep, uintptr_t block, hak_header *header, uint8_t value,
                                unsigned count) {
    ref_pair ref = {block, (uintptr_t)header};
    const ref_pair step = {sweep->block_bytes, sizeof *header};
    struct block_ref *next = sweep->next;
    hak_headers_fill(header, value, count);
#pragma GCC unroll 16
    for (unsigned i = 0; i < count; i++) {
        memcpy(--next, &ref, sizeof ref);
        ref += step;
    }
    sweep->next = next;
}

/* Takes the blocks of one group whose bits are set; there is room for them. */
HAK_INLINE void take_group(struct sweep *sweep, unsigned group, uint32_t mask) {
    hak_header *headers = &sweep->slab->map[group];
    uintptr_t base = sweep->slab->base + group * sweep->block_bytes;
    if (mask == hak_mask32(HAK_MAP_GROUP_BLOCKS)) {
        take_row(sweep, base, headers, HAK_HEADER_CACHED, HAK_MAP_GROUP_BLOCKS);
        return;
    }
    size_t block_bytes = sweep->block_bytes;
    struct block_ref *next = sweep->next;
    for (; mask != 0; mask &= mask - 1) {
        size_t i = hak_ctz32(mask);
        next--;
        next->block = (void *)(base + i * block_bytes);
        next->header = headers + i;
        /* relaxed: only the lease holder turns FREE into anything; the release of the lease publishes it */
        hak_atomic_store_relaxed(headers + i, HAK_HEADER_CACHED);
    }
    sweep->next = next;
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
        if (room_of(sweep) <= HAK_MAP_GROUP_BLOCKS) {
            free_mask = lowest_bits(free_mask, room_of(sweep));
        }
        take_group(sweep, group, free_mask);
        if (sweep->next == sweep->first) {
            return group + hak_log2(free_mask) + 1;
        }
    }
    return to;
}

/* The OS pages that blocks [first, end) of a slab of one unit lie on, as a mask. */
static uint32_t pages_of_blocks(const struct slab *slab, unsigned first, unsigned end) {
    size_t block_bytes = hak_class_block_bytes[slab->class_idx];
    size_t from = hak_os_pages_in(first * block_bytes);
    size_t to = hak_os_pages_in(end * block_bytes - 1);
    return hak_mask32((unsigned)(to - from + 1)) << from;
}

/* Of a group's blocks, those that lie on pages that were given back. */
static uint32_t on_purged_pages(const struct slab *slab, unsigned group) {
    unsigned blocks_left = slab->capacity_blocks - group;
    unsigned blocks = blocks_left < HAK_MAP_GROUP_BLOCKS ? blocks_left : HAK_MAP_GROUP_BLOCKS;
    uint32_t pages = pages_of_blocks(slab, group, group + blocks);
    if ((pages & slab->purged_mask) == 0) {
        return 0;
    }
    if ((pages & ~(uint32_t)slab->purged_mask) == 0) {
        return hak_mask32(blocks);
    }
    uint32_t mask = 0;
    for (unsigned i = 0; i < blocks; i++) {
        bool is_on = (pages_of_blocks(slab, group + i, group + i + 1) & slab->purged_mask) != 0;
        mask |= (uint32_t)is_on << i;
    }
    return mask;
}

uint32_t hak_blocks_resident(const struct slab *slab, unsigned group) {
    uint32_t free_mask = hak_headers_equal(&slab->map[group], HAK_HEADER_FREE);
    return free_mask != 0 && slab->purged_mask != 0 ? free_mask & ~on_purged_pages(slab, group) : free_mask;
}

/* Takes FREE blocks beside those in use first, where pages were given back: the others may stay away. */
static HAK_COLD void sweep_resident(struct sweep *sweep) {
    struct slab *slab = sweep->slab;
    for (unsigned group = 0; group < slab->carved_blocks && sweep->next != sweep->first;
         group += HAK_MAP_GROUP_BLOCKS) {
        uint32_t free_mask = hak_blocks_resident(slab, group);
        if (slab->carved_blocks - group < HAK_MAP_GROUP_BLOCKS) {
            free_mask &= hak_mask32(slab->carved_blocks - group);
        }
        take_group(sweep, group, lowest_bits(free_mask, room_of(sweep)));
    }
}

static void sweep_freed(struct sweep *sweep) {
    struct slab *slab = sweep->slab;
    unsigned start = slab->sweep_cursor;
    unsigned end = slab->carved_blocks;
    unsigned cursor = sweep_range(sweep, start, end);
    if (sweep->next != sweep->first && start != 0) {
        cursor = sweep_range(sweep, 0, start);
    }
    slab->sweep_cursor = (uint16_t)(cursor < end ? cursor : 0);
}

/* The header of a block that is handed out for the first time. */
HAK_INLINE uint8_t first_header(const struct slab *slab) {
    return slab->is_zero ? HAK_HEADER_CACHED_ZERO : HAK_HEADER_CACHED;
}

static void carve(struct sweep *sweep) {
    struct slab *slab = sweep->slab;
    unsigned left = (unsigned)(slab->capacity_blocks - slab->carved_blocks);
    unsigned count = room_of(sweep) < left ? room_of(sweep) : left;
    take_row(sweep, slab->base + slab->carved_blocks * sweep->block_bytes, &slab->map[slab->carved_blocks],
             first_header(slab), count);
    if (count != 0) {
        hak_slab_set_carved(slab, slab->carved_blocks + count);
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

/*
 * FREE bytes there may be: counted ones below carved_blocks, or some on their way. Where none is counted none
 * is looked for, so that the count falls below zero by one slab's blocks at most, however many threads have
 * frees that they have not counted yet: its field has room for no more.
 */
static bool may_have_freed(const struct slab *slab) {
    /* relaxed: a hint; a free that is counted a moment later is found by the next refill */
    int counted = hak_slab_word_count(hak_atomic_load_relaxed(&slab->word));
    return counted > (int)(slab->capacity_blocks - slab->carved_blocks);
}

/*
 * One block, as a class that is cold asks for them, where it is found at once: the next never used one, or a
 * freed one in the cursor's group. False if it is not.
 */
HAK_INLINE bool take_one(struct slab *slab, struct block_ref *ref) {
    unsigned idx = slab->carved_blocks;
    uint8_t header_value = first_header(slab);
    if (may_have_freed(slab)) {
        unsigned cursor = slab->sweep_cursor;
        unsigned group = cursor & ~(HAK_MAP_GROUP_BLOCKS - 1);
        uint32_t free_mask =
            hak_headers_equal(&slab->map[group], HAK_HEADER_FREE) & ~hak_mask32(cursor - group);
        if (free_mask == 0 || slab->purged_mask != 0) {
            return false;
        }
        idx = group + hak_ctz32(free_mask);
        header_value = HAK_HEADER_CACHED;
        slab->sweep_cursor = (uint16_t)(idx + 1 < slab->carved_blocks ? idx + 1 : 0);
    } else if (idx < slab->capacity_blocks) {
        hak_slab_set_carved(slab, idx + 1);
    } else {
        return false;
    }
    ref->block = (void *)(slab->base + idx * hak_class_block_bytes[slab->class_idx]);
    ref->header = &slab->map[idx];
    /* relaxed: only the lease holder turns FREE or NEVER into anything; the release of the lease publishes it
     */
    hak_atomic_store_relaxed(ref->header, header_value);
    return true;
}

static unsigned take_any(struct slab *slab, struct block_ref *refs, unsigned want) {
    struct sweep sweep = {.slab = slab,
                          .block_bytes = hak_class_block_bytes[slab->class_idx],
                          .first = refs,
                          .next = refs + want};
    if (may_have_freed(slab)) {
        if (HAK_UNLIKELY(slab->purged_mask != 0)) {
            sweep_resident(&sweep);
        }
        if (sweep.next != sweep.first) {
            sweep_freed(&sweep);
        }
    }
    carve(&sweep);
    unsigned got = want - room_of(&sweep);
    if (got != want && got != 0) {
        hak_block_refs_move(refs, sweep.next, got);
    }
    return got;
}

static unsigned take(struct slab *slab, struct block_ref *refs, unsigned want) {
    if (HAK_UNLIKELY(hak_options.randomize)) {
        bool has_some = may_have_freed(slab) || slab->carved_blocks < slab->capacity_blocks;
        return has_some ? hak_shuffle_take(slab, refs, want) : 0;
    }
    unsigned got = want == 1 && take_one(slab, refs) ? 1 : take_any(slab, refs, want);
    if (!HAKMEM_BUILD_RELEASE) {
        check_batch(slab, refs, got);
    }
    return got;
}

/* The OS pages of blocks that were taken out of a slab of one unit; of a larger one any. */
static HAK_COLD uint32_t pages_of(const struct slab *slab, const struct block_ref *refs, unsigned count) {
    uint32_t mask = 0;
    for (unsigned i = 0; hak_slab_knows_purged_pages(slab) && i < count; i++) {
        unsigned idx = (unsigned)(refs[i].header - slab->map);
        mask |= pages_of_blocks(slab, idx, idx + 1);
    }
    return mask;
}

unsigned hak_blocks_take(struct slab *slab, struct block_ref *refs, unsigned want) {
    bool is_known = hak_thin_is_known(slab);
    if (HAK_UNLIKELY(is_known)) {
        hak_thin_end(slab);
    }
    unsigned got = take(slab, refs, want);
    hak_ragged_raise(slab, got);
    if (HAK_UNLIKELY(is_known)) {
        hak_thin_take(slab, pages_of(slab, refs, got), got * hak_class_block_bytes[slab->class_idx]);
    }
    return got;
}

bool hak_blocks_take_one(struct slab *slab, struct block_ref *ref) {
    if (HAK_UNLIKELY(hak_thin_is_known(slab)) || HAK_UNLIKELY(hak_options.randomize) ||
        !take_one(slab, ref)) {
        return false;
    }
    hak_ragged_raise(slab, 1);
    if (!HAKMEM_BUILD_RELEASE) {
        check_batch(slab, ref, 1);
    }
    return true;
}

/* FREE into the header of a block, or into those of a guest's row; how many that are. */
HAK_ALWAYS_INLINE unsigned cached_to_free(hak_header *header, bool may_be_guest) {
    if (may_be_guest && hak_begins_row(header)) {
        return hak_row_to_free(header);
    }
    /* release: pairs with the acquire loads in hak_headers_equal(): whoever takes the block out sees our
     * writes */
    hak_atomic_store_release(header, HAK_HEADER_FREE);
    return 1;
}

/* Whether all of a line's entries are of blocks of one unit, and none a guest's. */
HAK_ALWAYS_INLINE bool are_alike(const struct block_ref *refs, bool may_be_guests) {
    uintptr_t differs = 0;
    bool are_plain = true;
#pragma GCC unroll 4
    for (unsigned i = 0; i < AT_ONCE; i++) {
        differs |= (uintptr_t)refs[i].block ^ (uintptr_t)refs[0].block;
        are_plain = are_plain && !(may_be_guests && hak_begins_row(refs[i].header));
    }
    return differs >> HAK_UNIT_SHIFT == 0 && are_plain;
}

HAK_ALWAYS_INLINE void return_each(struct tally *tally, const struct block_ref *refs, unsigned count,
                                   bool may_be_guests) {
#pragma GCC unroll 4
    for (unsigned i = 0; i < count; i++) {
        hak_tally_add(tally, refs[i].block, cached_to_free(refs[i].header, may_be_guests));
    }
}

HAK_ALWAYS_INLINE void return_alike(struct tally *tally, const struct block_ref *refs) {
#pragma GCC unroll 4
    for (unsigned i = 0; i < AT_ONCE; i++) {
        (void)cached_to_free(refs[i].header, false);
    }
    hak_tally_add(tally, refs->block, AT_ONCE);
}

/* Blocks that were freed as they lie are added to the tally a line of entries at a time. */
HAK_ALWAYS_INLINE void return_refs(struct tally *tally, const struct block_ref *refs, unsigned count,
                                   bool may_be_guests) {
    for (; count >= AT_ONCE; refs += AT_ONCE, count -= AT_ONCE) {
        if (are_alike(refs, may_be_guests)) {
            return_alike(tally, refs);
        } else {
            return_each(tally, refs, AT_ONCE, may_be_guests);
        }
    }
    return_each(tally, refs, count, may_be_guests);
}

struct hak_returned hak_blocks_return(const struct block_ref *refs, unsigned count, uint32_t owner,
                                      hak_event_handler handler, void *context) {
    struct tally tally;
    hak_tally_begin(&tally, owner, handler, context);
    if (HAK_UNLIKELY(hak_atomic_load_relaxed(&hak_guests_were_made))) { /* relaxed: see there */
        return_refs(&tally, refs, count, true);
    } else {
        return_refs(&tally, refs, count, false);
    }
    hak_tally_settle(&tally);
    return (struct hak_returned){.foreign = tally.foreign, .units = tally.opened};
}

bool hak_block_return(struct block_ref ref, uint32_t owner, hak_event_handler handler, void *context) {
    return hak_tally_count(ref.block, cached_to_free(ref.header, true), owner, handler, context);
}

static bool is_free_header(uint8_t header) {
    return header == HAK_HEADER_FREE || header == HAK_HEADER_NEVER;
}

static bool is_purged(const struct slab *slab, unsigned page) {
    return (slab->purged_mask >> page & 1u) != 0;
}

/*
 * Purges the OS pages wholly inside blocks [first, end), those that are known to be purged at either end left
 * out, and counts the call if there is one. Returns how many pages of the range hold no memory then; those
 * that the mask knows are not counted.
 */
static unsigned purge_blocks(struct slab *slab, unsigned first, unsigned end, unsigned *calls) {
    size_t block_bytes = hak_class_block_bytes[slab->class_idx];
    size_t page_bytes = hak_os_page_bytes();
    unsigned from = hak_os_pages_for(first * block_bytes);
    /* Behind the last block nothing lies that would keep its page. */
    size_t end_offset =
        end == slab->capacity_blocks ? hak_os_page_round(end * block_bytes) : end * block_bytes;
    unsigned to = (unsigned)hak_os_pages_in(end_offset);
    while (hak_slab_knows_purged_pages(slab) && from < to && is_purged(slab, from)) {
        from++;
    }
    while (hak_slab_knows_purged_pages(slab) && from < to && is_purged(slab, to - 1)) {
        to--;
    }
    if (from >= to) {
        return 0;
    }
    ++*calls;
    if (hak_os_purge((void *)(slab->base + from * page_bytes), (to - from) * page_bytes) != 0) {
        return 0;
    }
    if (!hak_slab_knows_purged_pages(slab)) {
        return to - from;
    }
    slab->purged_mask |= (uint16_t)(hak_mask32(to - from) << from);
    return 0;
}

unsigned hak_blocks_purge(struct slab *slab, bool is_all_touched, unsigned calls_max, unsigned *calls) {
    unsigned pages = 0;
    unsigned run_start = 0;
    unsigned calls_end = *calls + calls_max;
    unsigned end = is_all_touched ? slab->capacity_blocks : slab->carved_blocks;
    for (unsigned i = 0; i <= end && *calls != calls_end; i++) {
        /* acquire: pairs with the FREE stores in cached_to_free(): the purge comes after the last use */
        bool is_free = i < end && is_free_header(hak_atomic_load_acquire(&slab->map[i]));
        if (!is_free) {
            pages += i > run_start ? purge_blocks(slab, run_start, i, calls) : 0;
            run_start = i + 1;
        }
    }
    return pages + hak_popcount32(slab->purged_mask);
}
