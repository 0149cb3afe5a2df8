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
    return push(&hak_orphans[slab->class_idx], slab);
}

enum hak_slab_event hak_sparse_push(struct slab *slab) {
    return push(hak_sparse_of(slab->class_idx), slab);
}
