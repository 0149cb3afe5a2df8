/*
 * extent_check.c - the invariants of one extent's record, checked page by page. See extent.h.
 */
#include "large/extent.h"
#include "os/os.h"

/* What a run's first page says it is. */
enum run_state { RUN_LIVE, RUN_FREE, RUN_HELD };

static enum run_state state_of(const struct hak_extent *extent, unsigned page) {
    if (hak_page_map_test(&extent->live_starts, page)) {
        return RUN_LIVE;
    }
    return hak_page_map_test(&extent->free_ends, page) ? RUN_FREE : RUN_HELD;
}

/* The first rule that the run [page, end) breaks, or NULL. */
static const char *fault_of_run(const struct hak_extent *extent, unsigned page, unsigned end) {
    enum run_state state = state_of(extent, page);
    unsigned free_ends = hak_page_map_count(&extent->free_ends, page, end);
    unsigned free_ends_due = state != RUN_FREE ? 0 : end - page == 1 ? 1 : 2;
    unsigned starts = hak_page_map_count(&extent->live_starts, page, end);
    const struct hak_run_node *node = &extent->nodes[page / 2];
    if (extent->run_pages[end - 1] != end - page) {
        return "extent: a run's two lengths differ";
    }
    if (free_ends != free_ends_due || hak_page_map_test(&extent->free_ends, end - 1) != (state == RUN_FREE) ||
        starts != (state == RUN_LIVE ? 1 : 0)) {
        return "extent: a run is marked as two kinds at once";
    }
    if (state != RUN_FREE && hak_page_map_count(&extent->dirty, page, end) != 0) {
        return "extent: a page that is not free counts as dirty";
    }
    if (state == RUN_FREE && (node->page != page || node->pages != end - page)) {
        return "extent: a free run is not in the index";
    }
    if (state == RUN_FREE && end < extent->pages && hak_page_map_test(&extent->free_ends, end)) {
        return "extent: free neighbours are not joined";
    }
    for (unsigned i = page; i < end; i++) {
        /* relaxed: any thread may swap a live run's number for 0 and back at any time */
        unsigned handed_pages = hak_atomic_load_relaxed(&extent->handed[i].number) & HAK_HANDED_PAGES;
        if (handed_pages != 0 && (state != RUN_LIVE || i != page || handed_pages != end - page)) {
            return "extent: a run is handed out that is not live, or at another length";
        }
    }
    for (unsigned i = page; state == RUN_LIVE && i < end; i++) {
        if (extent->freed_pages[i] != 0) {
            return "extent: a live page remembers a freed block";
        }
    }
    return NULL;
}

static const char *fault_of_words(const struct hak_extent *extent) {
    for (unsigned unit = 0; unit < HAK_UNITS_PER_SUPERSLAB; unit++) {
        const void *address = (const char *)extent->base + unit * HAK_UNIT_BYTES;
        if (hak_registry_word(address) != hak_word_for_record(HAK_KIND_EXTENT, extent)) {
            return "extent: a unit has another word";
        }
    }
    return NULL;
}

void hak_extent_check(const struct hak_extent *extent, struct hak_extent_sums *sums, const char **why) {
    size_t page_bytes = hak_os_page_bytes();
    unsigned pages_in_state[] = {[RUN_LIVE] = 0, [RUN_FREE] = 0, [RUN_HELD] = 0};
    const char *fault = fault_of_words(extent);
    for (unsigned page = 0; page < extent->pages;) {
        unsigned pages = extent->run_pages[page];
        if (pages == 0 || pages > extent->pages - page) {
            *why = "extent: the runs do not tile it";
            return;
        }
        const char *fault_here = fault_of_run(extent, page, page + pages);
        enum run_state state = state_of(extent, page);
        fault = fault_here != NULL ? fault_here : fault;
        pages_in_state[state] += pages;
        sums->live_blocks += state == RUN_LIVE;
        sums->free_runs += state == RUN_FREE;
        page += pages;
    }
    if (extent->free_pages != pages_in_state[RUN_FREE] || extent->held_pages != pages_in_state[RUN_HELD] ||
        extent->dirty_pages != hak_page_map_count(&extent->dirty, 0, extent->pages)) {
        fault = "extent: its counts differ from its pages";
    }
    sums->live_bytes += pages_in_state[RUN_LIVE] * page_bytes;
    sums->unused_bytes += (pages_in_state[RUN_FREE] + pages_in_state[RUN_HELD]) * page_bytes;
    sums->dirty_bytes += extent->dirty_pages * page_bytes;
    sums->empty_extents += pages_in_state[RUN_FREE] == extent->pages;
    *why = fault != NULL ? fault : *why;
}

bool hak_extent_is_sound(const struct hak_extent *extent) {
    struct hak_extent_sums sums = {0};
    const char *why = NULL;
    hak_extent_check(extent, &sums, &why);
    return why == NULL;
}
