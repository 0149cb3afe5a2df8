/*
 * orphans.c - see orphans.h.
 */
#include "slab/orphans.h"
#include "slab/slab_word.h"

HAK_CONTENDED struct slab_list hak_orphans[HAK_ORPHAN_LISTS] = {
    [0 ... HAK_ORPHAN_LISTS - 1] = {.lock = HAK_LOCK_INIT(HAK_RANK_SLAB_LIST), .is_open = true}};

static enum hak_slab_event push(struct slab_list *list, struct slab *slab) {
    enum hak_slab_event event = HAK_EVENT_NONE;
    (void)hak_slab_list_push(list, slab, HAK_OWNER_NOBODY, &event);
    return event;
}

enum hak_slab_event hak_orphans_push(struct slab *slab) {
    unsigned tag = hak_word_tag(hak_registry_word((const void *)slab->base));
    return push(hak_orphans_of(slab->class_idx, tag), slab);
}

enum hak_slab_event hak_sparse_push(struct slab *slab) {
    return push(hak_sparse_of(slab->class_idx), slab);
}

struct slab *hak_orphans_pop(unsigned class_idx, uint32_t heap_id) {
    struct slab *slab = NULL;
    for (unsigned i = 0; i < HAK_ORPHAN_SIDES && slab == NULL; i++) {
        slab = hak_slab_list_pop(hak_orphans_of(class_idx, heap_id + i));
    }
    return slab != NULL ? slab : hak_slab_list_pop(hak_sparse_of(class_idx));
}

bool hak_orphans_below(unsigned class_idx) {
    bool is_empty = true;
    for (unsigned c = 0; c < class_idx && is_empty; c++) {
        is_empty = hak_orphans_look_empty(c);
    }
    return !is_empty;
}
