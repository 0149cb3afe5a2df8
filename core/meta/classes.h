/*
 * classes.h - the size classes: which block sizes there are, and how many units a slab of each has.
 *
 * 16-byte steps to 128 bytes, then four classes per doubling: tiny to 1 KiB, mid to 32 KiB; and one more
 * behind 1, 4, 8 and 16 KiB, because programs put a header of their own before or behind such a buffer. These
 * are as small as leaves most such headers room, or as large as lets as many blocks fit: 15 of 4368 bytes in
 * a unit, 7 of 8768 in 15 OS pages of it, 7 of 17552 in 30 of two. Worst internal waste is 20 % (just above a
 * power of two), 10 % on average. Span lengths keep what is left at a slab's end below 2.5 % of it, OS pages
 * of 4 KiB that no block reaches not counted: they are never touched.
 * Up to 9 KiB a slab is one unit, because free finds the blocks of further units by a longer way. A class
 * whose size is a power of two has its blocks aligned to that size, because slabs start at multiples of 64
 * KiB and blocks at the slab's start.
 */
#ifndef HAK_META_CLASSES_H
#define HAK_META_CLASSES_H

#include "base/bits.h"
#include "base/config.h"
#include "os/os.h"

/* X(class index, size of the class below, block size, units in a slab) */
#define HAK_CLASS_TABLE(X)                                                                                   \
    X(0, 0, 16, 1)                                                                                           \
    X(1, 16, 32, 1)                                                                                          \
    X(2, 32, 48, 1)                                                                                          \
    X(3, 48, 64, 1)                                                                                          \
    X(4, 64, 80, 1)                                                                                          \
    X(5, 80, 96, 1)                                                                                          \
    X(6, 96, 112, 1)                                                                                         \
    X(7, 112, 128, 1)                                                                                        \
    X(8, 128, 160, 1)                                                                                        \
    X(9, 160, 192, 1)                                                                                        \
    X(10, 192, 224, 1)                                                                                       \
    X(11, 224, 256, 1)                                                                                       \
    X(12, 256, 320, 1)                                                                                       \
    X(13, 320, 384, 1)                                                                                       \
    X(14, 384, 448, 1)                                                                                       \
    X(15, 448, 512, 1)                                                                                       \
    X(16, 512, 640, 1)                                                                                       \
    X(17, 640, 768, 1)                                                                                       \
    X(18, 768, 896, 1)                                                                                       \
    X(19, 896, 1024, 1)                                                                                      \
    X(20, 1024, 1088, 1)                                                                                     \
    X(21, 1088, 1280, 1)                                                                                     \
    X(22, 1280, 1536, 1)                                                                                     \
    X(23, 1536, 1792, 1)                                                                                     \
    X(24, 1792, 2048, 1)                                                                                     \
    X(25, 2048, 2560, 1)                                                                                     \
    X(26, 2560, 3072, 1)                                                                                     \
    X(27, 3072, 3584, 1)                                                                                     \
    X(28, 3584, 4096, 1)                                                                                     \
    X(29, 4096, 4368, 1)                                                                                     \
    X(30, 4368, 5120, 1)                                                                                     \
    X(31, 5120, 6144, 1)                                                                                     \
    X(32, 6144, 7168, 1)                                                                                     \
    X(33, 7168, 8192, 1)                                                                                     \
    X(34, 8192, 8768, 1)                                                                                     \
    X(35, 8768, 10240, 3)                                                                                    \
    X(36, 10240, 12288, 3)                                                                                   \
    X(37, 12288, 14336, 2)                                                                                   \
    X(38, 14336, 16384, 2)                                                                                   \
    X(39, 16384, 17552, 2)                                                                                   \
    X(40, 17552, 20480, 5)                                                                                   \
    X(41, 20480, 24576, 3)                                                                                   \
    X(42, 24576, 28672, 4)                                                                                   \
    X(43, 28672, 32768, 4)

/* Block sizes in bytes and units per slab, by class. */
extern const uint32_t hak_class_block_bytes[HAK_CLASS_COUNT];
extern const uint8_t hak_class_units[HAK_CLASS_COUNT];

/*
 * For the offset n of a pointer from its slab's start: the 128-bit product n * reciprocal has the block
 * number in its upper half, and its lower half is below 2^HAK_EXACT_SHIFT exactly when n is a multiple of the
 * block size (D. Lemire, O. Kaser, N. Kurz, "Faster remainder by direct computation", 2019). The reciprocal
 * is 2^64 / size and an error below 1, n below 2^19: so the lower half is n % size * 2^64 / size and less
 * than 2^19.
 *
 * Of the upper half of a reciprocal alone, whatever the lower is, the error is below 2^33. That serves where
 * n is below 2^16, since no block is longer than 2^15 bytes: a remainder of 1 is at least 2^49, what 0 comes
 * to is below, and the largest remainder does not reach the next number.
 */
HAK_INLINE uint64_t hak_class_reciprocal(unsigned class_idx) {
    return UINT64_MAX / hak_class_block_bytes[class_idx] + 1;
}

HAK_INLINE uint32_t hak_reciprocal_upper(uint64_t reciprocal) {
    return (uint32_t)((reciprocal + UINT32_MAX) >> 32);
}

#define HAK_EXACT_SHIFT 49u
_Static_assert(HAK_MID_MAX_BYTES <= (uint64_t)1 << (64 - HAK_EXACT_SHIFT),
               "a remainder of 1 is not taken for 0");
_Static_assert(HAK_UNIT_SHIFT + 33 <= HAK_EXACT_SHIFT, "the error of an upper half stays below it");

/* Whether a block starts at that offset; it, or the one that covers it, has the number *block_idx. */
HAK_ALWAYS_INLINE bool hak_divides(uint64_t reciprocal, uint64_t offset, uint64_t *block_idx) {
    return hak_multiply_wide(offset, reciprocal, block_idx) >> HAK_EXACT_SHIFT == 0;
}

#define HAK_SIZE_SHIFT 4u
#define HAK_SIZE_SLOTS (HAK_MID_MAX_BYTES >> HAK_SIZE_SHIFT)

/* The header of a live block of the class, by (bytes - 1) / 16, for 1 to HAK_MID_MAX_BYTES bytes. */
extern const uint8_t hak_live_of_slot[HAK_SIZE_SLOTS];

/* The class of a size from 0 to HAK_MID_MAX_BYTES. */
HAK_INLINE unsigned hak_class_of(size_t bytes) {
    return hak_live_of_slot[(bytes - (bytes != 0)) >> HAK_SIZE_SHIFT] - HAK_HEADER_LIVE;
}

/* Whether blocks of the class are longer than an OS page: some of a slab's pages may then never be touched,
 * though all its blocks are in use. Every page of other slabs has the start of a block. */
HAK_INLINE bool hak_class_exceeds_page(unsigned class_idx) {
    return hak_class_block_bytes[class_idx] > hak_os_page_bytes();
}

/* How many blocks a slab of the class holds. */
HAK_INLINE unsigned hak_class_capacity(unsigned class_idx) {
    return (unsigned)(hak_class_units[class_idx] * HAK_UNIT_BYTES / hak_class_block_bytes[class_idx]);
}

#endif
