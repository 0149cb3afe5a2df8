/*
 * run_index.h - free page runs by length: exact best fit in a few instructions, and in some more for aligned
 * requests.
 *
 * One list per length in OS pages, one bit per list that is not empty. The node of a run lives in its
 * extent's record. Under hak_large_lock.
 */
#ifndef HAK_LARGE_RUN_INDEX_H
#define HAK_LARGE_RUN_INDEX_H

#include "large/page_map.h"

/* Owner: the index while linked. `page` and `pages` are the run's; next/prev link runs of the same length. */
struct hak_run_node {
    struct hak_run_node *next;
    struct hak_run_node *prev; /* NULL: first of its list */
    uint16_t page;             /* first page of the run in its extent */
    uint16_t pages;            /* length; 0: the node is not linked */
    bool is_dirty;             /* which index it is linked in */
};

/* Invariant: bit n-1 of `lengths` is set exactly when lists[n] is not NULL; lists[n] holds runs of n pages.
 */
struct hak_run_index {
    struct hak_page_map lengths;
    struct hak_run_node *lists[HAK_EXTENT_PAGES_MAX + 1];
};

/* Links a node whose page and pages are set, as the first of its length. */
void hak_run_index_insert(struct hak_run_index *index, struct hak_run_node *node);
void hak_run_index_remove(struct hak_run_index *index, struct hak_run_node *node);

/* The newest of the shortest runs of at least `pages` pages (1 or more), or NULL. */
struct hak_run_node *hak_run_index_best(const struct hak_run_index *index, unsigned pages);

/*
 * The shortest run with room for `pages` pages from a multiple of `align_pages` (a power of two) on, or NULL.
 * Whether a run of less than pages + align_pages - 1 (at most HAK_EXTENT_PAGES_MAX) has it depends on where
 * it starts: a few dozen such are looked at, then one is taken that is longer.
 */
struct hak_run_node *hak_run_index_best_aligned(const struct hak_run_index *index, unsigned pages,
                                                unsigned align_pages);

/* The newest of the longest runs, or NULL. */
struct hak_run_node *hak_run_index_longest(const struct hak_run_index *index);

/* Another run as long as that, else the newest of the next shorter ones; NULL when there is none. */
struct hak_run_node *hak_run_index_after(const struct hak_run_index *index, const struct hak_run_node *node);

/* Number of runs linked; checks the invariants and sets *why to the first one broken. */
size_t hak_run_index_check(const struct hak_run_index *index, bool is_dirty, const char **why);

#endif
