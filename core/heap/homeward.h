/*
 * homeward.h - a thread's freed blocks that belong to slabs of other threads.
 *
 * A small one is not handed out again by the thread that freed it: its neighbours, and the neighbours of its
 * header, are in use elsewhere, and every write would take a cache line from there. So the block is FREE, its
 * slab's, at once; only its count is put off, so that a remote free costs one store and a share of one atomic
 * addition.
 * One of many lines may stay, on top of the cache, since the header's line alone is shared and its own are
 * here already: in place of the blocks that refills would get; at most three refills, so that the cache
 * has room for the thread's own. That is for a thread which replaces blocks one by one. Where it frees
 * several in a row, without an allocation in between, they are what another thread handed over and has in its
 * cache yet: all but the first two go home. Each that stays pins a page at least, and a thread that never
 * allocates again keeps them, so all caches of larger blocks of a thread together pin no more than its share
 * of some MiB by them (struct hak_options). All functions: the owning thread, no lock held.
 */
#ifndef HAK_HEAP_HOMEWARD_H
#define HAK_HEAP_HOMEWARD_H

#include "heap/heap.h"
#include "meta/classes.h"

#define HAK_GOES_HOME_MAX_BYTES 256u
#define HAK_STAYING_BYTES_MAX   98304u /* of a class: what stays the slabs of its owner do not get, */
#define HAK_STAYING_REFILLS_MAX 3u     /* and no more than so many refills bring */
#define HAK_STAYING_IN_ROW_MAX  2u     /* between two allocations */

/* OS pages of 4 KiB that a cached block may be all that keeps. */
HAK_INLINE int32_t hak_homeward_pinned_pages(size_t block_bytes) {
    return (int32_t)(block_bytes / 4096 + 1);
}

/* How many blocks a cache may have with foreign ones, after what its refills bring has changed. */
void hak_homeward_set_max(struct class_state *state, unsigned class_idx);

/*
 * Whether the thread's share has pages for one block more than the class's cache has now; if so, they are the
 * class's from now on. When the share is used up it is counted anew, from what all caches have.
 */
bool hak_homeward_widen(struct heap *heap, unsigned class_idx);

/* Whether the thread has kept as many foreign blocks as may stay since it allocated last; else one fewer may.
 */
HAK_ALWAYS_INLINE bool hak_homeward_is_in_row(struct homeward *homeward) {
    if (hak_tls.until_slow != homeward->until_slow) {
        homeward->until_slow = hak_tls.until_slow;
        homeward->row_left = HAK_STAYING_IN_ROW_MAX;
    }
    if (homeward->row_left == 0) {
        return true;
    }
    homeward->row_left--;
    return false;
}

/* Whether the line of its header is one of many that a block of that class brings along. */
HAK_INLINE bool hak_homeward_has_many_lines(unsigned class_idx) {
    return hak_class_block_bytes[class_idx] > HAK_GOES_HOME_MAX_BYTES;
}

/* Whether a freed block of that class may stay, perhaps: a thread that frees alone caches none. */
HAK_ALWAYS_INLINE bool hak_homeward_is_to_ask(unsigned class_idx) {
    return hak_homeward_has_many_lines(class_idx) && hak_tls.top[class_idx]->block != HAK_CACHE_STOP;
}

/*
 * Whether a freed block, its unit's word given, stays where there is place for it: the caller then puts it on
 * top of the cache. What is moved out of a sparse slab (defrag.h), which has nobody's tag, does not.
 */
HAK_ALWAYS_INLINE bool hak_homeward_stays(struct heap *heap, hak_word word) {
    return hak_word_tag(word) != 0 && !hak_homeward_is_in_row(&heap->homeward);
}

/* Counts the blocks that are not counted yet. */
void hak_homeward_flush(struct heap *heap);

/* The first block of its unit. */
void hak_homeward_add_first(struct heap *heap, const void *block, unsigned class_idx);

/* Notes a block that the tally has. */
HAK_ALWAYS_INLINE void hak_homeward_note(struct heap *heap, unsigned class_idx) {
    struct homeward *homeward = &heap->homeward;
    unsigned count = hak_atomic_load_relaxed(&homeward->count) + 1; /* relaxed: written here alone */
    hak_atomic_store_relaxed(&homeward->count, count);              /* relaxed: as in the flush */
    homeward->bytes_left -= hak_class_block_bytes[class_idx];
    if (HAK_UNLIKELY(homeward->bytes_left <= 0) || HAK_UNLIKELY(count >= homeward->count_max)) {
        hak_homeward_flush(heap);
    }
}

/* Adds a block that was just made FREE; when it is the last that fits, all are counted. */
HAK_ALWAYS_INLINE void hak_homeward_add(struct heap *heap, const void *block, unsigned class_idx) {
    unsigned slot = hak_tally_slot(block);
    if (!hak_tally_is_open(&heap->homeward.tally, slot, block)) {
        hak_homeward_add_first(heap, block, class_idx);
        return;
    }
    heap->homeward.tally.blocks[slot]++;
    hak_homeward_note(heap, class_idx);
}

/* Drops the counts: for a new heap, and for the child of a fork, where all slabs are counted anew. */
void hak_homeward_forget(struct heap *heap);

/* Blocks that all heaps have made FREE and not counted yet. Any thread; a moment's figure. */
HAK_COLD size_t hak_homeward_uncounted(void);

#endif
