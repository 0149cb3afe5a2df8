/*
 * extent.c - see extent.h. Boundary tags and coalescing: D. Knuth, "The Art of Computer Programming" vol. 1,
 * 2.5 (algorithm C), with the tags out of band.
 */
#include "large/extent.h"
#include "base/assert.h"
#include "large/freed_mark.h"
#include "large/retain.h"
#include "os/os.h"

/* Runs of extents where the kernel has refused a purge that are passed over in one search. */
#define DIRTY_LOOKS_MAX 256u

static HAK_TABLE struct hak_run_index dirty_runs; /* free runs with a dirty page */
static HAK_TABLE struct hak_run_index clean_runs; /* free runs known to be zero throughout */
static size_t empty_extents;                      /* with memory, every page free */
static size_t unused_pages;                       /* free and held pages of all extents */

static void set_tags(struct hak_extent *extent, unsigned page, unsigned pages) {
    extent->run_pages[page] = (uint16_t)pages;
    extent->run_pages[page + pages - 1] = (uint16_t)pages;
}

static void forget_freed(struct hak_extent *extent, unsigned page, unsigned end) {
    for (unsigned i = page; i < end; i++) {
        extent->freed_pages[i] = 0;
    }
}

static void set_handed(struct hak_extent *extent, unsigned page, unsigned pages) {
    /* relaxed: the run's owner stores it; the program orders that before a free in another thread */
    hak_atomic_store_relaxed(&extent->handed[page].number, (uint16_t)pages);
}

bool hak_extent_is_handed(const struct hak_extent *extent, unsigned page) {
    return hak_atomic_load_relaxed(&extent->handed[page].number) != 0; /* relaxed: as in set_handed() */
}

bool hak_extent_claim(struct hak_extent *extent, unsigned page) {
    /* relaxed: only which of two frees came first matters */
    return hak_atomic_exchange_relaxed(&extent->handed[page].number, (uint16_t)0) != 0;
}

static unsigned unit_pages(void) {
    return (unsigned)hak_os_pages_in(HAK_UNIT_BYTES);
}

static bool is_empty(const struct hak_extent *extent) {
    return extent->free_pages == extent->pages;
}

/* Nodes lie in the record at the index that their page says. */
static struct hak_extent *extent_of(struct hak_run_node *node) {
    struct hak_run_node *first = node - node->page / 2u;
    return (struct hak_extent *)((char *)first - offsetof(struct hak_extent, nodes));
}

/* ---- free runs: the only places where the indexes and the count of empty extents change ---- */

static void link_free(struct hak_extent *extent, unsigned page, unsigned pages) {
    struct hak_run_node *node = &extent->nodes[page / 2];
    set_tags(extent, page, pages);
    hak_page_map_set_one(&extent->free_ends, page);
    hak_page_map_set_one(&extent->free_ends, page + pages - 1);
    node->page = (uint16_t)page;
    node->pages = (uint16_t)pages;
    node->is_dirty = hak_page_map_find(&extent->dirty, page, page + pages, true) != page + pages;
    hak_run_index_insert(node->is_dirty ? &dirty_runs : &clean_runs, node);
    extent->free_pages += pages;
    empty_extents += is_empty(extent);
}

/* Returns the run's length. The pages keep their dirty bits. */
static unsigned unlink_free(struct hak_extent *extent, unsigned page) {
    struct hak_run_node *node = &extent->nodes[page / 2];
    unsigned pages = extent->run_pages[page];
    HAK_ASSERT(node->page == page && node->pages == pages);
    hak_run_index_remove(node->is_dirty ? &dirty_runs : &clean_runs, node);
    hak_page_map_clear_one(&extent->free_ends, page);
    hak_page_map_clear_one(&extent->free_ends, page + pages - 1);
    empty_extents -= is_empty(extent);
    extent->free_pages -= pages;
    return pages;
}

/* The pages were in no free run, so none of them counted as dirty. */
static void make_dirty(struct hak_extent *extent, unsigned page, unsigned pages) {
    HAK_ASSERT(hak_page_map_count(&extent->dirty, page, page + pages) == 0);
    hak_page_map_set(&extent->dirty, page, page + pages);
    extent->dirty_pages += pages;
    hak_retain_add_dirty(pages * hak_os_page_bytes());
}

/* The pages count as dirty no more, whatever they hold; *dirty gets the bits of those that did. */
static unsigned take_dirty(struct hak_extent *extent, unsigned page, unsigned pages,
                           struct hak_page_map *dirty) {
    hak_page_map_take(&extent->dirty, page, page + pages, dirty);
    unsigned dirty_pages = hak_page_map_count(dirty, page, page + pages);
    extent->dirty_pages -= dirty_pages;
    hak_retain_remove_dirty(dirty_pages * hak_os_page_bytes());
    return dirty_pages;
}

/* Pages that are in no run's count become a free run, joined with its free neighbours. */
static void join_free(struct hak_extent *extent, unsigned page, unsigned pages) {
    if (page != 0 && hak_page_map_test(&extent->free_ends, page - 1)) {
        unsigned before_pages = extent->run_pages[page - 1];
        page -= before_pages;
        pages += unlink_free(extent, page);
    }
    if (page + pages != extent->pages && hak_page_map_test(&extent->free_ends, page + pages)) {
        pages += unlink_free(extent, page + pages);
    }
    link_free(extent, page, pages);
}

/* ---- memory ---- */

void hak_extent_open(struct hak_extent *extent, struct superslab *superslab, uint32_t zero_units) {
    extent->base = superslab->base;
    extent->superslab = superslab;
    extent->pages = (unsigned)hak_os_pages_in(HAK_SUPERSLAB_BYTES);
    extent->refused_ms = 0;
    HAK_ASSERT(extent->free_pages == 0 && extent->held_pages == 0 && extent->dirty_pages == 0);
    unused_pages += extent->pages;
    for (uint32_t left = ~zero_units; left != 0; left &= left - 1) {
        make_dirty(extent, hak_ctz32(left) * unit_pages(), unit_pages());
    }
    link_free(extent, 0, extent->pages);
    hak_registry_fill((const void *)extent->base, HAK_UNITS_PER_SUPERSLAB,
                      hak_word_for_record(HAK_KIND_EXTENT, extent));
}

bool hak_extent_is_surplus(const struct hak_extent *extent) {
    bool is_worth_keeping = extent->dirty_pages >= extent->pages / 2 && !hak_retain_is_over();
    return is_empty(extent) && empty_extents > 1 && !is_worth_keeping;
}

struct hak_extent *hak_extent_find_empty(void) {
    if (empty_extents == 0) {
        return NULL;
    }
    struct hak_extent *extent = hak_extent_first();
    while (extent->base == 0 || !is_empty(extent)) {
        extent = extent->all_next;
    }
    return extent;
}

struct hak_extent *hak_extent_dirty_surplus(void) {
    struct hak_run_node *node = hak_run_index_longest(&dirty_runs);
    struct hak_extent *extent = node == NULL ? NULL : extent_of(node);
    return extent != NULL && is_empty(extent) && empty_extents > 1 ? extent : NULL;
}

/* The word that a unit gets when its extent goes: what was freed there, or nothing. */
static hak_word word_of_freed_unit(const struct hak_extent *extent, unsigned unit) {
    size_t page_bytes = hak_os_page_bytes();
    uint64_t mark = 0;
    for (unsigned i = 0; i < unit_pages(); i++) {
        unsigned freed_pages = extent->freed_pages[unit * unit_pages() + i];
        if (freed_pages != 0) {
            mark = hak_freed_mark_add_run(mark, i * page_bytes, freed_pages * page_bytes);
        }
    }
    return mark == 0 ? 0 : hak_word_for_number(HAK_KIND_LARGE_FREED, mark);
}

/* The units of an empty extent without a dirty page. */
static uint32_t zero_units_of(const struct hak_extent *extent) {
    uint32_t zero_units = 0;
    for (unsigned unit = 0; unit < HAK_UNITS_PER_SUPERSLAB; unit++) {
        unsigned page = unit * unit_pages();
        bool is_zero = hak_page_map_count(&extent->dirty, page, page + unit_pages()) == 0;
        zero_units |= (uint32_t)is_zero << unit;
    }
    return zero_units;
}

struct superslab *hak_extent_close(struct hak_extent *extent, uint32_t *zero_units) {
    HAK_ASSERT(is_empty(extent));
    struct hak_page_map dirty;
    *zero_units = zero_units_of(extent);
    (void)take_dirty(extent, 0, extent->pages, &dirty);
    (void)unlink_free(extent, 0);
    unused_pages -= extent->pages;
    for (unsigned unit = 0; unit < HAK_UNITS_PER_SUPERSLAB; unit++) {
        hak_registry_store((const char *)extent->base + unit * HAK_UNIT_BYTES,
                           word_of_freed_unit(extent, unit));
    }
    forget_freed(extent, 0, extent->pages);
    extent->base = 0;
    hak_extent_put_spare(extent);
    return extent->superslab;
}

/* ---- live runs ---- */

/* The dirty index's best fit, whose pages need no fault; only without one a clean run. */
static struct hak_run_node *best_fit(unsigned pages) {
    struct hak_run_node *dirty = hak_run_index_best(&dirty_runs, pages);
    return dirty != NULL ? dirty : hak_run_index_best(&clean_runs, pages);
}

static struct hak_run_node *best_aligned(unsigned pages, unsigned align_pages) {
    struct hak_run_node *dirty = hak_run_index_best_aligned(&dirty_runs, pages, align_pages);
    return dirty != NULL ? dirty : hak_run_index_best_aligned(&clean_runs, pages, align_pages);
}

static void pages_to_live(struct hak_extent *extent, unsigned page, unsigned pages) {
    set_tags(extent, page, pages);
    hak_page_map_set_one(&extent->live_starts, page);
    set_handed(extent, page, pages);
    forget_freed(extent, page, page + pages);
    unused_pages -= pages;
    hak_retain_add_live(pages * hak_os_page_bytes());
}

bool hak_extent_take(unsigned pages, unsigned align_pages, struct hak_run *run) {
    struct hak_run_node *node = align_pages == 1 ? best_fit(pages) : best_aligned(pages, align_pages);
    if (node == NULL) {
        return false;
    }
    struct hak_extent *extent = extent_of(node);
    unsigned first = node->page;
    unsigned end = first + unlink_free(extent, first);
    unsigned page = (unsigned)hak_round_up(first, align_pages);
    if (page != first) {
        link_free(extent, first, page - first);
    }
    if (page + pages != end) {
        link_free(extent, page + pages, end - page - pages);
    }
    *run = (struct hak_run){.extent = extent, .page = page, .pages = pages};
    run->dirty_pages = take_dirty(extent, page, pages, &run->dirty);
    pages_to_live(extent, page, pages);
    return true;
}

/* The page that `p` lies on; HAK_NO_PAGE if that is none of the extent's. */
static unsigned page_around(const struct hak_extent *extent, const void *p) {
    uintptr_t offset = (uintptr_t)p - extent->base;
    bool is_inside = extent->base != 0 && offset < HAK_SUPERSLAB_BYTES;
    return is_inside ? (unsigned)hak_os_pages_in(offset) : HAK_NO_PAGE;
}

/* The page that starts at `p`; HAK_NO_PAGE if that is none. */
static unsigned page_at(const struct hak_extent *extent, const void *p) {
    return hak_is_aligned((uintptr_t)p, hak_os_page_bytes()) ? page_around(extent, p) : HAK_NO_PAGE;
}

unsigned hak_extent_live_page(const struct hak_extent *extent, const void *p) {
    unsigned page = page_at(extent, p);
    bool is_live = page != HAK_NO_PAGE && hak_page_map_test(&extent->live_starts, page) &&
                   hak_extent_is_handed(extent, page);
    return is_live ? page : HAK_NO_PAGE;
}

size_t hak_extent_live_bytes_around(const struct hak_extent *extent, const void *p) {
    unsigned page = page_around(extent, p);
    unsigned start = page == HAK_NO_PAGE ? 0 : hak_page_map_last_end(&extent->live_starts, 0, page + 1);
    if (start == 0 || page >= start - 1 + extent->run_pages[start - 1] ||
        !hak_extent_is_handed(extent, start - 1)) {
        return 0;
    }
    return extent->run_pages[start - 1] * hak_os_page_bytes();
}

size_t hak_extent_freed_bytes_at(const struct hak_extent *extent, const void *p) {
    unsigned page = page_at(extent, p);
    if (page == HAK_NO_PAGE) {
        return 0;
    }
    bool is_parked = hak_page_map_test(&extent->live_starts, page) && !hak_extent_is_handed(extent, page);
    return (is_parked ? extent->run_pages[page] : extent->freed_pages[page]) * hak_os_page_bytes();
}

/* live -> no state; returns the length. The start is remembered as freed. */
static unsigned live_to_none(struct hak_extent *extent, unsigned page) {
    unsigned pages = extent->run_pages[page];
    HAK_ASSERT(hak_page_map_test(&extent->live_starts, page));
    hak_page_map_clear_one(&extent->live_starts, page);
    set_handed(extent, page, 0);
    extent->freed_pages[page] = (uint16_t)pages;
    unused_pages += pages;
    hak_retain_remove_live(pages * hak_os_page_bytes());
    return pages;
}

void hak_extent_live_to_free(struct hak_extent *extent, unsigned page) {
    unsigned pages = live_to_none(extent, page);
    make_dirty(extent, page, pages);
    join_free(extent, page, pages);
}

void hak_extent_shrink(struct hak_extent *extent, unsigned page, unsigned pages) {
    unsigned tail_pages = extent->run_pages[page] - pages;
    size_t page_bytes = hak_os_page_bytes();
    hak_retain_remove_live((pages + tail_pages) * page_bytes);
    hak_retain_add_live(pages * page_bytes);
    unused_pages += tail_pages;
    set_tags(extent, page, pages);
    set_handed(extent, page, pages);
    make_dirty(extent, page + pages, tail_pages);
    join_free(extent, page + pages, tail_pages);
}

bool hak_extent_grow(struct hak_extent *extent, unsigned page, unsigned pages) {
    unsigned old_pages = extent->run_pages[page];
    unsigned end = page + old_pages;
    unsigned more_pages = pages - old_pages;
    if (end == extent->pages || !hak_page_map_test(&extent->free_ends, end) ||
        extent->run_pages[end] < more_pages) {
        return false;
    }
    unsigned free_pages = unlink_free(extent, end);
    if (free_pages != more_pages) {
        link_free(extent, end + more_pages, free_pages - more_pages);
    }
    struct hak_page_map dirty;
    (void)take_dirty(extent, end, more_pages, &dirty);
    hak_retain_remove_live(old_pages * hak_os_page_bytes());
    unused_pages += old_pages;
    pages_to_live(extent, page, pages);
    return true;
}

/* ---- held runs ---- */

void hak_extent_live_to_held(struct hak_extent *extent, unsigned page) {
    extent->held_pages += live_to_none(extent, page);
}

void hak_extent_held_to_live(struct hak_extent *extent, unsigned page) {
    unsigned pages = extent->run_pages[page];
    extent->held_pages -= pages;
    pages_to_live(extent, page, pages);
}

static void held_to_free(struct hak_extent *extent, unsigned page, unsigned pages) {
    extent->held_pages -= pages;
    join_free(extent, page, pages);
}

void hak_extent_moved_to_free(struct hak_extent *extent, unsigned page) {
    held_to_free(extent, page, extent->run_pages[page]);
}

void hak_extent_note_refused(const struct hak_run *run, uint64_t now_ms) {
    run->extent->refused_ms = now_ms + (now_ms == 0);
}

/* The longest dirty run, those of extents left out where the kernel has refused since then. */
static struct hak_run_node *dirtiest(uint64_t since_ms) {
    struct hak_run_node *node = hak_run_index_longest(&dirty_runs);
    for (unsigned looked = 0; node != NULL && looked < DIRTY_LOOKS_MAX; looked++) {
        uint64_t refused_ms = extent_of(node)->refused_ms;
        if (refused_ms == 0 || refused_ms < since_ms) {
            return node;
        }
        node = hak_run_index_after(&dirty_runs, node);
    }
    return NULL;
}

bool hak_extent_hold_dirtiest(struct hak_run *run, uint64_t since_ms) {
    struct hak_run_node *node = dirtiest(since_ms);
    if (node == NULL) {
        return false;
    }
    *run = (struct hak_run){.extent = extent_of(node), .page = node->page, .pages = node->pages};
    (void)unlink_free(run->extent, run->page);
    run->dirty_pages = take_dirty(run->extent, run->page, run->pages, &run->dirty);
    run->extent->held_pages += run->pages;
    return true;
}

void hak_extent_purged_to_free(const struct hak_run *run, bool is_zero) {
    struct hak_extent *extent = run->extent;
    if (!is_zero) {
        for (unsigned w = 0; w < HAK_PAGE_MAP_WORDS; w++) {
            extent->dirty.words[w] |= run->dirty.words[w];
        }
        extent->dirty_pages += run->dirty_pages;
        hak_retain_add_dirty(run->dirty_pages * hak_os_page_bytes());
    }
    held_to_free(extent, run->page, run->pages);
}

size_t hak_extent_free_bytes(void) {
    return unused_pages * hak_os_page_bytes();
}

size_t hak_extent_empty_count(void) {
    return empty_extents;
}

size_t hak_extent_check_indexes(const char **why) {
    return hak_run_index_check(&dirty_runs, true, why) + hak_run_index_check(&clean_runs, false, why);
}

/* Frees the run that starts at `page` if nobody has it. */
static void free_stray(struct hak_extent *extent, unsigned page) {
    unsigned pages = extent->run_pages[page];
    if (hak_page_map_test(&extent->live_starts, page)) {
        if (!hak_extent_is_handed(extent, page)) {
            hak_extent_live_to_free(extent, page);
        }
    } else if (!hak_page_map_test(&extent->free_ends, page)) {
        make_dirty(extent, page, pages);
        held_to_free(extent, page, pages);
    }
}

void hak_extent_free_strays(void) {
    for (struct hak_extent *extent = hak_extent_first(); extent != NULL; extent = extent->all_next) {
        for (unsigned page = 0; extent->base != 0 && page < extent->pages;) {
            unsigned next = page + extent->run_pages[page];
            if (next < extent->pages && hak_page_map_test(&extent->free_ends, next)) {
                next += extent->run_pages[next]; /* it may be joined with what is freed */
            }
            free_stray(extent, page);
            page = next;
        }
    }
}
