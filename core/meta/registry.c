/*
 * registry.c - see registry.h.
 */
#include "meta/registry.h"
#include "base/assert.h"
#include "meta/classes.h"
#include "os/os.h"
#include <errno.h>

/*
 * Further units, class by class. Their rows are behind those of first units, and what belongs to the kinds
 * has the tag 0, which no heap has: so one compare tells a heap's first units from all else.
 */
#define FIRST_FURTHER_ROW                       (HAK_LAST_SLAB_ROW + 1)
#define FURTHER_UNITS(idx, below, bytes, units) +(units)-1u
_Static_assert(FIRST_FURTHER_ROW HAK_CLASS_TABLE(FURTHER_UNITS) <= HAK_REGISTRY_ROWS, "each unit has a row");
_Static_assert(HAK_KIND_GUARDED < HAK_FIRST_SLAB_ROW, "each kind has a row");

HAK_TABLE _Alignas(4096) struct hak_registry hak_registry;
HAK_READ_MOSTLY struct hak_registry_row hak_registry_rows[HAK_REGISTRY_ROWS];
HAK_READ_MOSTLY _Atomic uintptr_t hak_registry_minus_home = HAK_MINUS_NO_HOME;
struct hak_lock hak_registry_lock = HAK_LOCK_INIT(HAK_RANK_REGISTRY);

static bool has_home; /* under the lock */
static _Atomic size_t mapped_leaf_bytes;

static unsigned row_of(unsigned class_idx, unsigned unit) {
    if (unit == 0) {
        return HAK_FIRST_SLAB_ROW + class_idx;
    }
    unsigned row = FIRST_FURTHER_ROW + unit - 1;
    for (unsigned c = 0; c < class_idx; c++) {
        row += hak_class_units[c] - 1u;
    }
    return row;
}

void hak_registry_init(void) {
    for (unsigned kind = 0; kind <= HAK_KIND_GUARDED; kind++) {
        hak_registry_rows[kind].kind = (uint8_t)kind;
    }
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        hak_registry.reciprocal[c] = hak_class_reciprocal(c);
        for (unsigned unit = 0; unit < hak_class_units[c]; unit++) {
            HAK_ASSERT(unit == 0 || row_of(c, unit) > HAK_LAST_SLAB_ROW);
            struct hak_registry_row *row = &hak_registry_rows[row_of(c, unit)];
            row->offset_bias = (uint32_t)(unit * HAK_UNIT_BYTES);
            row->class_idx = (uint8_t)c;
            row->kind = HAK_KIND_SLAB;
        }
    }
}

static hak_word word_of(unsigned row, uint64_t payload) {
    HAK_ASSERT(payload >> (64 - HAK_WORD_LOW_BITS) == 0);
    return payload << HAK_WORD_LOW_BITS | row;
}

hak_word hak_word_for_slab(unsigned class_idx, unsigned unit, const void *map, uint32_t heap_id) {
    return word_of(row_of(class_idx, unit), (uintptr_t)map) | hak_word_low_of_heap(heap_id);
}

hak_word hak_word_for_record(enum hak_unit_kind kind, const void *record) {
    return word_of(kind, (uintptr_t)record);
}

hak_word hak_word_for_number(enum hak_unit_kind kind, uint64_t number) {
    return word_of(kind, number);
}

/* Whether the leaf is there now: another thread was faster, or it is the first of the process and so the
 * home. */
static bool is_settled(_Atomic(struct hak_leaf *) *entry) {
    hak_lock_acquire(&hak_registry_lock);
    if (!has_home) {
        has_home = true;
        uintptr_t base = (uintptr_t)(entry - hak_registry.top) << HAK_LEAF_SHIFT;
        hak_atomic_store_relaxed(&hak_registry_minus_home, -base); /* relaxed: see hak_registry_at_home() */
        hak_atomic_store_relaxed(entry, &hak_registry.home); /* relaxed: nothing was written to it before */
    }
    bool is_there = hak_atomic_load_relaxed(entry) != NULL; /* relaxed: written under the lock only */
    hak_lock_release(&hak_registry_lock);
    return is_there;
}

/* Maps the leaf of one top entry between two guard pages; another thread may do the same meanwhile, the first
 * to publish wins. */
static int map_leaf(_Atomic(struct hak_leaf *) *entry) {
    void *reserved;
    size_t page_bytes = hak_os_page_bytes();
    size_t leaf_bytes = sizeof(struct hak_leaf);
    size_t guarded_bytes = leaf_bytes + 2 * page_bytes;
    int error = hak_os_reserve_aligned(guarded_bytes, page_bytes, &reserved);
    if (error != 0) {
        return error;
    }
    void *leaf = (char *)reserved + page_bytes;
    error = hak_os_allow(leaf, leaf_bytes);
    if (error != 0) {
        hak_os_drop(reserved, guarded_bytes);
        return error;
    }
    hak_lock_acquire(&hak_registry_lock);
    bool is_first = hak_atomic_load_relaxed(entry) == NULL; /* relaxed: written under the lock only */
    if (is_first) {
        hak_atomic_store_relaxed(entry, leaf); /* relaxed: as above */
    }
    hak_lock_release(&hak_registry_lock);
    if (!is_first) {
        hak_os_drop(reserved, guarded_bytes);
    } else {
        (void)hak_atomic_add_relaxed(&mapped_leaf_bytes, guarded_bytes); /* relaxed: a statistic */
    }
    return 0;
}

int hak_registry_prepare(const void *address, size_t bytes) {
    if (!hak_registry_covers((const char *)address + bytes - 1)) {
        return ENOMEM;
    }
    uintptr_t last = ((uintptr_t)address + bytes - 1) >> HAK_LEAF_SHIFT;
    for (uintptr_t i = (uintptr_t)address >> HAK_LEAF_SHIFT; i <= last; i++) {
        _Atomic(struct hak_leaf *) *entry = &hak_registry.top[i];
        /* relaxed: a leaf is all zeros when it is entered, so nothing goes with the pointer to it */
        if (hak_atomic_load_relaxed(entry) == NULL && !is_settled(entry)) {
            int error = map_leaf(entry);
            if (error != 0) {
                return error;
            }
        }
    }
    return 0;
}

bool hak_registry_is_prepared(const void *address) {
    /* relaxed: as in hak_registry_prepare() */
    return hak_registry_covers(address) &&
           hak_atomic_load_relaxed(&hak_registry.top[(uintptr_t)address >> HAK_LEAF_SHIFT]) != NULL;
}

void hak_registry_store(const void *address, hak_word word) {
    uintptr_t a = (uintptr_t)address;
    /* relaxed: set for good */
    struct hak_leaf *leaf = hak_atomic_load_relaxed(&hak_registry.top[a >> HAK_LEAF_SHIFT]);
    HAK_ASSERT(leaf != NULL);
    uint32_t unit = (uint32_t)a >> HAK_UNIT_SHIFT;
    unsigned class_idx = (uint8_t)word - HAK_FIRST_SLAB_ROW;
    if (class_idx < HAK_CLASS_COUNT) {
        /* relaxed: see hak_registry_abroad() */
        hak_atomic_store_relaxed(&leaf->reciprocals[unit],
                                 hak_reciprocal_upper(hak_registry.reciprocal[class_idx]));
    }
    hak_atomic_store_relaxed(&leaf->words[unit], word); /* relaxed: the same */
}

void hak_registry_fill(const void *address, size_t units, hak_word word) {
    for (size_t i = 0; i < units; i++) {
        hak_registry_store((const char *)address + (i << HAK_UNIT_SHIFT), word);
    }
}

size_t hak_registry_mapped_bytes(void) {
    return hak_atomic_load_relaxed(&mapped_leaf_bytes); /* relaxed: a statistic */
}

void hak_registry_visit_mapped(hak_range_visitor visitor, void *context) {
    for (size_t i = 0; i < HAK_TOP_ENTRIES; i++) {
        /* relaxed: leaves stay once entered */
        struct hak_leaf *leaf = hak_atomic_load_relaxed(&hak_registry.top[i]);
        if (leaf != NULL && leaf != &hak_registry.home && visitor(leaf, sizeof *leaf, context) != 0) {
            return;
        }
    }
}
