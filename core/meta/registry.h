/*
 * registry.h - what stands at an address: one word per 64 KiB unit, readable without a lock for any pointer
 * value.
 *
 * A word packs an address or number (upper 48 bits), a tag and the number of a row (a byte each). The row
 * says what kind of unit this is and, for a slab, which class and how far from the slab's start; for the
 * first unit of a slab it is the header of the class's live blocks. The tag hints at the slab's owner. Two
 * levels: a top table with one entry per 4 GiB, leaves of 768 KiB, all but the first mapped on demand and
 * never unmapped. Addresses beyond HAK_ADDRESS_BITS are refused.
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
    HAK_KIND_GUARDED,     /* a block between guard pages, or these: see check/guarded.h and check/slots.h */
};

#define HAK_LEAF_SHIFT     32u
#define HAK_LEAF_UNITS     ((size_t)1 << (HAK_LEAF_SHIFT - HAK_UNIT_SHIFT))
#define HAK_TOP_ENTRIES    ((size_t)1 << (HAK_ADDRESS_BITS - HAK_LEAF_SHIFT))
#define HAK_WORD_LOW_BITS  16u /* of a word: row and tag */
#define HAK_WORD_ROW_BITS  8u
#define HAK_WORD_TAGS      240u            /* of heaps, from 1 on; see slab/orphans.h */
#define HAK_FIRST_SLAB_ROW HAK_HEADER_LIVE /* below: rows of kinds; behind: of further units */
#define HAK_LAST_SLAB_ROW  (HAK_FIRST_SLAB_ROW + HAK_CLASS_COUNT - 1)
#define HAK_REGISTRY_ROWS  (1u << HAK_WORD_ROW_BITS)

typedef uint64_t hak_word;

struct hak_registry_row {
    uint32_t offset_bias; /* bytes from the slab's start to this unit */
    uint8_t class_idx;
    uint8_t kind; /* enum hak_unit_kind */
};

/*
 * The words of 4 GiB, and beside each what an offset in its unit is multiplied by. The word's row leads to
 * that too, but then the address of a freed block's header would come so late that the loads of the next
 * malloc and free would wait for it.
 */
struct hak_leaf {
    _Atomic hak_word words[HAK_LEAF_UNITS];
    /* hak_reciprocal_upper() of a slab's first unit; else 0, or that of a slab that was here. The half of a
     * word that lies before the first is read with it. */
    _Atomic uint32_t reciprocals[HAK_LEAF_UNITS];
};

/*
 * `home` is the first leaf of the process: nearly all blocks lie there. It is found without a load that waits
 * for the pointer, since a free's latency is a chain of such loads. `unused` is such that the last entries of
 * `top`, where nearly all mappings have theirs, and what follows share a page.
 */
struct hak_registry {
    struct hak_leaf home;
    uint8_t unused[2048];
    _Atomic(struct hak_leaf *) top[HAK_TOP_ENTRIES]; /* NULL: nothing of ours lies there */
    uint64_t reciprocal[HAK_CLASS_COUNT];            /* const after hak_registry_init() */
};
extern struct hak_registry hak_registry;

/* What the registry knows of a pointer's unit. */
struct hak_at {
    hak_word word;
    uint64_t reciprocal; /* in its upper half; of the class, if the word is of a slab's first unit */
};

/* Minus the address of the home's first unit; until there is one, such that no pointer lies there. */
#define HAK_MINUS_NO_HOME ((uintptr_t)1 << 63)
extern _Atomic uintptr_t hak_registry_minus_home;

/* Const after hak_registry_init(). */
extern struct hak_registry_row hak_registry_rows[HAK_REGISTRY_ROWS];

extern struct hak_lock hak_registry_lock;

/* Fills the rows; idempotent, the first caller is alone or all store the same. Words of slabs need it first.
 */
void hak_registry_init(void);

HAK_ALWAYS_INLINE bool hak_registry_covers(const void *pointer) {
    return (uintptr_t)pointer >> HAK_LEAF_SHIFT < HAK_TOP_ENTRIES;
}

/* Of a pointer that does not lie at home. */
HAK_ALWAYS_INLINE struct hak_at hak_registry_abroad(const struct hak_registry *registry,
                                                    const void *pointer) {
    uintptr_t number = (uintptr_t)pointer >> HAK_LEAF_SHIFT;
    if (number >= HAK_TOP_ENTRIES) {
        return (struct hak_at){.word = 0};
    }
    /* relaxed: whoever holds a pointer into a unit got it after the unit's words were stored, and by a way
     * that orders the two (his own store, or the program's own synchronisation); a wild pointer may read
     * either */
    const struct hak_leaf *leaf = hak_atomic_load_relaxed(&registry->top[number]);
    if (leaf == NULL) {
        return (struct hak_at){.word = 0};
    }
    uint32_t unit = (uint32_t)(uintptr_t)pointer >> HAK_UNIT_SHIFT;
    struct hak_at at;
    at.word = hak_atomic_load_relaxed(&leaf->words[unit]);                   /* relaxed: as above */
    at.reciprocal = hak_atomic_load_upper_relaxed(&leaf->reciprocals[unit]); /* relaxed: as above */
    return at;
}

/* The registry, its address in a register: for who looks up a word and what lies beside it. */
HAK_ALWAYS_INLINE const struct hak_registry *hak_registry_at_hand(void) {
    return (const struct hak_registry *)hak_in_register((uintptr_t)&hak_registry);
}

/* Whether it lies at home, as most do; then what is known of it. `minus_home` is hak_registry_minus_home, or
 * what somebody has copied it to. */
HAK_ALWAYS_INLINE bool hak_registry_at_home(const struct hak_registry *registry,
                                            const _Atomic uintptr_t *minus_home, const void *pointer,
                                            struct hak_at *at) {
    /* relaxed: who sees an older value finds the home by way of the top table */
    uintptr_t offset_bytes = hak_atomic_load_relaxed(minus_home) + (uintptr_t)pointer;
    uintptr_t unit = offset_bytes >> HAK_UNIT_SHIFT;
    if (HAK_UNLIKELY(unit >= HAK_LEAF_UNITS)) {
        return false;
    }
    const struct hak_leaf *home = &registry->home;
    at->word = hak_atomic_load_relaxed(&home->words[unit]); /* relaxed: as for those abroad */
    at->reciprocal = hak_atomic_load_upper_relaxed(&home->reciprocals[unit]); /* relaxed: the same */
    return true;
}

HAK_ALWAYS_INLINE struct hak_at hak_registry_at(const struct hak_registry *registry, const void *pointer) {
    struct hak_at at;
    return hak_registry_at_home(registry, &hak_registry_minus_home, pointer, &at)
               ? at
               : hak_registry_abroad(registry, pointer);
}

/* The word of any pointer value, 0 where nothing of ours is. */
HAK_INLINE hak_word hak_registry_word(const void *pointer) {
    return hak_registry_at(&hak_registry, pointer).word;
}

HAK_INLINE const struct hak_registry_row *hak_word_row(hak_word word) {
    return &hak_registry_rows[(uint8_t)word];
}

/* The tag of a heap's slabs; 0 for number 0, which is nobody's. Two heaps may share a tag. */
HAK_INLINE unsigned hak_word_tag_of_heap(uint32_t heap_id) {
    return heap_id == 0 ? 0 : 1 + (heap_id - 1) % HAK_WORD_TAGS;
}

/* It where it stands in a word: the word's lower bits less these are the row, if the tag is the same. */
HAK_INLINE unsigned hak_word_low_of_heap(uint32_t heap_id) {
    return hak_word_tag_of_heap(heap_id) << HAK_WORD_ROW_BITS;
}

/* Of a slab's word: the tag of the heap that it was last tagged with. */
HAK_INLINE unsigned hak_word_tag(hak_word word) {
    return (uint16_t)word >> HAK_WORD_ROW_BITS;
}

/* Whether the tags of two words' lower bits are the same. */
HAK_INLINE bool hak_word_has_tag_of(hak_word word, unsigned low) {
    return hak_word_tag(word) == low >> HAK_WORD_ROW_BITS;
}

HAK_INLINE enum hak_unit_kind hak_word_kind(hak_word word) {
    return (enum hak_unit_kind)hak_word_row(word)->kind;
}

HAK_ALWAYS_INLINE void *hak_word_address(hak_word word) {
    return (void *)(uintptr_t)(word >> HAK_WORD_LOW_BITS);
}

HAK_INLINE uint64_t hak_word_number(hak_word word) {
    return word >> HAK_WORD_LOW_BITS;
}

/* Words to store. `unit` counts from the slab's start, the tag is that of a heap. Numbers are below 2^48. */
hak_word hak_word_for_slab(unsigned class_idx, unsigned unit, const void *map, uint32_t heap_id);
hak_word hak_word_for_record(enum hak_unit_kind kind, const void *record);
hak_word hak_word_for_number(enum hak_unit_kind kind, uint64_t number);

/*
 * Makes sure that words of the range can be stored: 0 or ENOMEM. May map a leaf: no lock held. A range once
 * prepared stays so.
 */
int hak_registry_prepare(const void *address, size_t bytes);

/* Whether a word can be stored for `address`. Any thread, under any lock. */
bool hak_registry_is_prepared(const void *address);

/* Stores one word; the unit's range is prepared and the caller's. */
void hak_registry_store(const void *address, hak_word word);

/* Stores the word for each of `units` units from address on. */
void hak_registry_fill(const void *address, size_t units, hak_word word);

/* Visits the memory of every mapped leaf. */
void hak_registry_visit_mapped(hak_range_visitor visitor, void *context);

/* Mapped bytes of leaves. */
size_t hak_registry_mapped_bytes(void);

_Static_assert(HAK_WORD_TAGS < 1u << (HAK_WORD_LOW_BITS - HAK_WORD_ROW_BITS), "a tag is a byte of a word");

#endif
