/*
 * extent.h - extents: SuperSlabs taken whole and cut into page runs, each a live block, free, or held.
 *
 * The record is out of band and type-stable. Runs tile the extent; free neighbours are always joined
 * (boundary tags at a run's first and last page). A run is held while some thread purges it or moves its
 * pages away with no lock: neither free nor live. Every function here needs hak_large_lock; none makes a
 * system call. Registry words of all 32 units are EXTENT with the record while it has memory; afterwards they
 * remember the blocks that were freed last.
 */
#ifndef HAK_LARGE_EXTENT_H
#define HAK_LARGE_EXTENT_H

#include "base/atomic.h"
#include "large/page_map.h"
#include "large/run_index.h"
#include "meta/registry.h"
#include "os/os.h"
#include "slab/superslab.h"

/* So far apart that the numbers of runs of eight pages, which nearly all exceed, are on cache lines of their
 * own: threads that free and take runs of one extent do not write one line. */
struct hak_handed {
    _Alignas(HAK_CACHE_LINE_BYTES / 8) _Atomic uint16_t number;
};

/*
 * Owner: this floor, under hak_large_lock. Invariant: the runs tile `pages`; free_pages + held_pages + pages
 * of live runs == pages; `dirty` holds pages of free runs alone; no two free runs touch; freed_pages[i] is 0
 * for every page i of a live run.
 */
struct hak_extent {
    uintptr_t base;              /* 0: the record has no memory */
    struct superslab *superslab; /* the memory's owner, to give it back to */
    struct hak_extent *all_next; /* const once published: every record ever made */
    struct hak_extent *spare_next;
    unsigned pages; /* OS pages in the extent */
    unsigned free_pages;
    unsigned held_pages;
    unsigned dirty_pages; /* free pages that are not known to be zero */
    uint64_t refused_ms;  /* when the kernel last refused to purge here; 0: never, or so a trim says */
    struct hak_page_map live_starts;            /* first pages of live runs */
    struct hak_page_map free_ends;              /* first and last pages of free runs */
    struct hak_page_map dirty;                  /* free pages that may hold something */
    uint16_t run_pages[HAK_EXTENT_PAGES_MAX];   /* length, at the first and the last page of each run */
    uint16_t freed_pages[HAK_EXTENT_PAGES_MAX]; /* length of the free block that last started here; or 0 */
    /*
     * Atomic: length of the live run that starts here while it is the program's, and HAK_HANDED_ON_LOAN; 0
     * while it is parked, on its way to or from there (parked.h), and where none starts. A free swaps it for
     * 0, with or without the lock.
     */
    struct hak_handed handed[HAK_EXTENT_PAGES_MAX];
    /* Two free runs never touch, so of pages 2i and 2i+1 at most one starts a free run. */
    struct hak_run_node nodes[HAK_EXTENT_PAGES_MAX / 2];
};

/* A run by its place; `dirty` has the bits of its pages that were not known to be zero when it was taken. */
struct hak_run {
    struct hak_extent *extent;
    unsigned page;
    unsigned pages;
    unsigned dirty_pages;
    struct hak_page_map dirty;
};

#define HAK_NO_PAGE HAK_EXTENT_PAGES_MAX

/* A record without memory, or NULL: the caller then makes a zeroed one and publishes it. */
struct hak_extent *hak_extent_take_spare(void);
void hak_extent_publish(struct hak_extent *extent);
void hak_extent_put_spare(struct hak_extent *extent);

/* Gives the record a SuperSlab: one free run, dirty but for the units of the mask, all words stored. */
void hak_extent_open(struct hak_extent *extent, struct superslab *superslab, uint32_t zero_units);

/*
 * Takes `pages` pages of the best fitting free run, their start at a multiple of `align_pages` pages (a power
 * of two), and makes them live. False when no free run is long enough wherever it starts, and none of the
 * shorter ones that were looked at (run_index.h) starts where they fit.
 */
bool hak_extent_take(unsigned pages, unsigned align_pages, struct hak_run *run);

/* Of the number of a run that the program has: its length, and whether it was asked for at so much less that
 * it counts as on loan (parked.h). */
#define HAK_HANDED_PAGES   ((uint16_t)0x7FFF)
#define HAK_HANDED_ON_LOAN ((uint16_t)0x8000)

/* The number of the run of the program's that starts exactly at `p`, 0 when none does. Without the lock: what
 * the block's owner would hear with it. */
HAK_INLINE uint16_t hak_extent_handed(const struct hak_extent *extent, const void *p) {
    size_t offset = (uintptr_t)p & (HAK_SUPERSLAB_BYTES - 1);
    if (!hak_is_aligned(offset, hak_os_page_bytes())) {
        return 0;
    }
    /* relaxed: the owner got the block in a way that orders it */
    return hak_atomic_load_relaxed(&extent->handed[hak_os_pages_in(offset)].number);
}

/* Its OS pages. */
HAK_INLINE unsigned hak_extent_handed_pages(const struct hak_extent *extent, const void *p) {
    return hak_extent_handed(extent, p) & HAK_HANDED_PAGES;
}

/* The first page of the run of the program's that starts exactly at `p`; HAK_NO_PAGE when none does. */
unsigned hak_extent_live_page(const struct hak_extent *extent, const void *p);

/* Takes that run back from the program; false: another thread has done so. It is to be freed now. */
bool hak_extent_claim(struct hak_extent *extent, unsigned page);

/* Whether the live run that starts at `page` is the program's, not parked. */
bool hak_extent_is_handed(const struct hak_extent *extent, unsigned page);

/* Bytes of the run of the program's that contains `p`, 0 when it is in none; and of the free block that
 * started there. */
size_t hak_extent_live_bytes_around(const struct hak_extent *extent, const void *p);
size_t hak_extent_freed_bytes_at(const struct hak_extent *extent, const void *p);

/* live -> free; all its pages become dirty. */
void hak_extent_live_to_free(struct hak_extent *extent, unsigned page);

/* Cuts a live run down to its first `pages` pages, the rest becomes free and dirty. */
void hak_extent_shrink(struct hak_extent *extent, unsigned page, unsigned pages);

/* Extends a live run to `pages` pages over the free run behind it; false when there is no room. */
bool hak_extent_grow(struct hak_extent *extent, unsigned page, unsigned pages);

/* live -> held and back, while realloc moves the pages away; then held -> free with all pages zero. */
void hak_extent_live_to_held(struct hak_extent *extent, unsigned page);
void hak_extent_held_to_live(struct hak_extent *extent, unsigned page);
void hak_extent_moved_to_free(struct hak_extent *extent, unsigned page);

/*
 * free -> held of the longest run with dirty pages, to be purged; then held -> free again. None of extents
 * where the kernel refused that (locked pages) at `since_ms` or later. False if there is none, or if only
 * such are among the longest few hundred.
 */
bool hak_extent_hold_dirtiest(struct hak_run *run, uint64_t since_ms);
void hak_extent_purged_to_free(const struct hak_run *run, bool is_zero);

/* The kernel refused at `now_ms` to purge a held run. */
void hak_extent_note_refused(const struct hak_run *run, uint64_t now_ms);

/*
 * True when every page is free, another extent is empty already (one is kept against to and fro), and this
 * one has few dirty pages or more than may stay.
 */
bool hak_extent_is_surplus(const struct hak_extent *extent);

/* An empty extent that is dirty and not the only empty one, or NULL. */
struct hak_extent *hak_extent_dirty_surplus(void);

/* An empty extent, or NULL. */
struct hak_extent *hak_extent_find_empty(void);

/* Takes the memory from an empty extent's record; the caller gives it back, with the mask, without the lock.
 */
struct superslab *hak_extent_close(struct hak_extent *extent, uint32_t *zero_units);

/* Every record, to be followed by all_next; records without memory have base 0. */
struct hak_extent *hak_extent_first(void);

/* Free pages of all extents, held ones counted in, in bytes; and the number of extents without a live run. */
size_t hak_extent_free_bytes(void);
size_t hak_extent_empty_count(void);

/* What a check adds up over extents. */
struct hak_extent_sums {
    size_t live_bytes;
    size_t live_blocks;
    size_t dirty_bytes;
    size_t unused_bytes;
    size_t free_runs;
    size_t empty_extents;
};

/* Checks an extent that has memory and adds to the sums; sets *why to what broke. */
void hak_extent_check(const struct hak_extent *extent, struct hak_extent_sums *sums, const char **why);

/* The same for assertions: nothing is broken. */
bool hak_extent_is_sound(const struct hak_extent *extent);

/* Checks the indexes and returns how many free runs they hold; sets *why to what broke. */
size_t hak_extent_check_indexes(const char **why);

/*
 * Every held run becomes free and dirty, and every live one that is not the program's: for the child of a
 * fork, where nobody works on them any more and nothing is parked.
 */
void hak_extent_free_strays(void);

HAK_INLINE void *hak_extent_address(const struct hak_extent *extent, unsigned page, size_t page_bytes) {
    return (void *)(extent->base + page * page_bytes);
}

#endif
