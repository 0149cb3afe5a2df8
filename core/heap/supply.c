/*
 * supply.c - see supply.h.
 */
#include "heap/supply.h"
#include "conf/options.h"
#include "heap/sleepers.h"
#include "meta/classes.h"
#include "os/os.h"
#include "slab/guests.h"
#include "slab/orphans.h"
#include "slab/purge.h"
#include "slab/ragged.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"

#define PREFILL_SLABS         3u
#define MISSES_TO_PREFILL     4u     /* misses in a row that make a class one that keeps missing */
#define DRAIN_SLABS_MAX       8u     /* slabs with remote frees taken up in one visit */
#define THIN_START_BYTES_MAX  512u   /* a slab of larger blocks has fewer than most threads come to use */
#define GUESTS_PER_TURN_BYTES 16384u /* of them: pages that a new slab would have cost */
#define ROW_TO_EXPORT                                                                                        \
    8u /* refills in a row, without a spill, that show that others free what is allocated here */

HAK_CONTENDED static _Atomic unsigned exporters[HAK_CLASS_COUNT]; /* heaps in which the class exports */

static void set_exports(struct heap *heap, unsigned class_idx, bool exports) {
    struct class_state *state = &heap->classes[class_idx];
    if (state->exports != exports) {
        state->exports = exports;
        /* relaxed: a number, which decides nothing but where slabs wait */
        (void)hak_atomic_add_relaxed(&exporters[class_idx], exports ? 1u : -1u);
    }
}

bool hak_supply_shares(const struct heap *heap, unsigned class_idx) {
    return heap->classes[class_idx].exports &&
           hak_atomic_load_relaxed(&exporters[class_idx]) > 1; /* relaxed: as above */
}

void hak_supply_note_spill(struct heap *heap, unsigned class_idx) {
    heap->classes[class_idx].refills_alone = 0;
    set_exports(heap, class_idx, false);
}

void hak_supply_forget_exporters(const struct heap *survivor) {
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        unsigned count = survivor != NULL && survivor->classes[c].exports;
        hak_atomic_store_relaxed(&exporters[c], count); /* relaxed: the child has one thread */
    }
}

/* If others freed blocks of this leased slab, and this thread has long freed none, the class exports from now
 * on. */
static void note_foreign_frees(struct heap *heap, unsigned class_idx, const struct slab *slab) {
    if (heap->classes[class_idx].refills_in_row >= ROW_TO_EXPORT && hak_slab_has_foreign_frees(slab)) {
        set_exports(heap, class_idx, true);
    }
}

/* Whether the thread produces only: it sends no blocks of the class home either. */
static bool produces_only(const struct heap *heap, unsigned class_idx) {
    const struct class_state *state = &heap->classes[class_idx];
    return state->exports && state->refills_alone >= ROW_TO_EXPORT;
}

/*
 * Whether this thread's frees of what it takes from the orphan are to stay with it. Where the class exports
 * and most of the slab is in use, a tag of this thread's would send the frees of those who have it home, for
 * somebody else to take and to tag: threads would then mix their blocks more and more. As it is, what is
 * freed under its tag stays with that heap, and by and by the slab is that one's.
 */
static bool is_to_adopt(const struct heap *heap, unsigned class_idx, const struct slab *slab) {
    if (!heap->classes[class_idx].exports) {
        return true;
    }
    return !produces_only(heap, class_idx) && 2 * hak_slab_used_blocks(slab) <= slab->capacity_blocks;
}

/* An orphan of the class, leased; NULL if there is none. */
static struct slab *lease_orphan(struct heap *heap, unsigned class_idx) {
    return hak_orphans_pop(class_idx, heap->id, produces_only(heap, class_idx));
}

/* Hints that have gone stale leave the warm pool: slabs that were retired meanwhile, or that others found. */
static void drop_stale_hints(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    unsigned kept = 0;
    for (unsigned i = 0; i < state->warm_count; i++) {
        struct slab *hint = state->warm[i];
        state->warm[kept] = hint;
        kept += hak_slab_is_warm(hint, class_idx, heap->id);
    }
    state->warm_count = (uint8_t)kept;
}

bool hak_warm_push(struct heap *heap, struct slab *slab) {
    struct class_state *state = &heap->classes[slab->class_idx];
    if (state->warm_count == HAK_WARM_SLABS_MAX) {
        drop_stale_hints(heap, slab->class_idx);
    }
    if (state->warm_count == HAK_WARM_SLABS_MAX) {
        return false;
    }
    state->warm[state->warm_count++] = slab;
    state->is_used = true;
    return true;
}

/* Leased -> in the warm pool of this heap, or among the orphans when that is full or the class exports. */
static void keep_warm(struct heap *heap, struct slab *slab) {
    enum hak_slab_event event;
    if (!heap->classes[slab->class_idx].exports && hak_warm_push(heap, slab)) {
        event = hak_slab_release(slab, 0, HAK_PLACE_WARM, heap->id);
    } else {
        event = hak_orphans_push(slab);
    }
    hak_heap_handle_event(slab, event, heap);
}

/* Takes up slabs with remote frees; returns one of the class, leased, if there was one. */
static struct slab *drain_remote(struct heap *heap, unsigned class_idx) {
    struct slab *found = NULL;
    hak_sleepers_note_awake(heap);
    for (unsigned i = 0; i < DRAIN_SLABS_MAX; i++) {
        struct slab *slab = hak_slab_list_pop(&heap->remote);
        if (slab == NULL) {
            break;
        }
        if (found == NULL && slab->class_idx == class_idx) {
            found = slab;
        } else {
            keep_warm(heap, slab);
        }
    }
    return found;
}

void hak_supply_drain_remote(struct heap *heap) {
    struct slab *slab;
    hak_sleepers_note_awake(heap);
    while ((slab = hak_slab_list_pop(&heap->remote)) != NULL) {
        keep_warm(heap, slab);
    }
}

/* A slab of the class with free blocks, leased, from what this thread knows; NULL if it knows none. */
static struct slab *lease_warm(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    struct slab *slab = state->current;
    state->current = NULL;
    if (slab != NULL && hak_slab_lease_warm(slab, class_idx, heap->id)) {
        return slab;
    }
    slab = drain_remote(heap, class_idx);
    while (slab == NULL && state->warm_count != 0) {
        struct slab *hint = state->warm[--state->warm_count];
        slab = hak_slab_lease_warm(hint, class_idx, heap->id) ? hint : NULL;
    }
    if (slab != NULL) {
        state->misses_in_row = 0;
    }
    return slab;
}

/* Pages that were not in use are about to be: ragged slabs, if some wait, may give theirs. */
static void owe_turn(struct heap *heap) {
    if (hak_ragged_is_waiting()) {
        heap->turns_due += heap->turns_due != UINT8_MAX;
    }
}

/*
 * Units for a slab; NULL when out of memory. A heap's first one of a class has many blocks, of which most
 * threads need few: if it can, it begins with few pages or none, and only those that are used are faulted in.
 */
static struct slab *take_units(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    bool may_be_thin = !state->has_begun && hak_class_block_bytes[class_idx] <= THIN_START_BYTES_MAX &&
                       hak_os_page_bytes() < HAK_UNIT_BYTES;
    struct slab *slab = may_be_thin ? hak_superslab_take_light() : NULL;
    state->has_begun = true;
    return slab != NULL ? slab : hak_superslab_take_units(hak_class_units[class_idx], class_idx);
}

/* A new slab from empty units, leased; NULL when out of memory. */
static struct slab *lease_new(struct heap *heap, unsigned class_idx) {
    struct front_counters *counters = &heap->classes[class_idx].counters;
    uint64_t births = hak_superslab_births();
    uint64_t huge_births = hak_superslab_huge_births();
    struct slab *slab = take_units(heap, class_idx);
    if (slab == NULL) {
        return NULL;
    }
    HAK_COUNT(counters, new_superslabs, hak_superslab_births() != births);
    if (hak_superslab_huge_births() != huge_births) {
        hak_huge_watch_begin(&heap->huge_watch, hak_os_now_ns());
    }
    if (slab->is_zero) {
        owe_turn(heap);
    }
    if (hak_slab_assign(slab, class_idx, heap->id) != 0) {
        hak_superslab_give_units(slab, slab->is_zero);
        return NULL;
    }
    HAK_COUNT(counters, new_slabs, 1);
    return slab;
}

/*
 * An orphan of the class if there is one, else a sparse slab or (if allowed) a new one. Leased; NULL when out
 * of memory.
 */
static struct slab *lease_from_pool(struct heap *heap, unsigned class_idx, bool may_be_new) {
    struct slab *slab = lease_orphan(heap, class_idx);
    if (slab == NULL && may_be_new && hak_sleepers_hand_on(heap)) {
        slab = lease_orphan(heap, class_idx);
    }
    if (slab != NULL) {
        note_foreign_frees(heap, class_idx, slab);
        if (is_to_adopt(heap, class_idx, slab)) {
            hak_slab_adopt(slab, heap->id);
        }
        HAK_COUNT(&heap->classes[class_idx].counters, pool_adoptions, 1);
        return slab;
    }
    return may_be_new ? lease_new(heap, class_idx) : NULL;
}

/* The warm pool is empty: one visit to the shared pool, for more than one slab if the class keeps missing. */
static struct slab *visit_pool(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    HAK_COUNT(&state->counters, warm_misses, 1);
    HAK_COUNT(&state->counters, pool_visits, 1);
    struct slab *slab = lease_from_pool(heap, class_idx, true);
    bool is_one_enough = state->exports || heap->turns_due != 0; /* each new slab gives a turn, see below */
    if (slab == NULL || is_one_enough || ++state->misses_in_row < MISSES_TO_PREFILL) {
        return slab;
    }
    state->misses_in_row = 0;
    /* New ones only where they have no pages yet: dirty units serve whatever class needs one first. */
    bool may_be_new = slab->is_zero && hak_class_units[class_idx] == 1;
    for (unsigned i = 0; i < PREFILL_SLABS; i++) {
        struct slab *extra = lease_from_pool(heap, class_idx, may_be_new);
        if (extra == NULL) {
            break;
        }
        HAK_COUNT(&state->counters, warm_prefills, 1);
        if (!hak_warm_push(heap, extra)) {
            hak_heap_handle_event(extra, hak_orphans_push(extra), heap);
            break;
        }
        hak_slab_release_warm(extra, 0, heap->id);
    }
    return slab;
}

/* Up to `want` blocks in the holes of slabs of other classes (slab/guests.h). */
static unsigned take_guests(struct heap *heap, unsigned class_idx, struct block_ref *refs, unsigned want) {
    if (!hak_atomic_load_relaxed(&hak_thin_matters) || /* relaxed: a hint */
        heap->classes[class_idx].exports || !hak_options.guests || hak_options.randomize ||
        hak_options.check) {
        return 0;
    }
    unsigned got = hak_guests_take(class_idx, heap->id, refs, want, hak_heap_handle_event, heap);
    HAK_COUNT(&heap->classes[class_idx].counters, guests, got);
    size_t bytes = (size_t)got * hak_class_block_bytes[class_idx];
    if (bytes > heap->guest_bytes_left) {
        owe_turn(heap);
        bytes = 0;
        heap->guest_bytes_left = GUESTS_PER_TURN_BYTES;
    }
    heap->guest_bytes_left -= (uint32_t)bytes;
    return got;
}

/* Gives the lease back after blocks were taken out. The slab is current if it has more, unless it is shared.
 */
static void release_taken(struct heap *heap, struct slab *slab, unsigned taken, bool is_exhausted) {
    struct class_state *state = &heap->classes[slab->class_idx];
    enum hak_place place = HAK_PLACE_NOWHERE;
    uint32_t owner = state->exports ? HAK_OWNER_NOBODY : heap->id;
    if (!is_exhausted && !hak_supply_shares(heap, slab->class_idx)) {
        state->current = slab;
        place = HAK_PLACE_WARM;
        owner = heap->id;
    }
    hak_heap_handle_event(slab, hak_slab_release(slab, taken, place, owner), heap);
}

/* At most one step's calls: a debt comes first, and then one of the turns that are due to ragged slabs. */
static void give_back_some(struct heap *heap) {
    if (heap->has_given_back) {
        heap->has_given_back = false; /* once, be it that the operation was an earlier one */
        return;
    }
    if (hak_purge_is_owed()) {
        (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    } else if (heap->turns_due != 0) {
        hak_purge_ragged();
        heap->turns_due = hak_ragged_is_waiting() ? heap->turns_due - 1 : 0;
    }
}

/* One block, as a class that is cold asks for them, of the slab that had the last one; false if it has none
 * at once. */
static bool take_at_hand(struct heap *heap, unsigned class_idx, struct block_ref *ref) {
    struct class_state *state = &heap->classes[class_idx];
    struct slab *slab = state->current;
    if (slab == NULL || state->exports || !hak_slab_lease_warm(slab, class_idx, heap->id)) {
        return false;
    }
    if (HAK_UNLIKELY(!hak_blocks_take_one(slab, ref))) {
        release_taken(heap, slab, 0, false);
        return false;
    }
    HAK_COUNT(&state->counters, warm_hits, 1);
    hak_slab_release_warm(slab, 1, heap->id);
    give_back_some(heap);
    return true;
}

/* What the heap had of a new huge SuperSlab has been written to by now, or has been for a while. */
static HAK_COLD void end_stretch(struct heap *heap) {
    enum hak_huge_speed speed = hak_huge_watch_end_stretch(&heap->huge_watch, hak_os_now_ns());
    if (speed != HAK_HUGE_UNKNOWN) {
        hak_superslab_note_huge(speed);
    }
}

static unsigned take(struct heap *heap, unsigned class_idx, struct block_ref *refs, unsigned want,
                     bool may_be_guests) {
    struct class_state *state = &heap->classes[class_idx];
    unsigned got = 0;
    state->is_used = true;
    if (HAK_UNLIKELY(hak_huge_is_watched(&heap->huge_watch))) {
        end_stretch(heap);
    }
    while (got < want) {
        struct slab *slab = lease_warm(heap, class_idx);
        if (slab != NULL) {
            HAK_COUNT(&state->counters, warm_hits, 1);
            note_foreign_frees(heap, class_idx, slab);
        } else if (got != 0) {
            break; /* a short refill costs less than a new slab */
        } else if (may_be_guests && (got = take_guests(heap, class_idx, refs, want)) != 0) {
            break;
        } else {
            slab = visit_pool(heap, class_idx);
        }
        if (slab == NULL) {
            break;
        }
        unsigned taken = hak_blocks_take(slab, refs + got, want - got);
        got += taken;
        release_taken(heap, slab, taken, got < want);
    }
    give_back_some(heap);
    return got;
}

unsigned hak_supply_take(struct heap *heap, unsigned class_idx, struct block_ref *refs, unsigned want) {
    return take(heap, class_idx, refs, want, false);
}

unsigned hak_supply_take_any(struct heap *heap, unsigned class_idx, struct block_ref *refs, unsigned want) {
    return take(heap, class_idx, refs, want, true);
}

bool hak_supply_take_cold(struct heap *heap, unsigned class_idx, struct block_ref *ref) {
    return take_at_hand(heap, class_idx, ref) || take(heap, class_idx, ref, 1, true) == 1;
}

static void orphan_hint(struct heap *heap, struct slab *slab, unsigned class_idx) {
    if (slab != NULL && hak_slab_lease_warm(slab, class_idx, heap->id)) {
        hak_heap_handle_event(slab, hak_orphans_push(slab), NULL);
    }
}

void hak_supply_flush(struct heap *heap, unsigned class_idx) {
    struct class_state *state = &heap->classes[class_idx];
    struct slab *current = state->current;
    state->current = NULL;
    orphan_hint(heap, current, class_idx);
    while (state->warm_count != 0) {
        orphan_hint(heap, state->warm[--state->warm_count], class_idx);
    }
}
