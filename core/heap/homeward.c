/*
 * homeward.c - see homeward.h.
 */
#include "heap/homeward.h"
#include "conf/options.h"
#include "heap/unified_cache.h"
#include "slab/purge.h"
#include <string.h>

#define BATCH_BLOCKS     128u
#define BATCH_IN_DEBT    4u    /* while memory is being given back: each block may be the last of its slab */
#define UNCOUNTED_BLOCKS 4096u /* of all threads, which may all sleep then */
#define REFUSALS         32u   /* blocks that go home before what is pinned is counted again */
#define LITTLE_PART      8     /* of a share: less than that is not worth counting for */

/* Bytes of blocks that may be uncounted, by profile: they may be all that keeps their slabs from retiring. */
static const uint32_t bound_bytes[] = {
    [HAK_PROFILE_DEFAULT] = 64 * 1024,
    [HAK_PROFILE_CONSERVATIVE] = 8 * 1024,
    [HAK_PROFILE_THROUGHPUT] = 128 * 1024,
};

/* A thread's share of what all of them may hold. */
static uint32_t share_of(uint32_t all) {
    uint32_t threads = hak_heap_attached_count();
    return all / (threads != 0 ? threads : 1);
}

/* How many may wait, now: beyond 32 threads the fewer the more there are. */
static uint32_t batch_blocks(void) {
    uint32_t share = share_of(UNCOUNTED_BLOCKS);
    if (share <= BATCH_IN_DEBT || hak_purge_is_owed()) {
        return BATCH_IN_DEBT;
    }
    return share < BATCH_BLOCKS ? share : BATCH_BLOCKS;
}

static void end_batch(struct homeward *homeward) {
    hak_atomic_store_relaxed(&homeward->count, 0); /* relaxed: for hak_homeward_uncounted() */
    homeward->bytes_left = bound_bytes[hak_options.tiny_profile];
}

/* The counters of a slot's class get what the slot has, which is about to be counted. */
static void count_remote(struct heap *heap, unsigned slot) {
    const struct tally *tally = &heap->homeward.tally;
    unsigned class_idx = hak_word_row(hak_registry_word(tally->samples[slot]))->class_idx;
    HAK_COUNT(&heap->classes[class_idx].counters, remote_frees, tally->blocks[slot]);
}

void hak_homeward_flush(struct heap *heap) {
    struct homeward *homeward = &heap->homeward;
    for (uint32_t used = homeward->tally.used; used != 0; used &= used - 1) {
        count_remote(heap, hak_ctz32(used));
    }
    hak_tally_settle(&homeward->tally);
    hak_purge_pay();
    end_batch(homeward);
}

HAK_NOINLINE void hak_homeward_add_first(struct heap *heap, const void *block, unsigned class_idx) {
    struct homeward *homeward = &heap->homeward;
    unsigned slot = hak_tally_slot(block);
    heap->classes[class_idx].is_used = true;
    heap->classes[class_idx].refills_alone = 0;
    if (homeward->tally.used == 0) {
        homeward->count_max = batch_blocks();
    }
    if (hak_tally_has(&homeward->tally, slot)) {
        count_remote(heap, slot);
    }
    hak_tally_add(&homeward->tally, block, 1);
    hak_homeward_note(heap, class_idx);
}

void hak_homeward_set_max(struct class_state *state, unsigned class_idx) {
    size_t few = (HAK_STAYING_BYTES_MAX - 1) / hak_class_block_bytes[class_idx] + 1;
    size_t some = state->refill_blocks * HAK_STAYING_REFILLS_MAX;
    state->staying_max = (uint16_t)hak_smaller(few, some);
    state->staying_blocks = (uint16_t)hak_smaller(state->staying_blocks, state->staying_max);
}

/* Each cache may have what it has, whosever the blocks are; the pages that they all may pin then. */
static int32_t count_pinned_pages(struct heap *heap) {
    int32_t pages = 0;
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        if (hak_homeward_has_many_lines(c)) {
            struct class_state *state = &heap->classes[c];
            unsigned count = hak_cache_count(heap, c);
            state->staying_blocks = (uint16_t)hak_smaller(count, state->staying_max);
            pages += (int32_t)count * hak_homeward_pinned_pages(hak_class_block_bytes[c]);
        }
    }
    return pages;
}

/* Whether so many pages more may be pinned, when those that were left are used up. */
static bool may_pin(struct heap *heap, int32_t pages) {
    struct homeward *homeward = &heap->homeward;
    homeward->pages_left = 0;
    if (homeward->refusals_left != 0) {
        homeward->refusals_left--;
        return false;
    }
    int32_t share = (int32_t)share_of(hak_options.pinned_pages);
    int32_t left = share - count_pinned_pages(heap) - pages;
    if (left < share / LITTLE_PART) {
        homeward->refusals_left = REFUSALS;
        return false;
    }
    homeward->pages_left = left;
    return true;
}

bool hak_homeward_widen(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    unsigned count = hak_cache_count(heap, class_idx);
    int32_t block_pages = hak_homeward_pinned_pages(hak_class_block_bytes[class_idx]);
    int32_t pages = (int32_t)(count + 1 - state->staying_blocks) * block_pages;
    heap->homeward.pages_left -= pages;
    if (heap->homeward.pages_left < 0 && !may_pin(heap, block_pages)) {
        return false;
    }
    state->staying_blocks = (uint16_t)(count + 1);
    return true;
}

void hak_homeward_forget(struct heap *heap) {
    heap->homeward.tally.used = 0;
    memset(heap->homeward.tally.samples, 0, sizeof heap->homeward.tally.samples);
    end_batch(&heap->homeward);
}

size_t hak_homeward_uncounted(void) {
    size_t sum = 0;
    for (uint32_t id = 1; id <= hak_heap_last_id(); id++) {
        const struct heap *heap = hak_heap_by_id(id);
        sum += heap != NULL ? hak_atomic_load_relaxed(&heap->homeward.count) : 0; /* relaxed: a moment's */
    }
    return sum;
}
