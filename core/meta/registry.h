/*
 * registry.h - what stands at an address: one word per 64 KiB unit, readable without a lock for any pointer
 * value.
 *
 * A word packs an address or number (upper 48 bits) and eight times the number of a row (lower 16). The row
 * says what kind of unit this is and, for slabs, how to get from an offset to a block's number by one
 * multiplication. Two levels: a top table with one entry per 4 GiB, leaves of 512 KiB mapped on demand and
 * never unmapped. An empty top entry leads to a leaf of zeros, so that a look-up tests nothing; only
 * addresses beyond HAK_ADDRESS_BITS are refused.
 *
 * Writers own the range that they write words for. Readers on the hit path hold a block of the unit, which
 * was handed to them after its word was stored.
 */
#ifndef HAK_META_REGISTRY_H
#define HAK_META_REGISTRY_H

#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"
#include "os/lock.h"

enum hak_unit_kind {
    HAK_KIND_NONE,        /* not ours */
    HAK_KIND_SLAB,        /* address: the header map of the slab */
    HAK_KIND_SLAB_FREED,  /* number: see hak_freed_number() in slab/slab.h */
    HAK_KIND_EXTENT,      /* address: the large floor's record of an extent of page runs */
    HAK_KIND_MAPPED,      /* address: the large floor's record of the block that starts in this unit */
    HAK_KIND_LARGE_FREED, /* number: which large blocks started here, see large/freed_mark.h */
};

#define HAK_LEAF_SHIFT    32u
#define HAK_LEAF_UNITS    ((size_t)1 << (HAK_LEAF_SHIFT - HAK_UNIT_SHIFT))
#define HAK_TOP_ENTRIES   ((size_t)1 << (HAK_ADDRESS_BITS - HAK_LEAF_SHIFT))
#define HAK_WORD_ROW_BITS 16u
#define HAK_FIRST_SLAB_ROW                                                                                   \
    8u /* rows below belong to the kinds; then one per class, for the first units of its slabs */
#define HAK_WORD_ROW_SCALE                                                                                   \
    8u /* a word's row number comes times the size of a pointer: it indexes tables of those */
#define HAK_REGISTRY_ROWS 128u

typedef uint64_t hak_word;

/*
 * For the unit's offset `o` in its 64 KiB: with n = o + offset_bias, the 128-bit product n * reciprocal has
 * the block number in its upper half, and its lower half is below reciprocal exactly when n is a multiple of
 * the block size: reciprocal = floor(2^64 / size) + 1 and n < 2^19, so the error n * (size * reciprocal -
 * 2^64) / size stays below reciprocal (D. Lemire, O. Kaser, N. Kurz, "Faster remainder by direct
 * computation", 2019). Rows that are not of slabs have reciprocal 0, which makes every pointer inexact.
 */
struct hak_registry_row {
    uint64_t reciprocal;
    uint32_t offset_bias; /* bytes from the slab's start to this unit */
    uint8_t live_header;  /* HAK_HEADER_LIVE + class_idx */
    uint8_t class_idx;
    uint8_t kind; /* enum hak_unit_kind */
    uint8_t unused;
};

struct hak_registry {
    _Atomic uintptr_t home_number;              /* the 4 GiB of the first leaf: nearly all blocks lie there */
    _Atomic uintptr_t home_offset;              /* and its entry in top; 0 until there is one */
    _Atomic uintptr_t top[HAK_TOP_ENTRIES];     /* bytes from the zero leaf to this one */
    _Atomic hak_word zero_leaf[HAK_LEAF_UNITS]; /* never written */
    struct hak_registry_row rows[HAK_REGISTRY_ROWS]; /* const after hak_registry_init */
};
extern struct hak_registry hak_registry;
extern struct hak_lock hak_registry_lock;

/* Fills the rows; idempotent, the first caller is alone or all store the same. Words of slabs need it first.
 */
void hak_registry_init(void);

HAK_ALWAYS_INLINE bool hak_registry_covers(const void *pointer) {
    return (uintptr_t)pointer >> HAK_LEAF_SHIFT < HAK_TOP_ENTRIES;
}

/*
 * An address in a register that the compiler knows nothing about: what is reached from it is reached by
 * displacements, not by an address computed for each table. Two instructions less in a malloc and free pair
 * of 58 (gcc 12, x86-64).
 */
HAK_ALWAYS_INLINE uintptr_t hak_opaque_address(uintptr_t address) {
    __asm__("" : "+r"(address));
    return address;
}

HAK_ALWAYS_INLINE struct hak_registry *hak_registry_base(void) {
    return (struct hak_registry *)hak_opaque_address((uintptr_t)&hak_registry);
}

/*
 * The word of any pointer value, 0 where nothing of ours is; registry is hak_registry_base(). The home leaf
 * is found without a load that waits for the pointer: a free's latency is a chain of such loads.
 */
HAK_ALWAYS_INLINE hak_word hak_registry_word_in(struct hak_registry *registry, const void *pointer) {
    uintptr_t address = (uintptr_t)pointer;
    uintptr_t number = address >> HAK_LEAF_SHIFT;
    /* acquire: pairs with the release in enter_home(): who sees the home's offset sees its number */
    uintptr_t leaf_offset = hak_atomic_load_acquire(&registry->home_offset);
    /* relaxed: ordered by the acquire above */
    if (HAK_UNLIKELY(number != hak_atomic_load_relaxed(&registry->home_number))) {
        /* relaxed: whoever holds a pointer into a unit got it after the unit's words were stored, and by a
         * way that orders the two (his own store, or the program's own synchronisation); a wild pointer may
         * read either */
        leaf_offset = number < HAK_TOP_ENTRIES ? hak_atomic_load_relaxed(&registry->top[number]) : 0;
    }
    struct hak_registry *moved = (struct hak_registry *)hak_opaque_address((uintptr_t)registry + leaf_offset);
    /* relaxed: as above. `moved` has the leaf where the registry has the zero leaf. */
    return hak_atomic_load_relaxed(&moved->zero_leaf[(uint32_t)address >> HAK_UNIT_SHIFT]);
}

HAK_INLINE hak_word hak_registry_word(const void *pointer) {
    return hak_registry_word_in(&hak_registry, pointer);
}

HAK_ALWAYS_INLINE const struct hak_registry_row *hak_word_row_in(const struct hak_registry *registry,
                                                                 hak_word word) {
    size_t row_offset = (uint16_t)word * (sizeof(struct hak_registry_row) / HAK_WORD_ROW_SCALE);
    return (const struct hak_registry_row *)((uintptr_t)registry->rows + row_offset);
}

HAK_INLINE const struct hak_registry_row *hak_word_row(hak_word word) {
    return hak_word_row_in(&hak_registry, word);
}

HAK_INLINE enum hak_unit_kind hak_word_kind(hak_word word) {
    return (enum hak_unit_kind)hak_word_row(word)->kind;
}

HAK_ALWAYS_INLINE void *hak_word_address(hak_word word) {
    return (void *)(uintptr_t)(word >> HAK_WORD_ROW_BITS);
}

HAK_INLINE uint64_t hak_word_number(hak_word word) {
    return word >> HAK_WORD_ROW_BITS;
}

/* Words to store. `unit` counts from the slab's start. Numbers are below 2^48. */
hak_word hak_word_for_slab(unsigned class_idx, unsigned unit, const void *map);
hak_word hak_word_for_record(enum hak_unit_kind kind, const void *record);
hak_word hak_word_for_number(enum hak_unit_kind kind, uint64_t number);

/*
 * Makes sure that words of the range can be stored: 0 or ENOMEM. May map a leaf: no lock held. A range once
 * prepared stays so.
 */
int hak_registry_prepare(const void *address, size_t bytes);

/* Stores one word; the unit's range is prepared and the caller's. */
void hak_registry_store(const void *address, hak_word word);

/* Stores the word for each of `units` units from address on. */
void hak_registry_fill(const void *address, size_t units, hak_word word);

/* Visits the memory of every leaf. */
void hak_registry_visit_mapped(hak_range_visitor visitor, void *context);

/* Mapped bytes of all leaves. */
size_t hak_registry_mapped_bytes(void);

_Static_assert(sizeof(struct hak_registry_row) == 16,
               "from a scaled row number to a row is one addressing mode");
_Static_assert(HAK_REGISTRY_ROWS *HAK_WORD_ROW_SCALE <= 1u << HAK_WORD_ROW_BITS,
               "a scaled row number must fit the lower bits of a word");
_Static_assert(HAK_FIRST_SLAB_ROW > HAK_KIND_LARGE_FREED, "each kind has a row");

#endif
