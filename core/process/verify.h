/*
 * verify.h - every invariant of the heap, checked.
 */
#ifndef HAK_PROCESS_VERIFY_H
#define HAK_PROCESS_VERIFY_H

#include "base/compiler.h"

/*
 * NULL, or a sentence about the first broken invariant. Any thread; no lock held.
 *
 * Quiet heap (no other thread inside hakmem): exact. Every header byte, slab, list, SuperSlab, extent and
 * mapping is looked at, and what the calling thread has in its caches; of other threads' caches the header
 * bytes alone. Busy heap: no false alarm but for a thread that is stopped for more than five seconds between
 * a free and its count, or between taking units and making them a slab; and a slab whose lease others hold
 * all the time is not looked at.
 */
HAK_COLD const char *hak_process_verify(void);

#endif
