/*
 * upkeep.c - see upkeep.h.
 */
#include "heap/upkeep.h"
#include "base/bits.h"
#include "heap/unified_cache.h"
#include "heap/width.h"
#include "large/large.h"
#include "large/release.h"
#include "os/os.h"
#include "slab/purge.h"
#include "slab/ragged.h"
#include "slab/retention.h"

#define SOON    64u  /* allocations, where there is more to give back than one operation may */
#define LOOK_MS 500u /* at least, from one look at the marks of all caches to the next */

/* What lies below its mark in a cache the thread has not needed since the look before. */
static void find_unused(struct heap *heap) {
    uint32_t now_ms = (uint32_t)hak_os_now_ms();
    if (now_ms - heap->looked_ms < LOOK_MS) {
        return;
    }
    heap->looked_ms = now_ms;
    heap->unused = 0;
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        if (heap->classes[c].marked != 0) {
            heap->unused |= (uint64_t)1 << c;
        } else {
            hak_cache_mark(heap, c);
        }
    }
}

/* One class at a time: each may have some hundred blocks to return. */
static void drain_unused(struct heap *heap) {
    if (heap->unused == 0) {
        return;
    }
    unsigned class_idx = hak_ctz64(heap->unused);
    heap->unused &= heap->unused - 1;
    hak_cache_mark(heap, class_idx);
}

/* What has stopped swinging. */
static void narrow_idle(struct heap *heap) {
    for (uint64_t left = heap->wide; left != 0; left &= left - 1) {
        unsigned class_idx = hak_ctz64(left);
        if (hak_width_is_idle(heap, class_idx, hak_cache_count(heap, class_idx))) {
            hak_width_narrow(heap, class_idx);
            hak_cache_fit(heap, class_idx);
        }
    }
}

static bool is_large_owed(void) {
    return hak_atomic_load_relaxed(&hak_release_has_debt); /* relaxed: a hint */
}

/* Whether it was time for a turn. The thread comes by about as often: sooner again if it was, else later. */
static bool look_after_ragged(struct heap *heap) {
    bool is_time = hak_purge_ragged_in_time();
    unsigned gap = is_time ? heap->ragged_gap / 2u : heap->ragged_gap * 2u;
    heap->ragged_gap = (uint16_t)(gap < SOON ? SOON : hak_smaller(gap, HAK_UPKEEP_WHILE_RAGGED));
    return is_time;
}

/* Whether time alone may make something be too much: proved cycles have raised the floor, or it was to wait.
 */
static bool ages(enum hak_retainer who) {
    return hak_retention_is_raised(who) || hak_options.purge_ms != 0;
}

/* Whether something of large blocks went back for that. */
static bool age_large(void) {
    return ages(HAK_RETAINER_LARGE) && hak_release_age();
}

/*
 * Others may have raised floors, and all may be asleep now but this thread. What large blocks owe it has paid
 * already. At most one step's calls, and none by the refill that may follow.
 */
static void give_back(struct heap *heap) {
    if (ages(HAK_RETAINER_SLABS) || hak_purge_lru_is_over()) {
        hak_purge_age();
    }
    heap->has_given_back = (hak_purge_is_owed() && hak_purge_step(HAK_PURGE_STEP_CALLS) != 0) ||
                           age_large() || (hak_ragged_is_waiting() && look_after_ragged(heap));
}

/* As often as there is upkeep where nothing waits. */
static void look_at_caches(struct heap *heap) {
    if (heap->until_look <= 0) {
        heap->until_look = HAK_UPKEEP_ALLOCATIONS;
        narrow_idle(heap);
        find_unused(heap);
    }
    drain_unused(heap);
}

static unsigned until_next(const struct heap *heap) {
    if (hak_purge_is_owed() || is_large_owed() || heap->unused != 0) {
        return SOON;
    }
    return hak_ragged_is_waiting() ? heap->ragged_gap : HAK_UPKEEP_ALLOCATIONS;
}

void hak_upkeep(struct heap *heap, int64_t until_slow_max) {
    look_at_caches(heap);
    give_back(heap);
    hak_tls.until_slow = (int64_t)hak_smaller(until_next(heap), (size_t)until_slow_max);
    heap->until_look -= (int32_t)hak_smaller((size_t)hak_tls.until_slow, HAK_UPKEEP_ALLOCATIONS);
}
