/*
 * owed.c - whether there may be something to give back: what threads that give units back note, and those
 * that purge. Everything under the SuperSlab lock; declared in superslab_pool.h.
 *
 * Whoever notes a debt has the operation end with a look for what is owed, under the lock that all threads
 * share, with the clock read. Where slabs come and go and the floor has risen above what lies free, each look
 * finds that all may stay. So a look tells the next few gives how much may stay, and the debt's sign, which
 * every thread reads, is not set and cleared each time.
 */
#include "base/hint.h"
#include "os/os.h"
#include "slab/purge.h"
#include "slab/superslab_pool.h"

/* Of a unit each in most cases: the floor falls by little meanwhile, and as little with so much time. */
#define SETTLED_GIVES 8u
#define SETTLED_MS    20u

/* What may stay free whatever is in use. */
static size_t lowest_floor_bytes(void) {
    const struct retention *retention = &hak_superslab_pool.retention;
    return retention->is_set ? retention->set_bytes : hak_retention_base_bytes();
}

void hak_superslab_note_owed(void) {
    size_t lowest_bytes = lowest_floor_bytes();
    if (hak_superslab_pool.empty_count != 0 || hak_superslab_dirty_bytes() > lowest_bytes ||
        hak_maps_owed_bytes() > lowest_bytes >> HAK_MAPS_FLOOR_SHIFT) {
        hak_hint_set(&hak_purge_debt, true);
    }
}

static bool is_settled(void) {
    const struct superslab_pool *pool = &hak_superslab_pool;
    const struct hak_settled *settled = &pool->settled;
    return settled->gives != 0 && pool->empty_count <= settled->empty_count &&
           hak_superslab_dirty_bytes() <= settled->dirty_bytes &&
           hak_maps_owed_bytes() <= settled->dirty_bytes >> HAK_MAPS_FLOOR_SHIFT &&
           hak_os_now_ms() <= settled->at_ms + SETTLED_MS;
}

void hak_superslab_note_given(void) {
    if (is_settled()) {
        hak_superslab_pool.settled.gives--;
    } else {
        hak_superslab_note_owed();
    }
}

void hak_superslab_settle(size_t keep_bytes, uint64_t now_ms) {
    struct superslab_pool *pool = &hak_superslab_pool;
    pool->settled = (struct hak_settled){
        .dirty_bytes = keep_bytes, .empty_count = pool->empty_count, .at_ms = now_ms, .gives = SETTLED_GIVES};
}

void hak_superslab_unsettle(void) {
    hak_superslab_pool.settled.gives = 0;
}

void hak_superslab_note_paid(void) {
    hak_hint_set(&hak_purge_debt, false);
    hak_hint_set(&hak_purge_behind, false);
}
