/*
 * placement.c - which free units a slab gets: of the fullest SuperSlab that can serve, and of its units those
 * that have pages. Buckets by number of free units give it in a few steps. Everything under the SuperSlab
 * lock; declared in superslab_pool.h.
 *
 * A huge SuperSlab has all its memory from its first byte on. HAKMEM_THP=auto counts on what is unused of it
 * being used soon, so that part is for slabs whose every OS page has the start of a block. Others, of which
 * much may never be touched, get units of it that held data before. They pass over few SuperSlabs for that: a
 * huge one is mapped only when no other has a unit left for those whose it is.
 */
#include "base/bits.h"
#include "conf/options.h"
#include "slab/chance.h"
#include "slab/superslab_pool.h"

/* SuperSlabs that are looked at for a unit with few pages or none, for units that have theirs, and of the
 * empty ones. */
#define LIGHT_LOOKS_MAX 16u
#define KEPT_LOOKS_MAX  8u
#define EMPTY_LOOKS_MAX 8u

bool hak_superslab_takes_huge(unsigned class_idx) {
    return hak_options.thp != HAK_THP_AUTO || !hak_class_exceeds_page(class_idx);
}

/* Where `units` free units in a row start that the class may have: dirty ones first, they are in memory
 * already. 0 if there are none. */
static uint32_t run_starts(const struct superslab *s, unsigned units, unsigned class_idx) {
    uint32_t dirty_starts = hak_runs_of(hak_superslab_dirty(s), units);
    if (dirty_starts != 0 || (s->is_huge && !hak_superslab_takes_huge(class_idx))) {
        return dirty_starts;
    }
    return hak_runs_of(s->free_units, units);
}

/*
 * One of the possible starts: where a slab of the class lay last, because its blocks then lie on the cache
 * lines that they lay on before, else the lowest. Any of them if that is to be left to chance.
 */
static unsigned choose_start(const struct superslab *s, uint32_t starts, unsigned class_idx) {
    if (hak_options.randomize) {
        return hak_chance_bit(starts);
    }
    for (uint32_t left = starts & ~s->zero_units; left != 0; left &= left - 1) {
        if (s->slabs[hak_ctz32(left)].class_idx == class_idx) {
            return hak_ctz32(left);
        }
    }
    return hak_ctz32(starts);
}

/* The fullest SuperSlab of a tier that has `units` free units in a row. */
static struct superslab *choose_in_tier(enum hak_tier tier, unsigned units, unsigned class_idx,
                                        unsigned *unit_idx) {
    for (unsigned free = units; free <= HAK_UNITS_PER_SUPERSLAB; free++) {
        struct superslab *found = NULL;
        for (struct superslab *s = hak_superslab_pool.buckets[tier][free]; s != NULL; s = s->next) {
            uint32_t starts = run_starts(s, units, class_idx);
            if (starts == 0) {
                continue;
            }
            found = s;
            *unit_idx = choose_start(s, starts, class_idx);
            if (!hak_options.randomize || hak_chance_below(2) != 0) {
                return found;
            }
        }
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

/* Whether units of the one are to be handed out before those of the other. */
static bool comes_before(const struct superslab *s, const struct superslab *other) {
    return s->tier != other->tier ? s->tier < other->tier : s->free_count < other->free_count;
}

/*
 * Of the SuperSlabs that have had something to purge for the shortest time, the first to hand out from that
 * has `units` dirty units in a row, if the floor has risen: what is kept for a proved cycle is wanted then,
 * wherever it lies. Else they serve where they fit best, and more of what slabs never use has no pages. NULL
 * if there is none.
 */
static struct superslab *choose_kept(unsigned units, unsigned class_idx, unsigned *unit_idx) {
    const struct superslab_pool *pool = &hak_superslab_pool;
    struct superslab *found = NULL;
    uint32_t found_starts = 0;
    if (pool->retention.raised_bytes == 0 || pool->dirty_units < units || hak_options.randomize) {
        return NULL;
    }
    struct superslab *s = pool->dirty.newest;
    for (unsigned looked = 0; s != NULL && looked < KEPT_LOOKS_MAX; looked++, s = s->dirty_prev) {
        if (s->dirty_count < units || (found != NULL && !comes_before(s, found))) {
            continue;
        }
        uint32_t starts = hak_runs_of(hak_superslab_dirty(s), units);
        if (starts != 0) {
            found = s;
            found_starts = starts;
        }
    }
    if (found != NULL) {
        *unit_idx = choose_start(found, found_starts, class_idx);
    }
    return found;
}

/* The one most recently emptied that has a run for the class: the likeliest to be in memory. */
static struct superslab *choose_empty(unsigned units, unsigned class_idx, unsigned *unit_idx) {
    struct superslab *s = hak_superslab_pool.lru_newest;
    for (unsigned looked = 0; s != NULL && looked < EMPTY_LOOKS_MAX; looked++, s = s->prev) {
        uint32_t starts = run_starts(s, units, class_idx);
        if (starts != 0) {
            *unit_idx = choose_start(s, starts, class_idx);
            return s;
        }
    }
    return NULL;
}

struct superslab *hak_superslab_choose(unsigned units, unsigned class_idx, unsigned *unit_idx) {
    struct superslab *s = choose_kept(units, class_idx, unit_idx);
    if (s == NULL) {
        s = choose_in_tier(HAK_TIER_HOT, units, class_idx, unit_idx);
    }
    if (s == NULL) {
        s = choose_in_tier(HAK_TIER_DRAINING, units, class_idx, unit_idx);
    }
    if (s == NULL) {
        s = choose_empty(units, class_idx, unit_idx);
    }
    return s;
}

/* Of the fullest HOT SuperSlabs that have a free unit, the first that has a light or else a zero one. */
static struct superslab *choose_light(bool is_zero, unsigned *unit_idx) {
    unsigned looks = LIGHT_LOOKS_MAX;
    for (unsigned free = 1; free <= HAK_UNITS_PER_SUPERSLAB; free++) {
        for (struct superslab *s = hak_superslab_pool.buckets[HAK_TIER_HOT][free]; s != NULL; s = s->next) {
            uint32_t starts = is_zero ? s->zero_units : hak_superslab_dirty(s) & s->light_units;
            if (starts != 0) {
                *unit_idx = hak_options.randomize ? hak_chance_bit(starts) : hak_ctz32(starts);
                return s;
            }
            if (--looks == 0) {
                return NULL;
            }
        }
    }
    return NULL;
}

struct superslab *hak_superslab_choose_light(unsigned *unit_idx) {
    struct superslab *s = hak_superslab_pool.light_units != 0 ? choose_light(false, unit_idx) : NULL;
    return s != NULL ? s : choose_light(true, unit_idx);
}
