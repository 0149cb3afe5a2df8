/*
 * reclaim.c - see reclaim.h.
 */
#include "heap/reclaim.h"
#include "large/large.h"
#include "slab/superslab.h"
#include "slab/thin.h"

/* Slabs that are wholly free, which a thread may have fetched ahead of need, retire; whoever owns them. */
static void retire_free_slabs(struct heap *heap) {
    struct superslab *superslab;
    for (size_t i = 0; (superslab = hak_superslab_at(i)) != NULL; i++) {
        for (unsigned unit = 0; unit < HAK_UNITS_PER_SUPERSLAB; unit++) {
            struct slab *slab = &superslab->slabs[unit];
            if (hak_slab_lease_any(slab)) {
                hak_heap_handle_event(slab, hak_slab_release_any(slab), heap);
            }
        }
    }
}

size_t hak_reclaim_everything(struct heap *heap) {
    if (heap != NULL) {
        hak_heap_flush(heap, true);
    }
    retire_free_slabs(heap);
    size_t given_bytes = hak_large_trim(0); /* first: its empty extents become SuperSlabs to unmap */
    return given_bytes + hak_superslab_trim(0);
}

/* Pages beneath free blocks of one slab, whoever owns it; a slab that somebody works on is left alone. */
static size_t purge_slab(struct slab *slab, struct heap *heap) {
    if (!hak_slab_lease_any(slab)) {
        return 0;
    }
    unsigned calls = 0;
    size_t given_bytes = hak_thin_purge(slab, &calls);
    hak_heap_handle_event(slab, hak_slab_release_any(slab), heap);
    return given_bytes;
}

size_t hak_reclaim_pages(struct heap *heap, size_t keep_bytes) {
    size_t given_bytes = 0;
    struct superslab *superslab;
    if (heap != NULL) {
        hak_heap_flush(heap, true);
    }
    for (size_t i = 0; (superslab = hak_superslab_at(i)) != NULL; i++) {
        for (unsigned unit = 0; unit < HAK_UNITS_PER_SUPERSLAB; unit++) {
            given_bytes += purge_slab(&superslab->slabs[unit], heap);
        }
    }
    given_bytes += hak_large_trim(keep_bytes);
    return given_bytes + hak_superslab_trim(keep_bytes);
}
