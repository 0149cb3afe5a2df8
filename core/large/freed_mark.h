/*
 * freed_mark.h - what the number in a registry word of kind LARGE_FREED says: which large blocks started in
 * this unit and are free now, and how long they were.
 *
 * A block with a mapping of its own starts at the unit's first byte; its size is the number. Of an extent
 * that was given back up to three starts are remembered, at page granularity: bit 47, then three fields of
 * start (4 bits) and length (10 bits), both counted in 4 KiB. Arithmetic alone, no locking.
 */
#ifndef HAK_LARGE_FREED_MARK_H
#define HAK_LARGE_FREED_MARK_H

#include "base/bits.h"
#include "base/config.h"

#define HAK_FREED_MARK_RUNS        ((uint64_t)1 << 47)
#define HAK_FREED_MARK_FIELDS      3u
#define HAK_FREED_MARK_FIELD_BITS  14u
#define HAK_FREED_MARK_LENGTH_BITS 10u
#define HAK_FREED_MARK_GRAIN_SHIFT 12u
#define HAK_FREED_MARK_FIELD_MASK  (((uint64_t)1 << HAK_FREED_MARK_FIELD_BITS) - 1)
#define HAK_FREED_MARK_LENGTH_MASK (((uint64_t)1 << HAK_FREED_MARK_LENGTH_BITS) - 1)

/* The mark of a block of `bytes` bytes that started at the unit's first byte. */
HAK_INLINE uint64_t hak_freed_mark_of_mapping(size_t bytes) {
    return bytes < HAK_FREED_MARK_RUNS ? bytes : HAK_FREED_MARK_RUNS - 1;
}

/* Adds a run that started `offset_bytes` into the unit to a mark (0: none yet); a fourth is not remembered.
 */
HAK_INLINE uint64_t hak_freed_mark_add_run(uint64_t mark, size_t offset_bytes, size_t bytes) {
    uint64_t field = (uint64_t)(offset_bytes >> HAK_FREED_MARK_GRAIN_SHIFT) << HAK_FREED_MARK_LENGTH_BITS |
                     (uint64_t)(bytes >> HAK_FREED_MARK_GRAIN_SHIFT);
    for (unsigned i = 0; i < HAK_FREED_MARK_FIELDS; i++) {
        unsigned shift = i * HAK_FREED_MARK_FIELD_BITS;
        if ((mark >> shift & HAK_FREED_MARK_FIELD_MASK) == 0) {
            return mark | HAK_FREED_MARK_RUNS | field << shift;
        }
    }
    return mark;
}

/* Bytes of the free block that started `offset_bytes` into the unit; 0 when the mark knows of none. */
HAK_INLINE size_t hak_freed_mark_bytes(uint64_t mark, size_t offset_bytes) {
    if ((mark & HAK_FREED_MARK_RUNS) == 0) {
        return offset_bytes == 0 ? (size_t)mark : 0;
    }
    for (unsigned i = 0; i < HAK_FREED_MARK_FIELDS; i++) {
        uint64_t field = mark >> (i * HAK_FREED_MARK_FIELD_BITS) & HAK_FREED_MARK_FIELD_MASK;
        if (field != 0 && field >> HAK_FREED_MARK_LENGTH_BITS << HAK_FREED_MARK_GRAIN_SHIFT == offset_bytes) {
            return (size_t)(field & HAK_FREED_MARK_LENGTH_MASK) << HAK_FREED_MARK_GRAIN_SHIFT;
        }
    }
    return 0;
}

_Static_assert(HAK_UNIT_SHIFT - HAK_FREED_MARK_GRAIN_SHIFT + HAK_FREED_MARK_LENGTH_BITS ==
                   HAK_FREED_MARK_FIELD_BITS,
               "a field is a start within the unit and a length");
_Static_assert(HAK_SUPERSLAB_BYTES >> HAK_FREED_MARK_GRAIN_SHIFT <= HAK_FREED_MARK_LENGTH_MASK,
               "a field's length reaches a whole extent");

#endif
