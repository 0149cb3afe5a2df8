/*
 * reclaim.c - see reclaim.h.
 */
#include "heap/reclaim.h"
#include "heap/checked.h"
#include "heap/child.h"
#include "heap/front.h"
#include "large/large.h"
#include "meta/classes.h"
#include "os/os.h"
#include "slab/orphans.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "slab/thin.h"

/* What to do with slabs, whoever owns them. */
struct business {
    /* Whether there is any with one of that word: a hint. */
    bool (*is_with)(uint64_t word);
    /* Sees to a leased one and gives the lease back. Returns the bytes given back to the system. */
    size_t (*see_to)(struct slab *slab, struct heap *heap);
};

/* Comes by all of them, since a heap that is full has some thousand a GiB, and leases those alone that matter
 * and nobody works on. */
HAK_ALWAYS_INLINE size_t for_each_slab(struct business business, struct heap *heap) {
    size_t given_bytes = 0;
    struct superslab *s;
    for (size_t i = 0; (s = hak_superslab_at(i)) != NULL; i++) {
        for (unsigned unit = 0; unit < HAK_UNITS_PER_SUPERSLAB; unit++) {
            struct slab *slab = &s->slabs[unit];
            /* relaxed: who gets the lease looks again; what is freed meanwhile could have been so later */
            if (business.is_with(hak_atomic_load_relaxed(&slab->word)) && hak_slab_lease_any(slab)) {
                given_bytes += business.see_to(slab, heap);
            }
        }
    }
    return given_bytes;
}

/* Of an unassigned slab the count is below 0. */
static bool is_wholly_free(uint64_t word) {
    int count = hak_slab_word_count(word);
    return count > 0 && count == (int)hak_class_capacity(hak_slab_word_class(word));
}

/* A full slab has nothing to share, and nobody's is any thread's already. */
static bool is_to_be_shared(uint64_t word) {
    return hak_slab_word_count(word) > 0 &&
           (hak_slab_word_owner(word) != HAK_OWNER_NOBODY || is_wholly_free(word));
}

static bool is_any(uint64_t word) {
    (void)word;
    return true;
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

HAK_ALWAYS_INLINE size_t reclaim(struct heap *heap, struct business business, size_t keep_bytes) {
    hak_child_rebuild_if_pending(); /* what threads had that are gone is free */
    if (heap != NULL) {
        hak_heap_flush(heap, true);
    }
    hak_superslab_end_prefault();
    size_t given_bytes = for_each_slab(business, heap);
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
    (void)reclaim(heap, (struct business){is_wholly_free, retire}, 0);
}

void hak_reclaim_blocks(struct heap *heap) {
    end_quarantine();
    (void)reclaim(heap, (struct business){is_to_be_shared, share}, 0);
}

size_t hak_reclaim_pages(size_t keep_bytes) {
    return reclaim(hak_heap_attach(), (struct business){is_any, purge}, keep_bytes);
}
