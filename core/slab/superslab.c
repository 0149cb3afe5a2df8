/*
 * superslab.c - see superslab.h: taking and giving units, mapping new SuperSlabs, the table of records.
 */
#include "slab/superslab.h"
#include "base/assert.h"
#include "conf/options.h"
#include "meta/arena.h"
#include "os/os.h"
#include "slab/chance.h"
#include "slab/purge.h"
#include "slab/ragged.h"
#include "slab/superslab_pool.h"

/*
 * The table of records: chunks of pointers, so that it grows without moving. 16 M SuperSlabs are 32 TiB. The
 * first few have their slots elsewhere, so that a small process touches neither table nor chunk.
 */
#define TABLE_FIRST_SLOTS ((size_t)32)
#define TABLE_CHUNK_SHIFT 12u
#define TABLE_CHUNK_SLOTS ((size_t)1 << TABLE_CHUNK_SHIFT)
#define TABLE_CHUNKS      ((size_t)4096)

/* Randomized, so much address space at most stays unused between two of them, and at least one. */
#define GAP_SUPERSLABS_MAX 16u

typedef _Atomic(struct superslab *) superslab_slot;

HAK_CONTENDED struct hak_lock hak_superslab_lock = HAK_LOCK_INIT(HAK_RANK_SUPERSLAB);

static struct {
    _Atomic size_t record_count; /* written under the lock */
    _Atomic uint64_t births;
    _Atomic uint64_t huge_births;            /* of those, huge pages */
    _Atomic uintptr_t lowest_base;           /* where the next one would fit snugly */
    superslab_slot first[TABLE_FIRST_SLOTS]; /* written under the lock */
} records;
static HAK_TABLE _Atomic(superslab_slot *) record_chunks[TABLE_CHUNKS]; /* written under the lock */

/* The slot of a record's number; NULL when its chunk is missing. */
static superslab_slot *slot_of(size_t index) {
    if (index < TABLE_FIRST_SLOTS) {
        return &records.first[index];
    }
    /* relaxed: written under the lock, published by record_count */
    superslab_slot *chunk = hak_atomic_load_relaxed(&record_chunks[index >> TABLE_CHUNK_SHIFT]);
    return chunk != NULL ? &chunk[index & (TABLE_CHUNK_SLOTS - 1)] : NULL;
}

struct superslab *hak_superslab_at(size_t index) {
    /* acquire: pairs with the release in add_to_table() */
    if (index >= hak_atomic_load_acquire(&records.record_count)) {
        return NULL;
    }
    return hak_atomic_load_relaxed(slot_of(index)); /* relaxed: ordered by it as well */
}

/* Enters a record for good. False when the table is full or there is no memory for a chunk. */
static bool add_to_table(struct superslab *s) {
    superslab_slot *spare_chunk = NULL;
    for (;;) {
        hak_lock_acquire(&hak_superslab_lock);
        size_t count = hak_atomic_load_relaxed(&records.record_count); /* relaxed: written under the lock */
        size_t chunk_idx = count >> TABLE_CHUNK_SHIFT;
        bool is_full = chunk_idx >= TABLE_CHUNKS;
        superslab_slot *slot = is_full ? NULL : slot_of(count);
        if (slot == NULL && !is_full && spare_chunk != NULL) {
            /* relaxed: published by record_count */
            hak_atomic_store_relaxed(&record_chunks[chunk_idx], spare_chunk);
            spare_chunk = NULL;
            slot = slot_of(count);
        }
        if (slot != NULL) {
            hak_atomic_store_relaxed(slot, s); /* relaxed: published by record_count */
            hak_atomic_store_release(&records.record_count,
                                     count + 1); /* pairs with the load in hak_superslab_at() */
        }
        hak_lock_release(&hak_superslab_lock);
        if (slot != NULL || is_full) {
            if (spare_chunk != NULL) {
                hak_meta_free(spare_chunk, TABLE_CHUNK_SLOTS * sizeof(superslab_slot));
            }
            return slot != NULL;
        }
        spare_chunk = hak_meta_alloc(TABLE_CHUNK_SLOTS * sizeof(superslab_slot));
        if (spare_chunk == NULL) {
            return false;
        }
    }
}

/* A record without memory: a spare one or a new one. */
static struct superslab *obtain_record(void) {
    hak_lock_acquire(&hak_superslab_lock);
    struct superslab *s = hak_superslab_pop_spare();
    hak_lock_release(&hak_superslab_lock);
    if (s != NULL) {
        return s;
    }
    s = hak_meta_alloc(sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->tier = HAK_TIER_NONE;
    for (unsigned i = 0; i < HAK_UNITS_PER_SUPERSLAB; i++) {
        s->slabs[i].unit_idx = (uint8_t)i;
    }
    if (!add_to_table(s)) {
        hak_meta_free(s, sizeof *s);
        return NULL;
    }
    return s;
}

static void prefault(void *memory) {
    if (hak_options.ss_prefault == HAK_PREFAULT_POPULATE &&
        hak_os_populate(memory, HAK_SUPERSLAB_BYTES) == 0) {
        return;
    }
    /* An old kernel cannot populate; touching does the same more slowly. */
    for (size_t offset = 0; offset < HAK_SUPERSLAB_BYTES; offset += hak_os_page_bytes()) {
        /* relaxed: nobody else knows this memory yet; atomic only so that the store stays */
        hak_atomic_store_relaxed((_Atomic char *)memory + offset, 0);
    }
}

/* Maps 2 MiB, next to the last ones if it can be: neighbours share one mapping in the kernel. Randomized:
 * with a gap. */
static uintptr_t map_memory(bool is_huge) {
    void *memory;
    uintptr_t hint = hak_atomic_load_relaxed(&records.lowest_base); /* relaxed: a hint */
    size_t below_bytes =
        HAK_SUPERSLAB_BYTES * (hak_options.randomize ? 2 + hak_chance_below(GAP_SUPERSLABS_MAX) : 1);
    hint = hint > below_bytes ? hint - below_bytes : 0;
    if (hak_os_map_aligned((void *)hint, HAK_SUPERSLAB_BYTES, HAK_SUPERSLAB_BYTES, &memory) != 0) {
        return 0;
    }
    if (hak_registry_prepare(memory, HAK_SUPERSLAB_BYTES) != 0) {
        hak_os_drop(memory, HAK_SUPERSLAB_BYTES);
        return 0;
    }
    hak_atomic_store_relaxed(&records.lowest_base, (uintptr_t)memory); /* relaxed: a hint */
    /* Whatever the system's default is: where it is "always", what was purged would come back by itself. */
    (void)hak_os_advise_huge(memory, HAK_SUPERSLAB_BYTES, is_huge);
    if (hak_options.ss_prefault != HAK_PREFAULT_OFF) {
        prefault(memory);
    }
    return (uintptr_t)memory;
}

/* A record with fresh memory, in no list yet; a huge page only if it may be one. NULL when out of memory. */
static struct superslab *map_superslab(bool may_be_huge, uintptr_t *base) {
    struct superslab *s = obtain_record();
    if (s == NULL) {
        return NULL;
    }
    hak_lock_acquire(&hak_superslab_lock);
    bool is_huge = may_be_huge && hak_superslab_may_be_huge();
    s->is_huge = is_huge;
    s->is_prefaulted = hak_options.ss_prefault != HAK_PREFAULT_OFF;
    hak_lock_release(&hak_superslab_lock);
    *base = map_memory(is_huge);
    if (*base == 0) {
        hak_lock_acquire(&hak_superslab_lock);
        hak_superslab_push_spare(s);
        hak_lock_release(&hak_superslab_lock);
        return NULL;
    }
    (void)hak_atomic_add_relaxed(&records.births, 1); /* relaxed: a statistic */
    if (is_huge) {
        (void)hak_atomic_add_relaxed(&records.huge_births, 1); /* relaxed: a statistic */
    }
    return s;
}

/* Under the lock. These free units, of which some are known to have no pages, are handed out: had less been
 * purged lately, they could have had more. */
static void note_missed(const struct superslab *s, uint32_t units, uint32_t zero_units) {
    struct retention *retention = &hak_superslab_pool.retention;
    if (!hak_retention_is_in_cycle(retention)) {
        return;
    }
    uint32_t light_units = units & hak_superslab_dirty(s) & s->light_units;
    size_t missed_bytes = hak_popcount32(zero_units) * HAK_UNIT_BYTES +
                          hak_popcount32(light_units) * (HAK_UNIT_BYTES - HAK_LIGHT_BYTES);
    if (missed_bytes != 0) {
        hak_retention_note_missed(retention, missed_bytes, hak_os_now_ms());
    }
}

/* Whether only what is touched of its zero units gets pages, and these are small beside a unit. */
static bool fills_page_by_page(const struct superslab *s) {
    return !s->is_huge && hak_options.ss_prefault == HAK_PREFAULT_OFF &&
           hak_os_page_bytes() <= HAK_LIGHT_BYTES;
}

/* Under the lock: the run of units becomes that record's. */
static struct slab *take_run(struct superslab *s, unsigned unit_idx, unsigned units, bool is_long) {
    struct slab *slab = &s->slabs[unit_idx];
    slab->units = (uint8_t)units;
    slab->base = s->base + unit_idx * HAK_UNIT_BYTES;
    uint32_t span = hak_superslab_span(slab);
    slab->is_zero = (s->zero_units & span) == span;
    s->light_units |= fills_page_by_page(s) ? s->zero_units & span : 0;
    hak_superslab_change(s, (struct hak_unit_change){.taken = span, .is_long = is_long});
    return slab;
}

/* Under the lock: the record of the run's first unit, or NULL. */
static struct slab *take_locked(unsigned units, unsigned class_idx) {
    unsigned unit_idx;
    struct superslab *s = hak_superslab_choose(units, class_idx, &unit_idx);
    if (s == NULL) {
        return NULL;
    }
    uint32_t span = hak_mask32(units) << unit_idx;
    note_missed(s, span, s->zero_units & span);
    return take_run(s, unit_idx, units, hak_class_exceeds_page(class_idx));
}

/* Under the lock: other threads mapped memory or gave units back meanwhile, so nothing is wanted of this one.
 * It is an empty one then, that goes back if it stays so. */
static void note_surplus(struct superslab *fresh) {
    fresh->emptied_ms = hak_os_now_ms();
    hak_superslab_change(fresh, (struct hak_unit_change){0});
    hak_superslab_note_owed();
}

struct slab *hak_superslab_take_units(unsigned units, unsigned class_idx) {
    struct superslab *fresh = NULL;
    uintptr_t base = 0;
    for (;;) {
        hak_lock_acquire(&hak_superslab_lock);
        if (fresh != NULL) {
            hak_superslab_none_to_hot(fresh, base);
        }
        struct slab *slab = take_locked(units, class_idx);
        if (fresh != NULL && slab != NULL && hak_superslab_of(slab) != fresh) {
            note_surplus(fresh);
        }
        hak_lock_release(&hak_superslab_lock);
        if (slab != NULL) {
            return slab;
        }
        fresh = map_superslab(hak_superslab_takes_huge(class_idx), &base);
        if (fresh == NULL) {
            return NULL;
        }
    }
}

struct slab *hak_superslab_take_light(void) {
    unsigned unit_idx;
    hak_lock_acquire(&hak_superslab_lock);
    struct superslab *s = hak_superslab_choose_light(&unit_idx);
    struct slab *slab = s != NULL ? take_run(s, unit_idx, 1, false) : NULL;
    hak_lock_release(&hak_superslab_lock);
    return slab;
}

void hak_superslab_give_units(struct slab *slab, bool is_zero) {
    struct superslab *s = hak_superslab_of(slab);
    struct hak_unit_change change = {0};
    hak_lock_acquire(&hak_superslab_lock);
    hak_ragged_forget(s, slab);
    *(is_zero && !hak_superslab_lies_on_filled(slab) ? &change.freed_zero : &change.freed_dirty) =
        hak_superslab_span(slab);
    if (hak_superslab_carved_bytes(slab) > HAK_LIGHT_BYTES) {
        s->light_units &= ~hak_superslab_span(slab);
    }
    hak_superslab_change(s, change);
    if (s->tier == HAK_TIER_FREE) {
        s->emptied_ms = hak_os_now_ms();
    }
    hak_superslab_note_given();
    hak_lock_release(&hak_superslab_lock);
}

struct superslab *hak_superslab_take_whole(uint32_t *zero_units) {
    uintptr_t base;
    hak_lock_acquire(&hak_superslab_lock);
    struct superslab *s = hak_superslab_pool.lru_newest;
    if (s == NULL) {
        hak_lock_release(&hak_superslab_lock);
        s = map_superslab(false, &base);
        if (s == NULL) {
            return NULL;
        }
        hak_lock_acquire(&hak_superslab_lock);
        hak_superslab_none_to_hot(s, base);
    }
    *zero_units = s->is_huge ? 0 : s->zero_units; /* a huge page has memory where nobody wrote to it */
    hak_retention_note_piece(&hak_superslab_pool.retention, HAK_SUPERSLAB_BYTES);
    note_missed(s, s->free_units, *zero_units);
    hak_superslab_free_to_whole(s);
    hak_lock_release(&hak_superslab_lock);
    (void)hak_superslab_split(s);
    return s;
}

unsigned hak_superslab_split(struct superslab *s) {
    if (hak_options.thp == HAK_THP_NEVER) {
        return 0;
    }
    hak_lock_acquire(&hak_superslab_lock);
    bool was_huge = hak_superslab_clear_huge(s);
    hak_lock_release(&hak_superslab_lock);
    if (was_huge) {
        (void)hak_os_advise_huge((void *)s->base, HAK_SUPERSLAB_BYTES, false);
    }
    return was_huge;
}

void hak_superslab_end_prefault(void) {
    struct superslab *s;
    if (hak_options.ss_prefault == HAK_PREFAULT_OFF) {
        return;
    }
    for (size_t i = 0; (s = hak_superslab_at(i)) != NULL; i++) {
        hak_lock_acquire(&hak_superslab_lock);
        hak_superslab_clear_prefaulted(s);
        hak_lock_release(&hak_superslab_lock);
    }
}

bool hak_superslab_is_filled(const struct slab *slab) {
    hak_lock_acquire(&hak_superslab_lock);
    bool is_filled = hak_superslab_lies_on_filled(slab);
    hak_lock_release(&hak_superslab_lock);
    return is_filled;
}

unsigned hak_superslab_give_whole(struct superslab *s, uint32_t zero_units, unsigned calls_max) {
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_superslab_lock);
    s->emptied_ms = now_ms;
    hak_superslab_whole_to_free(s, zero_units);
    hak_superslab_note_owed(); /* there may be no call left to pay it with now */
    hak_lock_release(&hak_superslab_lock);
    return hak_purge_step(calls_max);
}

struct hak_superslab_counts hak_superslab_count(void) {
    struct superslab_pool *pool = &hak_superslab_pool;
    hak_lock_acquire(&hak_superslab_lock);
    struct hak_superslab_counts counts = {
        .mapped = pool->mapped_count,
        .empty = pool->empty_count,
        .whole = pool->whole_count,
        .free_units = pool->free_units,
        .dirty_units = pool->dirty_units,
        .thin_bytes = pool->thin_bytes,
    };
    hak_lock_release(&hak_superslab_lock);
    return counts;
}

void hak_superslab_visit_mapped(hak_range_visitor visitor, void *context) {
    struct superslab *s;
    for (size_t i = 0; (s = hak_superslab_at(i)) != NULL; i++) {
        hak_lock_acquire(&hak_superslab_lock);
        uintptr_t base = s->tier <= HAK_TIER_FREE ? s->base : 0;
        hak_lock_release(&hak_superslab_lock);
        if (base != 0 && visitor((void *)base, HAK_SUPERSLAB_BYTES, context) != 0) {
            return;
        }
    }
}

bool hak_superslab_covers(const void *pointer) {
    uintptr_t base = hak_round_down((uintptr_t)pointer, HAK_SUPERSLAB_BYTES);
    struct superslab *s;
    bool is_found = false;
    hak_lock_acquire(&hak_superslab_lock);
    for (size_t i = 0; !is_found && (s = hak_superslab_at(i)) != NULL; i++) {
        is_found = s->tier != HAK_TIER_NONE && s->base == base;
    }
    hak_lock_release(&hak_superslab_lock);
    return is_found;
}

bool hak_superslab_has_dirty(void) {
    hak_lock_acquire(&hak_superslab_lock);
    bool has_dirty = hak_superslab_pool.dirty_units != 0;
    hak_lock_release(&hak_superslab_lock);
    return has_dirty;
}

uint64_t hak_superslab_births(void) {
    return hak_atomic_load_relaxed(&records.births); /* relaxed: a statistic */
}

uint64_t hak_superslab_huge_births(void) {
    return hak_atomic_load_relaxed(&records.huge_births); /* relaxed: a statistic */
}

void hak_superslab_note_huge(enum hak_huge_speed speed) {
    hak_lock_acquire(&hak_superslab_lock);
    hak_huge_pace_note(&hak_superslab_pool.huge_pace, speed);
    hak_lock_release(&hak_superslab_lock);
}
