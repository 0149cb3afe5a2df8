/*
 * upkeep.c - see upkeep.h.
 */
#include "heap/upkeep.h"
#include "base/bits.h"
#include "heap/unified_cache.h"
#include "heap/width.h"
#include "large/large.h"
#include "large/release.h"
#include "slab/purge.h"
#include "slab/retention.h"

#define SOON 64 /* allocations, while there is more to give back than one operation may */

static void narrow_idle(struct heap *heap) {
    for (uint64_t left = heap->wide; left != 0; left &= left - 1) {
        unsigned class_idx = hak_ctz64(left);
        if (hak_width_is_idle(heap, class_idx, hak_cache_count(heap, class_idx))) {
            hak_width_narrow(heap, class_idx);
            hak_cache_fit(heap, class_idx);
        }
    }
}

/* Others may have raised them, and all may be asleep now but this thread. At most one step's calls. */
static void lower_floors(void) {
    if (hak_retention_raised_bytes(HAK_RETAINER_SLABS) != 0) {
        hak_purge_age();
    }
    if (hak_purge_is_owed()) {
        hak_purge_step();
    } else if (hak_retention_raised_bytes(HAK_RETAINER_LARGE) != 0) {
        hak_release_age(0);
    } else {
        hak_large_pay_debt();
    }
}

static bool is_more_owed(void) {
    return hak_purge_is_owed() || hak_atomic_load_relaxed(&hak_release_has_debt); /* relaxed: a hint */
}

void hak_upkeep(struct heap *heap) {
    narrow_idle(heap);
    lower_floors();
    if (hak_tls.until_slow < 0) {
        hak_tls.until_slow = is_more_owed() ? SOON : HAK_UPKEEP_ALLOCATIONS;
    }
}
