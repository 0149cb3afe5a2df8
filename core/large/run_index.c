/*
 * run_index.c - see run_index.h.
 */
#include "large/run_index.h"
#include "base/assert.h"
#include "base/bits.h"

/* Runs that may be too short for an aligned place and are looked at in one search. */
#define ALIGNED_LOOKS_MAX 64u

void hak_run_index_insert(struct hak_run_index *index, struct hak_run_node *node) {
    HAK_ASSERT(node->pages != 0 && node->pages <= HAK_EXTENT_PAGES_MAX);
    struct hak_run_node **list = &index->lists[node->pages];
    node->prev = NULL;
    node->next = *list;
    if (*list != NULL) {
        (*list)->prev = node;
    }
    *list = node;
    hak_page_map_set_one(&index->lengths, node->pages - 1u);
}

void hak_run_index_remove(struct hak_run_index *index, struct hak_run_node *node) {
    struct hak_run_node **list = &index->lists[node->pages];
    if (node->prev != NULL) {
        node->prev->next = node->next;
    } else {
        HAK_ASSERT(*list == node);
        *list = node->next;
    }
    if (node->next != NULL) {
        node->next->prev = node->prev;
    }
    if (*list == NULL) {
        hak_page_map_clear_one(&index->lengths, node->pages - 1u);
    }
    node->pages = 0;
}

struct hak_run_node *hak_run_index_best(const struct hak_run_index *index, unsigned pages) {
    unsigned bit = hak_page_map_find(&index->lengths, pages - 1u, HAK_EXTENT_PAGES_MAX, true);
    return bit == HAK_EXTENT_PAGES_MAX ? NULL : index->lists[bit + 1u];
}

static bool has_aligned_place(const struct hak_run_node *node, unsigned pages, unsigned align_pages) {
    return hak_round_up(node->page, align_pages) + pages <= (size_t)node->page + node->pages;
}

/* Another run as long as that, else the newest of the next longer ones; shorter than the longest possible. */
static struct hak_run_node *next_longer(const struct hak_run_index *index, const struct hak_run_node *node) {
    return node->next != NULL ? node->next : hak_run_index_best(index, node->pages + 1u);
}

/* A block that was freed leaves a hole as long as itself, which only its place tells apart from others. */
struct hak_run_node *hak_run_index_best_aligned(const struct hak_run_index *index, unsigned pages,
                                                unsigned align_pages) {
    unsigned enough_pages = pages + align_pages - 1;
    struct hak_run_node *node = hak_run_index_best(index, pages);
    for (unsigned looks = 0; looks < ALIGNED_LOOKS_MAX && node != NULL && node->pages < enough_pages;
         looks++) {
        if (has_aligned_place(node, pages, align_pages)) {
            return node;
        }
        node = next_longer(index, node);
    }
    return hak_run_index_best(index, enough_pages);
}

struct hak_run_node *hak_run_index_longest(const struct hak_run_index *index) {
    return index->lists[hak_page_map_last_end(&index->lengths, 0, HAK_EXTENT_PAGES_MAX)];
}

struct hak_run_node *hak_run_index_after(const struct hak_run_index *index, const struct hak_run_node *node) {
    if (node->next != NULL || node->pages == 1) {
        return node->next;
    }
    return index->lists[hak_page_map_last_end(&index->lengths, 0, node->pages - 1u)];
}

size_t hak_run_index_check(const struct hak_run_index *index, bool is_dirty, const char **why) {
    size_t count = 0;
    for (unsigned pages = 1; pages <= HAK_EXTENT_PAGES_MAX; pages++) {
        const struct hak_run_node *before = NULL;
        if (hak_page_map_test(&index->lengths, pages - 1u) != (index->lists[pages] != NULL)) {
            *why = "run index: bit and list disagree";
        }
        for (const struct hak_run_node *node = index->lists[pages]; node != NULL; node = node->next) {
            if (node->pages != pages || node->prev != before || node->is_dirty != is_dirty) {
                *why = "run index: a run is in the wrong list";
            }
            before = node;
            count++;
        }
    }
    return count;
}
