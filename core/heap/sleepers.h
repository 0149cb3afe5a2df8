/*
 * sleepers.h - slabs that wait for an owner who does not come: what others freed in them is handed on.
 *
 * A slab that was full and got frees of other threads waits in its owner's list of remote frees. An owner who
 * sleeps would keep it for ever, while those who freed the blocks fill new slabs. So who is about to take a
 * new slab looks at some heaps, and a list that has been seen to wait for some time goes to the orphans: some
 * milliseconds, since an owner who works may have to wait for a processor; fewer where memory grows
 * meanwhile.
 */
#ifndef HAK_HEAP_SLEEPERS_H
#define HAK_HEAP_SLEEPERS_H

#include "heap/heap.h"

/*
 * Looks at the next few heaps for the one that calls, which has just been at its own list. True if slabs
 * became orphans, of whatever classes. The calling heap's thread, no lock held.
 */
bool hak_sleepers_hand_on(struct heap *heap);

/* The heap's owner is at its list of remote frees. */
HAK_INLINE void hak_sleepers_note_awake(struct heap *heap) {
    /* relaxed: a hint, here and in hak_sleepers_hand_on() */
    if (hak_atomic_load_relaxed(&heap->remote_waits_since_ms) != 0) {
        hak_atomic_store_relaxed(&heap->remote_waits_since_ms, 0); /* relaxed: as above */
    }
}

#endif
