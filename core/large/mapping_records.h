/*
 * mapping_records.h - records of mappings for those who hold no lock: memory for new ones comes from here.
 */
#ifndef HAK_LARGE_MAPPING_RECORDS_H
#define HAK_LARGE_MAPPING_RECORDS_H

#include "large/mapping.h"

/* A record in transit, without memory; NULL when out of memory. No lock held. */
struct hak_mapping *hak_mapping_new_record(void);

/* A record in transit becomes a spare one; of its neighbours it is cut off. No lock held. */
void hak_mapping_drop_record(struct hak_mapping *mapping);

/*
 * Takes hak_large_lock with a spare record at hand for a cut, if memory allows; without one nothing is cut.
 * No lock held before.
 */
void hak_mapping_lock_with_spare(void);

/*
 * Prepares the registry for the start of a piece and for the places where it may be cut: those within
 * hak_large_policy.cut_bytes_max. 0 or ENOMEM. May map leaves: no lock held.
 */
int hak_mapping_prepare_words(const void *base, size_t bytes);

#endif
