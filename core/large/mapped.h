/*
 * mapped.h - blocks with a mapping of their own: allocation from kept pieces or the system, freeing, resizing
 * in place and by moving pages.
 *
 * Takes hak_large_lock itself and makes system calls without it; the caller holds no lock. Any thread.
 */
#ifndef HAK_LARGE_MAPPED_H
#define HAK_LARGE_MAPPED_H

#include "large/mapping.h"

/*
 * Returns a live block of at least `bytes` bytes (1 to HAK_BLOCK_BYTES_MAX) at `align`, or NULL when out of
 * memory. Its bytes from *dirty_bytes on are known to be zero. to_be_zeroed: that is to be the case for all
 * of them, so few dirty ones are better than few new ones.
 */
HAK_COLD void *hak_mapped_alloc(size_t bytes, size_t align, bool to_be_zeroed, size_t *dirty_bytes);

/* Frees the live block of the record that starts exactly at `p`; false when there is none. */
bool hak_mapped_free(struct hak_mapping *mapping, const void *p);

/* Bytes of that block; 0 when there is none. */
size_t hak_mapped_bytes(struct hak_mapping *mapping, const void *p);

/*
 * Makes the live block that starts exactly at `p` long enough for `bytes`, or shorter, moving pages if need
 * be, and returns its address; NULL when that cannot be done, with the block as it was and its length in
 * *old_bytes (0: no live block starts at p). is_copy_better: NULL, or set to whether that is why, unless
 * little of the block holds anything.
 */
HAK_COLD void *hak_mapped_resize(struct hak_mapping *mapping, void *p, size_t bytes, bool *is_copy_better,
                                 size_t *old_bytes);

/*
 * Where pages cannot move to a longer place, what is kept may be in the way, and a copy in it would have the
 * pages that a sparse block has not: gives back all that is kept, if that leaves room for a copy still. False
 * if not, or where a copy costs little. Slow: no lock held.
 */
HAK_COLD bool hak_mapped_make_way(size_t old_bytes, size_t bytes);

/*
 * Moves `old_bytes` bytes of pages from `p`, part of a mapping that stays (its range then reads as zeros),
 * to a new live block of at least `bytes`. NULL when that cannot be done, with everything as it was.
 * may_be_run: such a block is otherwise a run, and no kept piece would serve.
 */
void *hak_mapped_adopt(void *p, size_t old_bytes, size_t bytes, bool may_be_run);

#endif
