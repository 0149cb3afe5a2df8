/*
 * walk.c - see walk.h.
 */
#include "process/walk.h"
#include "heap/checked.h"
#include "heap/child.h"
#include "heap/front.h"
#include "heap/heap.h"
#include "large/large.h"
#include "meta/classes.h"
#include "os/os.h"
#include "slab/guests.h"
#include "slab/purge.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"

/* A lease is held for a microsecond, unless its holder is preempted, or ended in the middle of it. */
#define LEASE_TRIES 1000u
#define SLEEPS_MAX  1000u /* of a millisecond, in one walk */

/* False if it is no slab's, or nobody lets go of it. */
static bool lease_patiently(struct slab *slab, unsigned *sleeps_left) {
    for (unsigned tries = 1;; tries++) {
        if (hak_slab_lease_any(slab)) {
            return true;
        }
        /* relaxed: only whether to go on trying */
        if (!hak_slab_word_is_assigned(hak_atomic_load_relaxed(&slab->word))) {
            return false;
        }
        if (tries % LEASE_TRIES == 0) {
            if (*sleeps_left == 0) {
                return false;
            }
            *sleeps_left -= 1;
            hak_os_sleep_ms(1);
        }
    }
}

int hak_walk_slabs(hak_slab_visitor visitor, void *context) {
    struct slab *slab;
    int result = 0;
    unsigned sleeps_left = SLEEPS_MAX;
    hak_child_rebuild_if_pending();
    (void)hak_heap_attach(); /* the child of a fork asks whether others had heaps, thus leases */
    for (size_t i = 0; result == 0 && (slab = hak_slab_at(i)) != NULL; i++) {
        if (lease_patiently(slab, &sleeps_left)) {
            result = visitor(slab, context);
            hak_heap_handle_event(slab, hak_slab_release_any(slab, 0), hak_tls.heap);
        }
    }
    hak_purge_settle(); /* slabs that were kept warm although wholly free were retired */
    return result;
}

struct block_walk {
    hak_block_visitor visitor;
    void *context;
};

/* A block of ordinary make, which checked mode may have given less of, or have begun to free. */
static int visit_block(void *block, size_t usable_bytes, void *context) {
    const struct block_walk *walk = context;
    bool is_live = !hak_is_checked() || hak_checked_is_live(block, &usable_bytes);
    return is_live ? walk->visitor(block, usable_bytes, walk->context) : 0;
}

static int visit_live_blocks(struct slab *slab, void *context) {
    size_t block_bytes = hak_class_block_bytes[slab->class_idx];
    for (unsigned i = 0; i < slab->carved_blocks; i++) {
        /* relaxed: another thread's block may change state at any moment, as documented */
        unsigned class_idx, header = hak_atomic_load_relaxed(&slab->map[i]);
        if (hak_header_is_live(&slab->map[i], header, slab->class_idx, &class_idx)) {
            void *block = (void *)(slab->base + i * block_bytes);
            int result = visit_block(block, hak_class_block_bytes[class_idx], context);
            if (result != 0) {
                return result;
            }
        }
    }
    return 0;
}

int hak_process_walk(hak_block_visitor visitor, void *context) {
    struct block_walk walk = {.visitor = visitor, .context = context};
    int result = hak_walk_slabs(visit_live_blocks, &walk);
    if (result == 0) {
        result = hak_large_walk(visit_block, &walk);
    }
    if (result == 0 && hak_keeps_records()) {
        result = hak_checked_walk(visitor, context);
    }
    return result;
}
