/*
 * guarded.h - blocks in mappings of their own, between pages without access.
 *
 *     | no access | red zone, block, red zone: whole OS pages | no access |
 *
 * Without access is an OS page or more on each side, so that a mapping is whole units and the registry says
 * of any address whether it lies in one. The block lies as near to the end as its alignment allows, so that
 * writing past it faults at once. Where these parts lie follows from the block's address, size and alignment:
 * nothing is kept here. Any thread; slow: no lock held.
 */
#ifndef HAK_CHECK_GUARDED_H
#define HAK_CHECK_GUARDED_H

#include "check/records.h"

struct hak_guarded_range {
    uint8_t *mapping; /* the page before */
    uint8_t *start;   /* of the pages with access */
    uint8_t *end;
    size_t mapping_bytes;
};

/*
 * A block of `bytes` bytes (0 to HAK_BLOCK_BYTES_MAX) at a multiple of 1 << align_shift, at least 16; its
 * bytes are zero. NULL when there is no memory, the kernel allows no more mappings, or the guard before the
 * block, as long as its alignment, would be longer than a GiB.
 */
void *hak_guarded_alloc(size_t bytes, unsigned align_shift);

/* Whether the address lies in such a mapping, or among slots (slots.h): for a handler of SIGSEGV. Takes no
 * lock, and some nanoseconds. */
bool hak_guarded_covers(const void *address);

/* How many blocks there are that were not closed yet. */
size_t hak_guarded_live(void);

/* Where the parts of a GUARDED record's block lie; of one in a slot, start and end alone. */
struct hak_guarded_range hak_guarded_range(const struct hak_record *record);

/*
 * The block, of more than `bytes` bytes and not in a slot, is to end at that size where it lies: pages and
 * units behind go, as if it had been allocated so, though it may end further from its last page's end. False:
 * the kernel refuses, and nothing has changed.
 */
bool hak_guarded_shrink(const struct hak_record *record, size_t bytes);

/* Takes its memory and every access away; the address stays taken. */
void hak_guarded_close(const struct hak_record *record);

/* Gives its address space back. */
void hak_guarded_unmap(const struct hak_record *record);

#endif
