/*
 * report.c - the part of large.h that looks at everything: find, walk, count, verify, fork.
 */
#include "base/bits.h"
#include "large/extent.h"
#include "large/large.h"
#include "large/mapping.h"
#include "large/parked.h"
#include "large/release.h"
#include "os/os.h"

const void *hak_large_find(const void *p, size_t *bytes) {
    const void *start = NULL;
    hak_lock_acquire(&hak_large_lock);
    const struct hak_mapping *mapping = hak_mapping_around(p);
    if (mapping != NULL) {
        start = (const void *)mapping->base;
        *bytes = mapping->bytes;
    }
    hak_lock_release(&hak_large_lock);
    return start;
}

/* ---- walk ---- */

static int walk_extent(const struct hak_extent *extent, hak_large_visitor visitor, void *context) {
    size_t page_bytes = hak_os_page_bytes();
    for (unsigned page = 0; page < HAK_EXTENT_PAGES_MAX; page++) {
        void *block = NULL;
        size_t bytes = 0;
        hak_lock_acquire(&hak_large_lock);
        page = hak_page_map_find(&extent->live_starts, page, HAK_EXTENT_PAGES_MAX, true);
        if (page < HAK_EXTENT_PAGES_MAX && hak_extent_is_handed(extent, page)) {
            block = hak_extent_address(extent, page, page_bytes);
            bytes = extent->run_pages[page] * page_bytes;
        }
        hak_lock_release(&hak_large_lock);
        int result = block == NULL ? 0 : visitor(block, bytes, context);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

static int walk_mapping(const struct hak_mapping *mapping, hak_large_visitor visitor, void *context) {
    hak_lock_acquire(&hak_large_lock);
    bool is_live = mapping->state == HAK_MAPPING_LIVE;
    void *block = (void *)mapping->base;
    size_t bytes = mapping->bytes;
    hak_lock_release(&hak_large_lock);
    return is_live ? visitor(block, bytes, context) : 0;
}

int hak_large_walk(hak_large_visitor visitor, void *context) {
    int result = 0;
    hak_lock_acquire(&hak_large_lock);
    const struct hak_extent *extent = hak_extent_first();
    const struct hak_mapping *mapping = hak_mapping_first();
    hak_lock_release(&hak_large_lock);
    for (; extent != NULL && result == 0; extent = extent->all_next) {
        result = walk_extent(extent, visitor, context);
    }
    for (; mapping != NULL && result == 0; mapping = mapping->all_next) {
        result = walk_mapping(mapping, visitor, context);
    }
    return result;
}

void hak_large_visit_mapped(hak_range_visitor visitor, void *context) {
    hak_lock_acquire(&hak_large_lock);
    const struct hak_extent *extent = hak_extent_first();
    const struct hak_mapping *mapping = hak_mapping_first();
    hak_lock_release(&hak_large_lock);
    int result = 0;
    for (; extent != NULL && result == 0; extent = extent->all_next) {
        hak_lock_acquire(&hak_large_lock);
        uintptr_t base = extent->base;
        hak_lock_release(&hak_large_lock);
        result = base == 0 ? 0 : visitor((void *)base, HAK_SUPERSLAB_BYTES, context);
    }
    for (; mapping != NULL && result == 0; mapping = mapping->all_next) {
        hak_lock_acquire(&hak_large_lock);
        bool has_memory = mapping->state == HAK_MAPPING_LIVE || mapping->state == HAK_MAPPING_KEPT;
        void *base = (void *)mapping->base;
        size_t bytes = mapping->bytes;
        hak_lock_release(&hak_large_lock);
        result = has_memory ? visitor(base, bytes, context) : 0;
    }
}

/* ---- counts, debt ---- */

/* What of the live runs is parked; one that moved meanwhile may have been counted twice. Lock held. */
static struct hak_parked_sums count_parked(void) {
    struct hak_parked_sums parked = hak_parked_count();
    size_t run_blocks = hak_retain.live_blocks - hak_mapping_totals.live_count;
    size_t run_bytes = hak_retain.live_bytes - hak_mapping_totals.live_bytes;
    parked.blocks = hak_smaller(parked.blocks, run_blocks);
    parked.bytes = hak_smaller(parked.bytes, run_bytes);
    return parked;
}

struct hak_large_counts hak_large_count(void) {
    hak_lock_acquire(&hak_large_lock);
    struct hak_parked_sums parked = count_parked();
    struct hak_large_counts counts = {
        .live_blocks = hak_retain.live_blocks - parked.blocks,
        .live_bytes = hak_retain.live_bytes - parked.bytes,
        .mapped_blocks = hak_mapping_totals.live_count,
        .mapped_bytes = hak_mapping_totals.live_bytes,
        .free_run_bytes = hak_extent_free_bytes() + parked.bytes,
        .kept_blocks = hak_mapping_totals.kept_count,
        .kept_bytes = hak_mapping_totals.kept_bytes,
        .dirty_bytes = hak_retain.dirty_bytes + parked.bytes,
        .empty_extents = hak_extent_empty_count(),
    };
    hak_lock_release(&hak_large_lock);
    return counts;
}

void hak_large_pay_debt(void) {
    if (HAK_UNLIKELY(hak_atomic_load_relaxed(&hak_release_has_debt))) { /* relaxed: a hint */
        hak_release_excess(0, HAK_PURGE_STEP_CALLS, hak_os_now_ms());
    }
}

/* ---- verify ---- */

/* Lock held. */
static void check_everything(const char **why) {
    struct hak_extent_sums sums = {0};
    for (const struct hak_extent *extent = hak_extent_first(); extent != NULL; extent = extent->all_next) {
        if (extent->base != 0) {
            hak_extent_check(extent, &sums, why);
        }
    }
    if (hak_extent_check_indexes(why) != sums.free_runs) {
        *why = "run index: its runs are not the extents' free runs";
    }
    if (hak_extent_free_bytes() != sums.unused_bytes || hak_extent_empty_count() != sums.empty_extents) {
        *why = "extent: totals differ from the sums";
    }
    hak_mapping_check(&sums.live_bytes, &sums.live_blocks, &sums.dirty_bytes, why);
    if (hak_retain.live_bytes != sums.live_bytes || hak_retain.live_blocks != sums.live_blocks ||
        hak_retain.dirty_bytes != sums.dirty_bytes) {
        *why = "large: live or dirty bytes differ from the sums";
    }
}

bool hak_large_verify(const char **why) {
    *why = NULL;
    hak_lock_acquire(&hak_large_lock);
    check_everything(why);
    hak_lock_release(&hak_large_lock);
    return *why == NULL;
}

void hak_large_fork_child(void) {
    hak_lock_acquire(&hak_large_lock);
    hak_parked_reset();
    hak_extent_free_strays();
    hak_lock_release(&hak_large_lock);
}
