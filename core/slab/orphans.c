/*
 * orphans.c - see orphans.h.
 */
#include "slab/orphans.h"
#include "meta/classes.h"
#include "slab/slab_word.h"

#define OPEN_LIST(idx, below, bytes, units)                                                                  \
    [idx] = {.lock = HAK_LOCK_INIT(HAK_RANK_SLAB_LIST), .is_open = true},

struct slab_list hak_orphans[HAK_CLASS_COUNT] = {HAK_CLASS_TABLE(OPEN_LIST)};

enum hak_slab_event hak_orphans_push(struct slab *slab) {
    enum hak_slab_event event = HAK_EVENT_NONE;
    (void)hak_slab_list_push(&hak_orphans[slab->class_idx], slab, HAK_OWNER_NOBODY, &event);
    return event;
}
