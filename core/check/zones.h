/*
 * zones.h - the bytes around and in a block that checked mode fills and looks at again: red zones, new and
 * freed memory.
 *
 * An INLINE block's red zone reaches from its last byte to the end of its memory, at least 16 bytes. A
 * GUARDED block ends within 15 bytes of a page without access (further off when it is aligned to more, or was
 * made shorter) and has another before its first page; what lies between block and pages is red zone too.
 */
#ifndef HAK_CHECK_ZONES_H
#define HAK_CHECK_ZONES_H

#include "check/records.h"

#define HAK_ZONE_BYTES_MIN 16u

#define HAK_FILL_NEW   0xCDu /* memory that malloc returns: not zero, no valid pointer, an odd number */
#define HAK_FILL_FREED 0xDFu
#define HAK_FILL_RED   0xFBu

/* Where a record's bytes lie: before <= address <= end <= behind. */
struct hak_zones {
    uint8_t *before; /* first byte of the red zone before the block; the block's address when it has none */
    uint8_t *block;
    uint8_t *end;    /* of the block */
    uint8_t *behind; /* the end of the red zone behind it */
};

/* Those of a block that is live or quarantined. */
struct hak_zones hak_zones_of(const struct hak_record *record);

void hak_zones_fill_red(const struct hak_zones *zones);

/* A byte that is not what was filled in. */
struct hak_damage {
    const uint8_t *at; /* the first; NULL: none */
    size_t bytes;      /* from the first to the last one */
};

/* The first damage in a range that was filled with one value. */
struct hak_damage hak_zone_damage(const uint8_t *start, const uint8_t *end, uint8_t fill);

#endif
