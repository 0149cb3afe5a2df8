/*
 * zones.c - see zones.h.
 */
#include "check/zones.h"
#include "check/guarded.h"

#include "meta/classes.h"
#include "meta/registry.h"
#include <string.h>

/* Bytes of memory of an INLINE block. Of the large floor it has more, but to ask takes a lock. */
static size_t inline_bytes(const struct hak_record *record) {
    const void *block = (const void *)record->address;
    hak_word word = hak_registry_word(block);
    return hak_word_kind(word) == HAK_KIND_SLAB ? hak_class_block_bytes[hak_word_row(word)->class_idx]
                                                : record->bytes + HAK_ZONE_BYTES_MIN;
}

struct hak_zones hak_zones_of(const struct hak_record *record) {
    uint8_t *block = (uint8_t *)record->address;
    struct hak_zones zones = {.before = block, .block = block, .end = block + record->bytes};
    if (record->kind == HAK_RECORD_GUARDED) {
        struct hak_guarded_range range = hak_guarded_range(record);
        zones.before = range.start;
        zones.behind = range.end;
    } else {
        zones.behind = block + inline_bytes(record);
    }
    return zones;
}

void hak_zones_fill_red(const struct hak_zones *zones) {
    memset(zones->before, HAK_FILL_RED, (size_t)(zones->block - zones->before));
    memset(zones->end, HAK_FILL_RED, (size_t)(zones->behind - zones->end));
}

struct hak_damage hak_zone_damage(const uint8_t *start, const uint8_t *end, uint8_t fill) {
    /* A range whose every byte is like its neighbour is compared many bytes at a time. */
    if (start == end || (*start == fill && memcmp(start, start + 1, (size_t)(end - start) - 1) == 0)) {
        return (struct hak_damage){.at = NULL};
    }
    const uint8_t *first = start;
    while (*first == fill) {
        first++;
    }
    const uint8_t *last = end - 1;
    while (*last == fill) {
        last--;
    }
    return (struct hak_damage){.at = first, .bytes = (size_t)(last + 1 - first)};
}
