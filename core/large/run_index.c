/*
 * run_index.c - see run_index.h.
 */
#include "large/run_index.h"
#include "base/assert.h"

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
