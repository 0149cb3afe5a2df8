/*
 * reclaim.c - see reclaim.h.
 */
#include "heap/reclaim.h"
#include "large/large.h"
#include "slab/superslab.h"
#include "slab/thin.h"

/*
 * Visits every slab, whoever owns it, that nobody works on: with `is_purging` the pages beneath its free
 * blocks go; one that is wholly free, which a thread may have fetched ahead of need, retires. Returns the
 * bytes given back.
 */
static size_t visit_slabs(struct heap *heap, bool is_purging) {
    size_t given_bytes = 0;
    struct superslab *superslab;
    for (size_t i = 0; (superslab = hak_superslab_at(i)) != NULL; i++) {
        for (unsigned unit = 0; unit < HAK_UNITS_PER_SUPERSLAB; unit++) {
            struct slab *slab = &superslab->slabs[unit];
            unsigned calls = 0;
            if (hak_slab_lease_any(slab)) {
                given_bytes += is_purging ? hak_thin_purge(slab, UINT_MAX, &calls) : 0;
                hak_heap_handle_event(slab, hak_slab_release_any(slab), heap);
            }
        }
    }
    return given_bytes;
}

static size_t reclaim(struct heap *heap, bool is_purging, size_t keep_bytes) {
    if (heap != NULL) {
        hak_heap_flush(heap, true);
    }
    size_t given_bytes = visit_slabs(heap, is_purging);
    given_bytes += hak_large_trim(keep_bytes); /* first: its empty extents become SuperSlabs to unmap */
    return given_bytes + hak_superslab_trim(keep_bytes);
}

size_t hak_reclaim_everything(struct heap *heap) {
    return reclaim(heap, false, 0);
}

size_t hak_reclaim_pages(struct heap *heap, size_t keep_bytes) {
    return reclaim(heap, true, keep_bytes);
}
