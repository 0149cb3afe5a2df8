/*
 * dirty.h - the SuperSlabs with something to purge, dirty units or thin slabs, in the order in which it
 * became so; and those of them where a purge failed a moment ago, which wait.
 *
 * For the shared pool and purging. Every function is called under hak_superslab_lock. The lists are edited
 * nowhere else.
 */
#ifndef HAK_SLAB_DIRTY_H
#define HAK_SLAB_DIRTY_H

#include "slab/superslab.h"

struct hak_dirty_list {
    struct superslab *oldest, *newest;
};

/* To the young end; it was in neither list. */
void hak_dirty_link(struct superslab *superslab);

/* It is paused no more. */
void hak_dirty_unlink(struct superslab *superslab);

/* To the young end of those that may be purged: others are asked first the next time. */
void hak_dirty_put_off(struct superslab *superslab);

/* A purge failed there: it is not asked before that time, which is no earlier than those of others paused. */
void hak_dirty_pause(struct superslab *superslab, uint64_t until_ms);

/* Those whose time has come are asked again. */
void hak_dirty_end_pauses(uint64_t now_ms);

#endif
