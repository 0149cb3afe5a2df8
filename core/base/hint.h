/*
 * hint.h - flags that every thread reads and whoever holds some lock sets: worth a look under it, no more.
 */
#ifndef HAK_BASE_HINT_H
#define HAK_BASE_HINT_H

#include "base/atomic.h"
#include "base/compiler.h"

/* Leaves a flag that is right alone, or its cache line would leave all who read it. */
HAK_INLINE void hak_hint_set(_Atomic bool *hint, bool value) {
    if (hak_atomic_load_relaxed(hint) != value) { /* relaxed: who needs to be sure looks under the lock */
        hak_atomic_store_relaxed(hint, value);    /* relaxed: as above */
    }
}

#endif
