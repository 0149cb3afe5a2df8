/*
 * slab.c - the life of a slab: assigned, leased and released, counted free, retired. See slab.h.
 *
 * While others may change it the word is changed by compare-and-swap alone, so that a state and the count it
 * was decided on change together: a free that finds the slab NOWHERE and worth listing takes the lease in the
 * same step in which it counts, and a holder that marks it NOWHERE does so only if no free was counted since
 * it looked. No wake-up is lost.
 */
#include "slab/slab.h"
#include "base/assert.h"
#include "meta/classes.h"
#include "slab/ragged.h"
#include "slab/slab_list.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "slab/thin.h"
#include <errno.h>

_Alignas(HAK_CACHE_LINE_BYTES) _Atomic size_t hak_slab_begun_units;

static void store_registry_words(const struct slab *slab, uint32_t owner) {
    for (unsigned unit = 0; unit < slab->units; unit++) {
        hak_word word = hak_word_for_slab(slab->class_idx, unit, (const void *)slab->map, owner);
        hak_registry_store((void *)(slab->base + unit * HAK_UNIT_BYTES), word);
    }
}

static void store_freed_words(const struct slab *slab) {
    for (unsigned unit = 0; unit < slab->units; unit++) {
        uint64_t number = hak_freed_number(unit, hak_class_block_bytes[slab->class_idx]);
        hak_word word = hak_word_for_number(HAK_KIND_SLAB_FREED, number);
        hak_registry_store((void *)(slab->base + unit * HAK_UNIT_BYTES), word);
    }
}

void hak_slab_drop_map(struct slab *slab) {
    _Atomic uint8_t *map = slab->map;
    if (map != NULL) {
        slab->map = NULL;
        hak_map_free(map, slab->capacity_blocks);
    }
}

/* All NEVER: the one that stayed, if it is as long; NULL when out of memory. */
static _Atomic uint8_t *obtain_map(struct slab *slab, unsigned capacity) {
    if (slab->map != NULL && hak_map_is_as_long(capacity, slab->capacity_blocks)) {
        hak_map_clear(slab->map, capacity);
        return slab->map;
    }
    hak_slab_drop_map(slab);
    return hak_map_alloc(capacity, slab);
}

int hak_slab_assign(struct slab *slab, unsigned class_idx, uint32_t owner) {
    unsigned capacity = hak_class_capacity(class_idx);
    HAK_ASSERT(slab->units == hak_class_units[class_idx]);
    _Atomic uint8_t *map = obtain_map(slab, capacity);
    if (map == NULL) {
        return ENOMEM;
    }
    slab->map = map;
    slab->class_idx = (uint8_t)class_idx;
    slab->capacity_blocks = (uint16_t)capacity;
    hak_ragged_reset(slab);
    slab->carved_blocks = 0;
    slab->sweep_cursor = 0;
    (void)hak_atomic_add_relaxed(&hak_slab_begun_units,
                                 hak_slab_begun_share(slab)); /* relaxed: a statistic */
    HAK_ASSERT(slab->purged_mask == 0 && slab->purged_pages == 0);
    store_registry_words(slab, owner);
    /* relaxed: leased from the start; giving the lease back publishes what stands above */
    hak_atomic_store_relaxed(&slab->word, hak_slab_word_initial(class_idx, owner, capacity));
    return 0;
}

void hak_slab_adopt(const struct slab *slab, uint32_t owner) {
    if (!hak_word_has_tag_of(hak_registry_word((const void *)slab->base), hak_word_low_of_heap(owner))) {
        store_registry_words(slab, owner);
    }
}

bool hak_slab_lease_warm(struct slab *slab, unsigned class_idx, uint32_t owner) {
    uint64_t word = hak_atomic_load_relaxed(&slab->word); /* relaxed: the swap decides */
    for (;;) {
        if (!hak_slab_word_is_warm(word, class_idx, owner)) {
            return false;
        }
        /* The hint is used up either way: a holder that finds NOWHERE at its release lists the slab anew. */
        uint64_t leased = hak_slab_word_with_place(word, HAK_PLACE_NOWHERE) | HAK_LEASED;
        /* acquire: pairs with the swaps in hak_slab_release(), hak_slab_release_any() and
         * hak_slab_count_free() */
        if (hak_atomic_cas_weak_acquire(&slab->word, &word, leased)) {
            return !hak_slab_word_is_leased(word);
        }
    }
}

bool hak_slab_is_warm(const struct slab *slab, unsigned class_idx, uint32_t owner) {
    /* relaxed: a hint, the lease decides */
    return hak_slab_word_is_warm(hak_atomic_load_relaxed(&slab->word), class_idx, owner);
}

bool hak_slab_lease_any(struct slab *slab) {
    uint64_t word = hak_atomic_load_relaxed(&slab->word); /* relaxed: the swap decides */
    for (;;) {
        if (!hak_slab_word_is_assigned(word) || hak_slab_word_is_leased(word)) {
            return false;
        }
        /* acquire: pairs with the swaps in hak_slab_release(), hak_slab_release_warm() and
         * hak_slab_count_free() */
        if (hak_atomic_cas_weak_acquire(&slab->word, &word, word | HAK_LEASED)) {
            return true;
        }
    }
}

/* What is due where nothing else is: pages may be free, though the slab is not. */
static enum hak_slab_event event_of_pages(const struct slab *slab, uint64_t word) {
    unsigned used_blocks = (unsigned)(slab->capacity_blocks - hak_slab_word_count(word));
    if (HAK_UNLIKELY(hak_thin_begins(slab, used_blocks)) && !hak_slab_word_is_thin(word)) {
        return HAK_EVENT_THIN;
    }
    return HAK_UNLIKELY(hak_ragged_begins(slab, used_blocks)) ? HAK_EVENT_RAGGED : HAK_EVENT_NONE;
}

enum hak_slab_event hak_slab_unlisted_event(const struct slab *slab, uint64_t word) {
    if (hak_slab_word_count(word) == (int)slab->capacity_blocks) {
        return HAK_EVENT_RETIRE;
    }
    return HAK_UNLIKELY((word & HAK_PAGES_DUE) != 0) ? event_of_pages(slab, word) : HAK_EVENT_NONE;
}

/* What is due for a slab that would have that word without its lease: who has the lease then keeps it. */
static enum hak_slab_event event_of(const struct slab *slab, uint64_t word) {
    enum hak_slab_event event = hak_slab_unlisted_event(slab, word);
    bool is_lost = hak_slab_word_place(word) == HAK_PLACE_NOWHERE &&
                   hak_slab_word_count(word) >= (int)hak_slab_relist_blocks(slab);
    return event == HAK_EVENT_NONE && is_lost ? HAK_EVENT_LIST : event;
}

static uint64_t without_lease_if_none(uint64_t word, enum hak_slab_event event) {
    return event == HAK_EVENT_NONE ? word & ~(HAK_LEASED | HAK_PAGES_DUE) : word;
}

enum hak_slab_event hak_slab_release(struct slab *slab, unsigned taken_blocks, enum hak_place place,
                                     uint32_t owner) {
    uint64_t word = hak_atomic_load_relaxed(&slab->word); /* relaxed: the swap decides */
    for (;;) {
        HAK_ASSERT(hak_slab_word_is_leased(word) && hak_slab_word_is_assigned(word));
        uint64_t next =
            hak_slab_word_with_owner(hak_slab_word_with_place(word - taken_blocks, place), owner) &
            ~HAK_FOREIGN_FREES;
        enum hak_slab_event event = event_of(slab, next);
        next = without_lease_if_none(next, event);
        /* acq_rel: pairs with the swaps that take the lease, and with the count in hak_slab_count_free() */
        if (hak_atomic_cas_weak_acq_rel(&slab->word, &word, next)) {
            return event;
        }
    }
}

void hak_slab_release_warm(struct slab *slab, unsigned taken_blocks, uint32_t owner) {
    uint64_t word = hak_atomic_load_relaxed(&slab->word); /* relaxed: the swap decides */
    uint64_t next;
    do {
        HAK_ASSERT(hak_slab_word_is_leased(word) && hak_slab_word_is_assigned(word));
        uint64_t warm = hak_slab_word_with_place(word - taken_blocks, HAK_PLACE_WARM);
        next = hak_slab_word_with_owner(warm, owner) & ~(HAK_LEASED | HAK_FOREIGN_FREES);
        /* release: pairs with the swaps that take the lease in hak_slab_lease_any() and
         * hak_slab_count_free() */
    } while (!hak_atomic_cas_weak_release(&slab->word, &word, next));
}

enum hak_slab_event hak_slab_release_any(struct slab *slab, unsigned taken_blocks) {
    for (;;) {
        /* acquire: pairs with the swap in hak_slab_count_free(): what is retired here others are through with
         */
        uint64_t word = hak_atomic_load_acquire(&slab->word);
        HAK_ASSERT(hak_slab_word_is_leased(word) && hak_slab_word_is_assigned(word));
        enum hak_slab_event event = event_of(slab, word - taken_blocks);
        uint64_t next = without_lease_if_none(word - taken_blocks, event);
        /* release: pairs with the swaps that take the lease in hak_slab_lease_warm() and
         * hak_slab_count_free() */
        if (next == word /* the lease is kept, nothing was taken */ ||
            hak_atomic_cas_weak_release(&slab->word, &word, next)) {
            return event;
        }
    }
}

/* Nobody's slabs are freed to by whoever had them, too. */
static bool is_foreign(uint64_t word, uint32_t freer) {
    uint32_t owner = hak_slab_word_owner(word);
    return owner != freer && owner != HAK_OWNER_NOBODY;
}

enum hak_slab_event hak_slab_count_free(struct slab *slab, unsigned blocks, uint32_t freer) {
    /* relaxed: the capacity cannot change while frees of ours are uncounted; the swap orders
     * the rest */
    uint64_t word = hak_atomic_load_relaxed(&slab->word);
    for (;;) {
        uint64_t next = (word + blocks) | (is_foreign(word, freer) ? HAK_FOREIGN_FREES : 0);
        enum hak_slab_event event = HAK_EVENT_NONE;
        HAK_ASSERT(hak_slab_word_is_assigned(word) &&
                   hak_slab_word_count(next) <= (int)slab->capacity_blocks);
        if (!hak_slab_word_is_leased(word)) {
            event = event_of(slab, next);
            if (event == HAK_EVENT_NONE) {
                event = event_of_pages(slab, next);
            }
            next |= event != HAK_EVENT_NONE ? HAK_LEASED : 0;
        } else if (event_of_pages(slab, next) != HAK_EVENT_NONE) {
            next |= HAK_PAGES_DUE;
        }
        /* acq_rel: pairs with the swaps in hak_slab_release(), hak_slab_lease_warm() and
         * hak_slab_lease_any(): the next holder of the lease sees our FREE bytes, and we, if we become it,
         * see everybody's */
        if (hak_atomic_cas_weak_acq_rel(&slab->word, &word, next)) {
            return event;
        }
    }
}

bool hak_slab_has_foreign_frees(const struct slab *slab) {
    /* relaxed: a hint */
    return (hak_atomic_load_relaxed(&slab->word) & HAK_FOREIGN_FREES) != 0;
}

uint32_t hak_slab_owner(const struct slab *slab) {
    /* relaxed: the owner changes only under the lease, which the caller holds */
    return hak_slab_word_owner(hak_atomic_load_relaxed(&slab->word));
}

void hak_slab_retire(struct slab *slab) {
    bool is_zero = slab->is_zero && slab->carved_blocks == 0;
    hak_slab_list_unlink(slab);
    if (slab->carved_blocks < slab->capacity_blocks) {
        (void)hak_atomic_add_relaxed(&hak_slab_begun_units,
                                     -hak_slab_begun_share(slab)); /* relaxed: a statistic */
    }
    if (hak_thin_is_known(slab)) {
        hak_thin_leave(slab);
    }
    store_freed_words(slab);
    /* relaxed: who sees it turns away; map and units travel under the locks below */
    hak_atomic_store_relaxed(&slab->word, HAK_WORD_UNASSIGNED);
    if (is_zero || !hak_map_is_short(slab->capacity_blocks)) {
        hak_slab_drop_map(slab);
    }
    hak_superslab_give_units(slab, is_zero);
}
