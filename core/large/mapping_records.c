/*
 * mapping_records.c - see mapping_records.h.
 */
#include "large/mapping_records.h"
#include "large/retain.h"
#include "meta/arena.h"

#define RECORDS_AT_ONCE 16u

static bool add_records(void) {
    struct hak_mapping *records = hak_meta_alloc(RECORDS_AT_ONCE * sizeof(struct hak_mapping));
    if (records == NULL) {
        return false;
    }
    hak_lock_acquire(&hak_large_lock);
    hak_mapping_add_spares(records, RECORDS_AT_ONCE);
    hak_lock_release(&hak_large_lock);
    return true;
}

struct hak_mapping *hak_mapping_new_record(void) {
    for (;;) {
        hak_lock_acquire(&hak_large_lock);
        struct hak_mapping *mapping = hak_mapping_take_spare();
        hak_lock_release(&hak_large_lock);
        if (mapping != NULL || !add_records()) {
            return mapping;
        }
    }
}

void hak_mapping_drop_record(struct hak_mapping *mapping) {
    hak_lock_acquire(&hak_large_lock);
    hak_mapping_transit_to_spare(mapping);
    hak_lock_release(&hak_large_lock);
}

int hak_mapping_prepare_words(const void *base, size_t bytes) {
    return hak_registry_prepare(base, hak_smaller(bytes, hak_large_policy.cut_bytes_max));
}

void hak_mapping_lock_with_spare(void) {
    hak_lock_acquire(&hak_large_lock);
    if (!hak_mapping_has_spare()) {
        hak_lock_release(&hak_large_lock);
        (void)add_records();
        hak_lock_acquire(&hak_large_lock);
    }
}
