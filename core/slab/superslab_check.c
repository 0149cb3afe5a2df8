/*
 * superslab_check.c - what the masks and counts of SuperSlabs ought to be: put right in the child of a fork,
 * and verified. See superslab.h.
 */
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "slab/superslab_pool.h"

/* The spans of assigned slabs. */
static uint32_t assigned_units(struct superslab *s) {
    uint32_t mask = 0;
    for (unsigned i = 0; i < HAK_UNITS_PER_SUPERSLAB; i++) {
        uint64_t word = hak_atomic_load_relaxed(&s->slabs[i].word); /* relaxed: quiet heap, or a hint */
        if (hak_slab_word_is_assigned(word)) {
            mask |= hak_superslab_span(&s->slabs[i]);
        }
    }
    return mask;
}

/* Whoever had these units was about to bring or to give back their header maps, as may be. */
static void forget_maps(struct superslab *s, uint32_t units) {
    for (uint32_t left = units; left != 0; left &= left - 1) {
        s->slabs[hak_ctz32(left)].map = NULL;
    }
}

void hak_superslab_rebuild(void) {
    struct superslab *s;
    hak_lock_acquire(&hak_superslab_lock);
    hak_superslab_forget_thin();
    for (size_t i = 0; (s = hak_superslab_at(i)) != NULL; i++) {
        if (s->tier != HAK_TIER_HOT && s->tier != HAK_TIER_DRAINING) {
            continue;
        }
        uint32_t purging = s->purging_units;
        hak_superslab_change(s, (struct hak_unit_change){.purge_failed = purging});
        uint32_t lost = ~(s->free_units | assigned_units(s));
        forget_maps(s, purging | lost);
        if (lost != 0) {
            hak_superslab_change(s, (struct hak_unit_change){.freed_dirty = lost});
        }
    }
    hak_lock_release(&hak_superslab_lock);
}

const char hak_superslab_units_are_lost[] = "SuperSlab: units that nobody has";

static const char *broken_invariant(struct superslab *s) {
    if ((s->zero_units & ~s->free_units) != 0) {
        return "SuperSlab: zero units that are not free";
    }
    if ((s->free_units & s->purging_units) != 0) {
        return "SuperSlab: units both free and being purged";
    }
    if ((assigned_units(s) & (s->free_units | s->purging_units)) != 0) {
        return "SuperSlab: units of a slab marked free";
    }
    if ((s->free_units & (s->thin_slabs | s->ragged_slabs)) != 0) {
        return "SuperSlab: a thin or ragged slab whose units are free";
    }
    if ((s->long_units & (s->free_units | s->purging_units)) != 0) {
        return "SuperSlab: units of long blocks that no slab has";
    }
    if ((s->filled_units & s->free_units) != 0) {
        return "SuperSlab: filled units that are free";
    }
    if (s->tier == HAK_TIER_FREE && s->free_units != UINT32_MAX) {
        return "SuperSlab: in the LRU but not empty";
    }
    return NULL;
}

static bool has_lost_units(struct superslab *s) {
    return (s->free_units | s->purging_units | assigned_units(s)) != UINT32_MAX;
}

/* Adds a SuperSlab to counts that are to come out as the pool's. */
static void add_counts(struct superslab_pool *sums, const struct superslab *s) {
    sums->mapped_count += s->tier != HAK_TIER_NONE;
    sums->whole_count += s->tier == HAK_TIER_WHOLE;
    sums->empty_count += s->tier == HAK_TIER_FREE;
    if (s->tier <= HAK_TIER_FREE) {
        sums->free_units += hak_popcount32(s->free_units);
        sums->dirty_units += hak_popcount32(hak_superslab_dirty(s));
        sums->light_units += hak_popcount32(hak_superslab_dirty(s) & s->light_units);
        sums->long_units += hak_popcount32(s->long_units);
        sums->huge_zero_units += s->is_huge ? hak_popcount32(s->zero_units) : 0;
        sums->ragged.waiting += hak_popcount32(s->ragged_slabs);
        for (unsigned i = 0; i < HAK_UNITS_PER_SUPERSLAB; i++) {
            size_t gone_bytes = s->slabs[i].purged_pages * hak_os_page_bytes();
            sums->purged_bytes += gone_bytes;
            sums->thin_bytes +=
                (s->thin_slabs >> i & 1) != 0 ? hak_superslab_touched_bytes(&s->slabs[i]) - gone_bytes : 0;
        }
    }
}

static bool are_same_counts(const struct superslab_pool *sums, const struct superslab_pool *pool) {
    return sums->mapped_count == pool->mapped_count && sums->whole_count == pool->whole_count &&
           sums->empty_count == pool->empty_count && sums->free_units == pool->free_units &&
           sums->dirty_units == pool->dirty_units && sums->light_units == pool->light_units &&
           sums->long_units == pool->long_units && sums->huge_zero_units == pool->huge_zero_units &&
           sums->ragged.waiting == pool->ragged.waiting && sums->purged_bytes == pool->purged_bytes &&
           sums->thin_bytes == pool->thin_bytes;
}

bool hak_superslab_verify(const char **why) {
    struct superslab *s;
    const char *broken = NULL;
    struct superslab_pool sums = {0};
    bool is_any_lost = false;
    hak_lock_acquire(&hak_superslab_lock);
    for (size_t i = 0; broken == NULL && (s = hak_superslab_at(i)) != NULL; i++) {
        if (s->tier <= HAK_TIER_FREE) {
            broken = broken_invariant(s);
            is_any_lost |= has_lost_units(s);
        }
        add_counts(&sums, s);
    }
    if (broken == NULL && !are_same_counts(&sums, &hak_superslab_pool)) {
        broken = "shared pool: its counts are not those of its SuperSlabs";
    }
    if (broken == NULL && is_any_lost) {
        broken = hak_superslab_units_are_lost;
    }
    hak_lock_release(&hak_superslab_lock);
    *why = broken;
    return broken == NULL;
}
