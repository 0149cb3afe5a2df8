/*
 * superslab_pool.c - see superslab_pool.h.
 *
 * Tiers: a HOT SuperSlab becomes DRAINING when a quarter or less of it is used, and HOT again at half: the
 * distance keeps it from swinging.
 */
#include "slab/superslab_pool.h"
#include "base/assert.h"
#include "base/hint.h"
#include "conf/options.h"
#include "os/os.h"
#include "slab/dirty.h"
#include "slab/thin.h"

/* Not the first few SuperSlabs, and at most a twentieth of what is in use unused. */
#define HUGE_AFTER_SUPERSLABS 8u
#define HUGE_UNUSED_SHARE     20u

#define ALL_UNITS          UINT32_MAX
#define DRAINING_USED_MAX  8u
#define HOT_AGAIN_USED_MIN 16u

_Alignas(HAK_CACHE_LINE_BYTES) struct superslab_pool hak_superslab_pool;

static struct superslab **bucket_of(const struct superslab *s) {
    return &hak_superslab_pool.buckets[s->tier][s->free_count];
}

static void bucket_link(struct superslab *s) {
    struct superslab **head = bucket_of(s);
    s->prev = NULL;
    s->next = *head;
    if (*head != NULL) {
        (*head)->prev = s;
    }
    *head = s;
}

static void bucket_unlink(struct superslab *s) {
    if (s->prev != NULL) {
        s->prev->next = s->next;
    } else {
        *bucket_of(s) = s->next;
    }
    if (s->next != NULL) {
        s->next->prev = s->prev;
    }
}

static void lru_link(struct superslab *s) {
    struct superslab_pool *pool = &hak_superslab_pool;
    s->next = NULL;
    s->prev = pool->lru_newest;
    *(s->prev != NULL ? &s->prev->next : &pool->lru_oldest) = s;
    pool->lru_newest = s;
    pool->empty_count++;
}

static void lru_unlink(struct superslab *s) {
    struct superslab_pool *pool = &hak_superslab_pool;
    *(s->prev != NULL ? &s->prev->next : &pool->lru_oldest) = s->next;
    *(s->next != NULL ? &s->next->prev : &pool->lru_newest) = s->prev;
    pool->empty_count--;
}

/* After its masks changed, while it is in no list. */
static void recount(struct superslab *s) {
    uint32_t light_units = hak_superslab_dirty(s) & s->light_units;
    unsigned zero_count;
    s->free_count = (uint8_t)hak_popcount32_of_two(s->free_units, s->zero_units, &zero_count);
    s->dirty_count = (uint8_t)(s->free_count - zero_count); /* zero units are free */
    s->light_count = (uint8_t)(light_units != 0 ? hak_popcount32(light_units) : 0);
}

static unsigned huge_zero_units(const struct superslab *s) {
    return s->is_huge ? (unsigned)(s->free_count - s->dirty_count) : 0;
}

/* Takes the SuperSlab out of every list and count that its masks and tier decide. */
static void detach(struct superslab *s) {
    struct superslab_pool *pool = &hak_superslab_pool;
    pool->free_units -= s->free_count;
    pool->dirty_units -= s->dirty_count;
    pool->light_units -= s->light_count;
    pool->huge_zero_units -= huge_zero_units(s);
    if (s->tier == HAK_TIER_FREE) {
        lru_unlink(s);
    } else {
        bucket_unlink(s);
    }
}

static void update_dirty_list(struct superslab *s) {
    bool has_dirt = hak_superslab_dirty(s) != 0 || s->thin_slabs != 0;
    if (has_dirt && !s->is_in_dirty_list) {
        hak_dirty_link(s);
    } else if (!has_dirt && s->is_in_dirty_list) {
        hak_dirty_unlink(s);
    }
}

/* Units that slabs have: none of SuperSlabs that are lent whole. */
static size_t units_in_use(void) {
    const struct superslab_pool *pool = &hak_superslab_pool;
    return (pool->mapped_count - pool->whole_count) * HAK_UNITS_PER_SUPERSLAB - pool->free_units;
}

/* What blocks have, as far as is known: of slabs in use neither what was purged nor what may be. */
static size_t blocks_bytes(void) {
    const struct superslab_pool *pool = &hak_superslab_pool;
    size_t used_bytes = units_in_use() * HAK_UNIT_BYTES;
    /* In the child of a fork slabs are given back before what was thin is forgotten. */
    return used_bytes - hak_smaller(used_bytes, pool->thin_bytes + pool->purged_bytes);
}

/* What changes with every change of the sums: the least that lay idle, the most in use, whether thin slabs
 * matter and whether the LRU may have to age. */
static void note_sums(void) {
    struct superslab_pool *pool = &hak_superslab_pool;
    bool matters = units_in_use() >= HAK_THIN_UNITS_MIN && hak_os_page_bytes() < HAK_UNIT_BYTES;
    hak_retention_note_dirty(&pool->retention, hak_superslab_dirty_bytes());
    hak_retention_note_used(&pool->retention, blocks_bytes() + pool->whole_count * HAK_SUPERSLAB_BYTES);
    hak_hint_set(&hak_thin_matters, matters);
    hak_hint_set(&pool->has_empty, pool->empty_count != 0);
}

/* The counterpart of detach(), after masks (recount() then), tier or the counts of SuperSlabs changed. */
static void attach(struct superslab *s) {
    struct superslab_pool *pool = &hak_superslab_pool;
    pool->free_units += s->free_count;
    pool->dirty_units += s->dirty_count;
    pool->light_units += s->light_count;
    pool->huge_zero_units += huge_zero_units(s);
    if (s->tier == HAK_TIER_FREE) {
        lru_link(s);
    } else {
        bucket_link(s);
    }
    update_dirty_list(s);
    note_sums();
}

static enum hak_tier tier_for(const struct superslab *s) {
    unsigned used = HAK_UNITS_PER_SUPERSLAB - s->free_count;
    if (used == 0) {
        /* The last one stays: a small program that frees all it has would map and unmap it over and over. */
        bool is_last = hak_superslab_pool.mapped_count - hak_superslab_pool.whole_count == 1;
        return is_last ? HAK_TIER_HOT : HAK_TIER_FREE;
    }
    if (s->tier == HAK_TIER_HOT) {
        return used <= DRAINING_USED_MAX ? HAK_TIER_DRAINING : HAK_TIER_HOT;
    }
    return used >= HOT_AGAIN_USED_MIN ? HAK_TIER_HOT : HAK_TIER_DRAINING;
}

/* Apart from the other sums, since seldom anything changes. */
static void set_long_units(struct superslab *s, uint32_t units) {
    if (units != s->long_units) {
        hak_superslab_pool.long_units += hak_popcount32(units);
        hak_superslab_pool.long_units -= hak_popcount32(s->long_units);
        s->long_units = units;
    }
}

void hak_superslab_change(struct superslab *s, struct hak_unit_change change) {
    uint32_t begun = change.taken | change.purge_begun;
    uint32_t ended = change.purge_done | change.purge_failed;
    HAK_ASSERT((s->free_units & begun) == begun && (s->purging_units & ended) == ended);
    HAK_ASSERT((s->free_units & (change.freed_zero | change.freed_dirty | ended)) == 0);
    bool was_growing = change.taken != 0;
    detach(s);
    s->free_units = (s->free_units & ~begun) | change.freed_zero | change.freed_dirty | ended;
    s->zero_units = (s->zero_units & ~begun) | change.freed_zero | change.purge_done;
    s->purging_units = (s->purging_units | change.purge_begun) & ~ended;
    s->filled_units &= ~s->free_units;
    set_long_units(s, (s->long_units & ~s->free_units) | (change.is_long ? change.taken : 0));
    recount(s);
    /* A SuperSlab that is being filled stays HOT from its first unit on; only giving back makes one drain. */
    s->tier = was_growing && s->tier != HAK_TIER_DRAINING ? HAK_TIER_HOT : tier_for(s);
    attach(s);
}

/* What of a slab may hold memory: all of its span, or what was handed out of a clean one so far. */
size_t hak_superslab_touched_bytes(const struct slab *slab) {
    bool is_clean = slab->is_zero && !hak_superslab_lies_on_filled(slab);
    return is_clean ? hak_os_page_round(hak_superslab_carved_bytes(slab)) : slab->units * HAK_UNIT_BYTES;
}

void hak_superslab_set_thin(struct slab *slab, bool is_thin, unsigned purged_pages) {
    struct superslab_pool *pool = &hak_superslab_pool;
    struct superslab *s = hak_superslab_of(slab);
    uint32_t bit = (uint32_t)1 << slab->unit_idx;
    size_t all_bytes = hak_superslab_touched_bytes(slab);
    size_t old_bytes = slab->purged_pages * hak_os_page_bytes();
    size_t new_bytes = purged_pages * hak_os_page_bytes();
    pool->thin_bytes -= (s->thin_slabs & bit) != 0 ? all_bytes - old_bytes : 0;
    pool->thin_bytes += is_thin ? all_bytes - new_bytes : 0;
    pool->purged_bytes += new_bytes - old_bytes;
    slab->purged_pages = (uint16_t)purged_pages;
    s->thin_slabs = is_thin ? s->thin_slabs | bit : s->thin_slabs & ~bit;
    update_dirty_list(s);
    note_sums();
}

void hak_superslab_note_light(struct slab *slab, unsigned purged_pages) {
    size_t held_bytes = hak_superslab_touched_bytes(slab) - purged_pages * hak_os_page_bytes();
    if (purged_pages != 0 && held_bytes <= slab->units * HAK_LIGHT_BYTES) {
        hak_superslab_of(slab)->light_units |= hak_superslab_span(slab);
        slab->carved_blocks = 0; /* as if it had been handed out no more */
    }
}

void hak_superslab_forget_thin(void) {
    struct superslab *s;
    for (size_t i = 0; (s = hak_superslab_at(i)) != NULL; i++) {
        for (unsigned unit = 0; unit < HAK_UNITS_PER_SUPERSLAB; unit++) {
            s->slabs[unit].purged_mask = 0;
            s->slabs[unit].purged_pages = 0;
        }
        s->thin_slabs = s->ragged_slabs = 0;
        if (s->tier <= HAK_TIER_DRAINING) {
            update_dirty_list(s);
        }
    }
    hak_superslab_pool.thin_bytes = hak_superslab_pool.purged_bytes = 0;
    hak_ragged_forget_all();
}

bool hak_superslab_may_be_huge(void) {
    struct superslab_pool *pool = &hak_superslab_pool;
    if (hak_options.thp != HAK_THP_AUTO) {
        return hak_options.thp == HAK_THP_ALWAYS;
    }
    if (pool->mapped_count < HUGE_AFTER_SUPERSLABS) {
        return false;
    }
    /* Some have begun a moment ago, some are nearly through. */
    size_t begun_units = hak_atomic_load_relaxed(&hak_slab_begun_units) / 2; /* relaxed: a statistic */
    size_t unused_units = pool->huge_zero_units + begun_units + HAK_UNITS_PER_SUPERSLAB;
    return unused_units <= (units_in_use() - pool->long_units) / HUGE_UNUSED_SHARE &&
           hak_huge_pace_allows(&pool->huge_pace);
}

static size_t touched_by_thin_bytes(const struct superslab *s) {
    size_t bytes = 0;
    for (uint32_t left = s->thin_slabs; left != 0; left &= left - 1) {
        bytes += hak_superslab_touched_bytes(&s->slabs[hak_ctz32(left)]);
    }
    return bytes;
}

/* Memory that nobody wrote to lies in free units and in slabs: it counts from now on. *is_clean is why it did
 * not, and is cleared. */
static bool count_all(struct superslab *s, bool *is_clean) {
    if (!*is_clean) {
        return false;
    }
    size_t before_bytes = touched_by_thin_bytes(s);
    bool is_attached = s->tier <= HAK_TIER_FREE;
    if (is_attached) {
        detach(s);
    }
    *is_clean = false;
    s->filled_units = is_attached ? ~s->free_units : 0;
    hak_superslab_pool.thin_bytes += touched_by_thin_bytes(s) - before_bytes;
    if (is_attached) {
        s->zero_units = s->light_units = 0;
        recount(s);
        attach(s);
    }
    return true;
}

bool hak_superslab_clear_huge(struct superslab *s) {
    return count_all(s, &s->is_huge);
}

/* One that is lent comes back with what it was. */
void hak_superslab_clear_prefaulted(struct superslab *s) {
    if (s->tier <= HAK_TIER_FREE) {
        (void)count_all(s, &s->is_prefaulted);
    }
}

void hak_superslab_none_to_hot(struct superslab *s, uintptr_t base) {
    HAK_ASSERT(s->tier == HAK_TIER_NONE);
    s->base = base;
    s->free_units = s->zero_units = ALL_UNITS;
    s->light_units = 0;
    s->purging_units = 0;
    s->filled_units = 0;
    s->tier = HAK_TIER_HOT;
    hak_superslab_pool.mapped_count++;
    recount(s);
    attach(s);
}

void hak_superslab_free_to_whole(struct superslab *s) {
    HAK_ASSERT(s->tier == HAK_TIER_FREE || s->tier == HAK_TIER_HOT);
    HAK_ASSERT(s->free_units == ALL_UNITS);
    detach(s);
    if (s->is_in_dirty_list) {
        hak_dirty_unlink(s);
    }
    s->tier = HAK_TIER_WHOLE;
    s->free_units = s->zero_units = s->light_units = 0;
    hak_superslab_pool.whole_count++;
    note_sums();
}

void hak_superslab_whole_to_free(struct superslab *s, uint32_t zero_units) {
    HAK_ASSERT(s->tier == HAK_TIER_WHOLE);
    s->free_units = ALL_UNITS;
    s->zero_units = zero_units;
    s->tier = HAK_TIER_FREE;
    hak_superslab_pool.whole_count--;
    recount(s);
    attach(s);
}

void hak_superslab_free_to_none(struct superslab *s) {
    HAK_ASSERT(s->tier == HAK_TIER_FREE);
    detach(s);
    if (s->is_in_dirty_list) {
        hak_dirty_unlink(s);
    }
    s->tier = HAK_TIER_NONE;
    hak_superslab_pool.mapped_count--;
    note_sums();
}

void hak_superslab_none_to_free(struct superslab *s) {
    HAK_ASSERT(s->tier == HAK_TIER_NONE && s->free_units == ALL_UNITS);
    s->tier = HAK_TIER_FREE;
    hak_superslab_pool.mapped_count++;
    attach(s);
}

void hak_superslab_push_spare(struct superslab *s) {
    HAK_ASSERT(s->tier == HAK_TIER_NONE);
    s->base = 0;
    s->next = hak_superslab_pool.spare;
    hak_superslab_pool.spare = s;
}

struct superslab *hak_superslab_pop_spare(void) {
    struct superslab *s = hak_superslab_pool.spare;
    if (s != NULL) {
        hak_superslab_pool.spare = s->next;
    }
    return s;
}

size_t hak_superslab_floor_bytes(uint64_t now_ms) {
    return hak_retention_floor_bytes(&hak_superslab_pool.retention, blocks_bytes(), now_ms);
}

struct superslab *hak_superslab_lru_victim(uint64_t now_ms) {
    struct superslab_pool *pool = &hak_superslab_pool;
    struct superslab *oldest = pool->lru_oldest;
    if (oldest == NULL) {
        return NULL;
    }
    if (pool->retention.is_set) { /* the program has said what may stay, in place of the options */
        return pool->empty_count * HAK_SUPERSLAB_BYTES > pool->retention.set_bytes ? oldest : NULL;
    }
    /* What proved cycles want again soon is bounded by HAKMEM_RETAIN_MB, and does not count. */
    size_t proved = hak_round_up(pool->retention.raised_bytes, HAK_SUPERSLAB_BYTES) / HAK_SUPERSLAB_BYTES;
    if (pool->empty_count <= proved) {
        return NULL;
    }
    size_t unproved = pool->empty_count - proved;
    bool is_over_count = unproved > hak_options.ss_lru_count;
    bool is_over_bytes = unproved * HAK_SUPERSLAB_BYTES > (size_t)hak_options.ss_lru_mb << 20;
    /* A sum: another thread, whose look at the clock was later, may have emptied it. */
    bool is_over_age = now_ms > oldest->emptied_ms + hak_options.ss_lru_ms;
    return is_over_count || is_over_bytes || is_over_age ? oldest : NULL;
}
