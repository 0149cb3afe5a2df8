/*
 * purge.h - giving memory of free units and empty SuperSlabs back to the system, a step at a time.
 */
#ifndef HAK_SLAB_PURGE_H
#define HAK_SLAB_PURGE_H

#include "base/compiler.h"
#include <stdint.h>

/*
 * What a thread that has just freed units owes: gives back what is above the floor and outside the LRU's
 * bounds, at most HAK_PURGE_STEP_BYTES in at most HAK_PURGE_STEP_CALLS system calls. Slow: no lock held.
 */
void hak_purge_step(void);

/* The same without those limits, down to `keep_bytes` of dirty free units. Returns the bytes given back. */
size_t hak_purge_down_to(size_t keep_bytes);

/* The floor is `bytes` of dirty free units from now on, in place of the one that adapts itself. */
void hak_purge_set_floor(size_t bytes);

#define HAK_PURGE_STEP_BYTES ((size_t)2 * 1024 * 1024)
#define HAK_PURGE_STEP_CALLS 16u

#endif
