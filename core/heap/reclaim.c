/*
 * reclaim.c - see reclaim.h.
 */
#include "heap/reclaim.h"
#include "heap/checked.h"
#include "heap/child.h"
#include "heap/front.h"
#include "large/large.h"
#include "os/os.h"
#include "slab/orphans.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "slab/thin.h"

/* Sees to a leased slab and gives the lease back. Returns the bytes given back to the system. */
typedef size_t (*slab_action)(struct slab *slab, struct heap *heap);

/* For every slab, whoever owns it, that nobody works on. */
static size_t for_each_slab(slab_action action, struct heap *heap) {
    size_t given_bytes = 0;
    struct slab *slab;
    for (size_t i = 0; (slab = hak_slab_at(i)) != NULL; i++) {
        given_bytes += hak_slab_lease_any(slab) ? action(slab, heap) : 0;
    }
    return given_bytes;
}

/* One that is wholly free, which a thread may have fetched ahead of need, retires. */
static size_t retire(struct slab *slab, struct heap *heap) {
    hak_heap_handle_event(slab, hak_slab_release_any(slab, 0), heap);
    return 0;
}

/* The same, and the pages beneath its free blocks go. */
static size_t purge(struct slab *slab, struct heap *heap) {
    unsigned calls = 0;
    size_t given_bytes = hak_thin_purge(slab, UINT_MAX, &calls);
    return given_bytes + retire(slab, heap);
}

/* One with free blocks that its owner alone would come for becomes an orphan. */
static size_t share(struct slab *slab, struct heap *heap) {
    /* relaxed: the lease is held, so the owner stays and the count of free blocks may only grow */
    uint64_t word = hak_atomic_load_relaxed(&slab->word);
    if (hak_slab_word_owner(word) == HAK_OWNER_NOBODY || hak_slab_word_count(word) <= 0) {
        return retire(slab, heap);
    }
    hak_slab_list_unlink(slab);
    hak_heap_handle_event(slab, hak_orphans_push(slab), heap);
    return 0;
}

static size_t reclaim(struct heap *heap, slab_action action, size_t keep_bytes) {
    hak_child_rebuild_if_pending(); /* what threads had that are gone is free */
    if (heap != NULL) {
        hak_heap_flush(heap, true);
    }
    size_t given_bytes = for_each_slab(action, heap);
    given_bytes += hak_large_trim(keep_bytes); /* first: its empty extents become SuperSlabs to unmap */
    given_bytes += hak_superslab_trim(keep_bytes);
    hak_os_drop_again(); /* last: it may take mappings that what went before gave back */
    return given_bytes;
}

/* An allocation is about to fail: what waits in quarantine has address space, or memory, that it may need. */
static void end_quarantine(void) {
    if (hak_keeps_records()) {
        hak_checked_empty_quarantine();
    }
}

void hak_reclaim_everything(struct heap *heap) {
    end_quarantine();
    (void)reclaim(heap, retire, 0);
}

void hak_reclaim_blocks(struct heap *heap) {
    end_quarantine();
    (void)reclaim(heap, share, 0);
}

size_t hak_reclaim_pages(size_t keep_bytes) {
    return reclaim(hak_heap_attach(), purge, keep_bytes);
}
