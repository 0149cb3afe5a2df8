/*
 * slots.h - places for sampled blocks: pages between pages without access, opened by one call to the kernel
 * and shut by one.
 *
 *     | no access | block | no access | block | ... | no access |
 *
 * Slots lie side by side in chunks of address space, which stay for good; so do the registry's words of a
 * chunk, which lead to the record of each slot's block (records.h). A block lies at the end of its slot. When
 * it is freed its memory and every access go at once, and the slot waits behind others that were given back
 * before it, so that late accesses meet no other block.
 *
 * Where the kernel has guard markers (Linux 6.13) a chunk is one mapping however many slots are open; else
 * each open slot makes two more. Any thread, no lock held; one lock inside, not held across system calls.
 */
#ifndef HAK_CHECK_SLOTS_H
#define HAK_CHECK_SLOTS_H

#include "check/records.h"

/* Once, in a constructor: how much address space slots may take. */
void hak_slots_prepare(size_t space_bytes_max);

/* Whether there are slots for such blocks. */
bool hak_slot_is_for(size_t bytes, unsigned align_shift);

/*
 * A block of `bytes` zeroed bytes at a multiple of 1 << align_shift, at least 16, which there are slots for.
 * NULL when all are in use that there may be, or the kernel refuses. It has no record until
 * hak_records_enter().
 */
void *hak_slot_open(size_t bytes, unsigned align_shift);

/* Takes the memory of a FREEING record's block away, and every access. */
void hak_slot_shut(const struct hak_record *record);

/* After hak_slot_shut(): the slot may serve another block, though others come first. */
void hak_slot_give_back(const void *block);

/* The place of the record for the slot around `address`; NULL when there is none. Its contents are under
 * hak_slots_lock, its field `address` 0 while there is no block. */
struct hak_record *hak_slot_record(const void *address);

/* As hak_records_visit() does with others. Under hak_slots_lock. */
int hak_slots_visit_locked(hak_record_visitor visitor, void *context);

/* Visits all address space of slots, no lock held. */
void hak_slots_visit_mapped(hak_range_visitor visitor, void *context);

/* How many are in use. */
size_t hak_slots_live(void);

/* Of rank RECORDS. */
extern struct hak_lock hak_slots_lock;

#endif
