/*
 * run.c - see run.h.
 */
#include "large/run.h"
#include "base/assert.h"
#include "large/mapping.h"
#include "large/parked.h"
#include "large/release.h"
#include "large/retain.h"
#include "meta/arena.h"
#include "os/os.h"
#include <string.h>

#define MOVES_FIRST      8u  /* of a process */
#define COLD_COPIES_MAX  16u /* then the next runs */
#define MOVES_AFTER_COLD 64u /* move */

struct hak_run_growth hak_run_growth = {.moves_left = MOVES_FIRST};

static unsigned align_pages_of(size_t align) {
    return align <= hak_os_page_bytes() ? 1u : (unsigned)hak_os_pages_in(align);
}

bool hak_run_can_hold(size_t bytes, size_t align) {
    return bytes <= HAK_SUPERSLAB_BYTES && align < HAK_SUPERSLAB_BYTES &&
           hak_os_pages_for(bytes) + align_pages_of(align) - 1 <= hak_os_pages_in(HAK_SUPERSLAB_BYTES);
}

static struct hak_extent *new_record(void) {
    hak_lock_acquire(&hak_large_lock);
    struct hak_extent *extent = hak_extent_take_spare();
    hak_lock_release(&hak_large_lock);
    if (extent == NULL) {
        extent = hak_meta_alloc(sizeof(struct hak_extent));
        if (extent != NULL) {
            hak_lock_acquire(&hak_large_lock);
            hak_extent_publish(extent);
            hak_lock_release(&hak_large_lock);
        }
    }
    return extent;
}

/* One more extent; false when out of memory. */
static bool add_extent(void) {
    uint32_t zero_units = 0; /* gcc does not see that each SuperSlab comes with them */
    struct hak_extent *extent = new_record();
    if (extent == NULL) {
        return false;
    }
    struct superslab *superslab = hak_superslab_take_whole(&zero_units);
    hak_lock_acquire(&hak_large_lock);
    if (superslab != NULL) {
        hak_extent_open(extent, superslab, zero_units);
    } else {
        hak_extent_put_spare(extent);
    }
    hak_lock_release(&hak_large_lock);
    return superslab != NULL;
}

static bool take(unsigned pages, unsigned align_pages, struct hak_run *run) {
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_large_lock);
    hak_retain_touch(now_ms);
    bool has_room = hak_extent_take(pages, align_pages, run);
    if (has_room) {
        HAK_ASSERT(hak_extent_is_sound(run->extent));
        hak_retain_fetched(HAK_LARGE_RUNS, (pages - run->dirty_pages) * hak_os_page_bytes(), now_ms);
    }
    hak_lock_release(&hak_large_lock);
    return has_room;
}

bool hak_run_alloc(size_t bytes, size_t align, struct hak_run *run) {
    unsigned pages = hak_os_pages_for(bytes);
    unsigned align_pages = align_pages_of(align);
    while (!take(pages, align_pages, run)) {
        if (!add_extent()) {
            return false;
        }
    }
    return true;
}

void hak_run_zero(const struct hak_run *run, size_t bytes) {
    size_t page_bytes = hak_os_page_bytes();
    unsigned end = run->page + hak_os_pages_for(bytes);
    for (unsigned page = run->page; run->dirty_pages != 0 && page < end;) {
        unsigned first = hak_page_map_find(&run->dirty, page, end, true);
        page = first;
        if (first < end) {
            page = hak_page_map_find(&run->dirty, first, end, false);
            memset(hak_extent_address(run->extent, first, page_bytes), 0, (page - first) * page_bytes);
        }
    }
}

/* Lock held on entry, released here: what follows a step that made pages free. */
static void unlock_after_free(struct hak_extent *extent, uint64_t now_ms) {
    HAK_ASSERT(hak_extent_is_sound(extent));
    if (!hak_extent_is_surplus(extent)) {
        (void)hak_release_unlock(0, now_ms);
        return;
    }
    uint32_t zero_units;
    struct superslab *superslab = hak_extent_close(extent, &zero_units);
    bool is_over = hak_retain_is_over();
    hak_lock_release(&hak_large_lock);
    unsigned calls = hak_superslab_give_whole(superslab, zero_units, HAK_PURGE_STEP_CALLS);
    if (is_over) {
        (void)hak_release_excess(0, HAK_PURGE_STEP_CALLS - calls, now_ms);
    }
}

bool hak_run_free(struct hak_extent *extent, const void *p) {
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_large_lock);
    unsigned page = hak_extent_live_page(extent, p);
    if (page == HAK_NO_PAGE || !hak_extent_claim(extent, page)) {
        hak_lock_release(&hak_large_lock);
        return false;
    }
    hak_retain_touch(now_ms);
    hak_parked_note_free(now_ms);
    hak_extent_live_to_free(extent, page);
    unlock_after_free(extent, now_ms);
    return true;
}

void hak_run_free_parked(const void *p) {
    struct hak_extent *extent = hak_word_address(hak_registry_word(p));
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_large_lock);
    hak_retain_touch(now_ms);
    hak_extent_live_to_free(extent, (unsigned)hak_os_pages_in((uintptr_t)p - extent->base));
    unlock_after_free(extent, now_ms);
}

size_t hak_run_bytes(const struct hak_extent *extent, const void *p) {
    return hak_extent_handed_pages(extent, p) * hak_os_page_bytes();
}

/*
 * Whether a run that grows is to be copied: pages that move away leave a hole that will fault anew, and never
 * come back to an extent, so they cost more than they save where run after run grows. The first few move,
 * which faults none, and the next ones wherever copies found no memory that has its pages. So do those that
 * grow by little to another run, over and over: into a mapping that has room behind it.
 */
static bool is_to_be_copied(size_t bytes, size_t old_bytes, enum hak_copy copy) {
    if (copy == HAK_COPY_NONE || hak_run_growth.moves_left != 0) {
        return false;
    }
    return copy == HAK_COPY_RUN ? hak_mapping_may_copy(old_bytes, bytes) : hak_mapping_has_warm(bytes);
}

void hak_run_note_copied(bool is_cold) {
    struct hak_run_growth *growth = &hak_run_growth;
    hak_lock_acquire(&hak_large_lock);
    growth->cold_copies += is_cold ? 1u : 0u;
    growth->cold_copies -= !is_cold && growth->cold_copies != 0 ? 1u : 0u;
    if (growth->cold_copies == COLD_COPIES_MAX) {
        growth->cold_copies /= 2;
        growth->moves_left = MOVES_AFTER_COLD;
    }
    hak_lock_release(&hak_large_lock);
}

/* Lock held. In place, over the free run behind it. */
static bool grow(struct hak_extent *extent, unsigned page, size_t bytes) {
    unsigned dirty_pages = extent->dirty_pages;
    unsigned old_pages = extent->run_pages[page];
    if (bytes > HAK_SUPERSLAB_BYTES || !hak_extent_grow(extent, page, hak_os_pages_for(bytes))) {
        return false;
    }
    unsigned fetched_pages = hak_os_pages_for(bytes) - old_pages - (dirty_pages - extent->dirty_pages);
    hak_retain_fetched(HAK_LARGE_RUNS, fetched_pages * hak_os_page_bytes(), hak_retain.touched_ms);
    return true;
}

/* Lock held. `pages` is more than the run has. */
static enum hak_run_fit grow_or_hold(struct hak_extent *extent, unsigned page, size_t bytes, size_t old_bytes,
                                     enum hak_copy copy) {
    if (grow(extent, page, bytes)) {
        return HAK_RUN_RESIZED;
    }
    if (old_bytes < hak_large_policy.move_min_bytes ||
        hak_mapping_totals.live_count >= hak_large_policy.moved_count_max) {
        return HAK_RUN_NO_ROOM;
    }
    if (is_to_be_copied(bytes, old_bytes, copy)) {
        return HAK_RUN_COPY;
    }
    hak_run_growth.moves_left -= hak_run_growth.moves_left != 0;
    hak_extent_live_to_held(extent, page);
    return HAK_RUN_HELD;
}

/* Whether the run at `p`, `old_bytes` long, is what a request of `bytes` could get. */
static bool fits_as_it_is(const struct hak_extent *extent, const void *p, size_t bytes, size_t old_bytes) {
    size_t whole_bytes = hak_os_page_round(bytes);
    bool is_on_loan = (hak_extent_handed(extent, p) & HAK_HANDED_ON_LOAN) != 0;
    return is_on_loan ? hak_parked_may_lend(whole_bytes, old_bytes) : whole_bytes == old_bytes;
}

enum hak_run_fit hak_run_resize(struct hak_extent *extent, const void *p, size_t bytes, enum hak_copy copy,
                                size_t *old_bytes) {
    *old_bytes = hak_run_bytes(extent, p);
    if (fits_as_it_is(extent, p, bytes, *old_bytes)) { /* and is live, since `bytes` is not 0 */
        return HAK_RUN_RESIZED;
    }
    size_t page_bytes = hak_os_page_bytes();
    uint64_t now_ms = hak_os_now_ms();
    enum hak_run_fit fit = HAK_RUN_RESIZED;
    hak_lock_acquire(&hak_large_lock);
    unsigned page = hak_extent_live_page(extent, p);
    if (page == HAK_NO_PAGE) {
        hak_lock_release(&hak_large_lock);
        return HAK_RUN_NOT_LIVE;
    }
    hak_retain_touch(now_ms);
    *old_bytes = extent->run_pages[page] * page_bytes;
    if (bytes > *old_bytes) {
        fit = grow_or_hold(extent, page, bytes, *old_bytes, copy);
        hak_lock_release(&hak_large_lock);
    } else if (hak_os_pages_for(bytes) < extent->run_pages[page]) {
        hak_extent_shrink(extent, page, hak_os_pages_for(bytes));
        unlock_after_free(extent, now_ms);
    } else {
        hak_lock_release(&hak_large_lock);
    }
    return fit;
}

void hak_run_moved(struct hak_extent *extent, const void *p, bool has_moved) {
    uint64_t now_ms = hak_os_now_ms();
    unsigned page = (unsigned)hak_os_pages_in((uintptr_t)p - extent->base);
    hak_lock_acquire(&hak_large_lock);
    if (has_moved) {
        hak_extent_moved_to_free(extent, page);
        unlock_after_free(extent, now_ms);
    } else {
        hak_extent_held_to_live(extent, page);
        hak_lock_release(&hak_large_lock);
    }
}
