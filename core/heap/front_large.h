/*
 * front_large.h - how requests and frees come from the front to the large floor.
 *
 * A program that has one buffer after the other gets and frees it here (large/parked.h): only what must be
 * seen to first is asked.
 */
#ifndef HAK_HEAP_FRONT_LARGE_H
#define HAK_HEAP_FRONT_LARGE_H

#include "heap/child.h"
#include "heap/front.h"
#include "heap/upkeep.h"
#include "large/parked.h"

/* A block of more than HAK_MID_MAX_BYTES; NULL with errno ENOMEM, once all that can go back is gone. */
void *hak_front_alloc_large(size_t bytes, bool is_zeroed);

/* The buffer that was freed last, for a request of so many bytes; NULL: hak_front_alloc_large(). */
HAK_ALWAYS_INLINE void *hak_front_take_latest(size_t bytes) {
    return hak_child_is_pending() || hak_upkeep_is_due() ? NULL : hak_parked_take_latest(bytes);
}

/* Frees a block in a unit of kind EXTENT for the next request; false: nothing was done. */
HAK_ALWAYS_INLINE bool hak_front_put_latest(void *block, hak_word word) {
    return hak_tls.low != HAK_LOW_OF_NO_HEAP && !hak_front_is_metered() && !hak_child_is_pending() &&
           hak_parked_put_latest(hak_word_address(word), block);
}

#endif
