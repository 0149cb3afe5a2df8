/*
 * guarded.h - blocks in mappings of their own, between pages without access.
 *
 *     | no access, an OS page or more | red zone, block, red zone: whole OS pages | no access |
 *
 * The block lies as near to the end as its alignment allows, so that writing past it faults at once. Where
 * these parts lie follows from the block's address, size and alignment: nothing is kept here. Any thread;
 * slow: no lock held.
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
 * bytes are zero. NULL when there is no memory, or the kernel allows no more mappings.
 */
void *hak_guarded_alloc(size_t bytes, unsigned align_shift);

/* Whether the address lies between the lowest and the highest mapping there ever was; most others do not.
 * Takes no lock. */
bool hak_guarded_covers(const void *address);

/* The same for addresses of others: `start` to `end` are covered from now on. */
void hak_guarded_widen(const void *start, const void *end);

/* How many blocks there are that were not closed yet. */
size_t hak_guarded_live(void);

/* Where the parts of a GUARDED record's block lie, also of one in a slot (slots.h). */
struct hak_guarded_range hak_guarded_range(const struct hak_record *record);

/* Takes its memory and every access away; the address stays taken. */
void hak_guarded_close(const struct hak_record *record);

/* Gives its address space back. */
void hak_guarded_unmap(const struct hak_record *record);

#endif
