/*
 * classes.c - see classes.h: the tables, all generated from the one in the header, all constant.
 */
#include "meta/classes.h"

#define BLOCK_BYTES(idx, below, bytes, units) [idx] = (bytes),
#define UNITS(idx, below, bytes, units)       [idx] = (units),
#define SIZE_RANGE(idx, below, bytes, units)                                                                 \
    [(below) >> HAK_SIZE_SHIFT...((bytes) >> HAK_SIZE_SHIFT) - 1] = HAK_HEADER_LIVE + (idx),

const uint32_t hak_class_block_bytes[HAK_CLASS_COUNT] = {HAK_CLASS_TABLE(BLOCK_BYTES)};
const uint8_t hak_class_units[HAK_CLASS_COUNT] = {HAK_CLASS_TABLE(UNITS)};
const uint8_t hak_live_of_slot[HAK_SIZE_SLOTS] = {HAK_CLASS_TABLE(SIZE_RANGE)};

#define CHECK_ROW(idx, below, bytes, units)                                                                  \
    _Static_assert((bytes) % HAK_ALIGN_BYTES == 0, "blocks must stay 16-byte aligned");                      \
    _Static_assert((units) <= HAK_SLAB_UNITS_MAX, "the registry's rows count units up to the maximum");      \
    _Static_assert((units)*HAK_UNIT_BYTES / (bytes) <= HAK_SLAB_BLOCKS_MAX,                                  \
                   "counts must fit a slab's word");                                                         \
    _Static_assert((idx) < HAK_CLASS_COUNT, "the class count is in config.h");

HAK_CLASS_TABLE(CHECK_ROW)
