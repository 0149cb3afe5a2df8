/*
 * purge.c - see purge.h.
 *
 * What is being given back is nobody's meanwhile: its units are marked purging, or its SuperSlab has no tier,
 * so the lock is free during the system call. An unmapping that fails (too many mappings for one more hole)
 * is not tried again for a second; the memory is purged instead. A purge that fails (locked pages) leaves the
 * units dirty, and no step purges in their SuperSlab for a second, nor anywhere after many failures in a row.
 * Registry words are not touched: freed units keep their FREED marks, which name a double free also after the
 * memory is gone.
 */
#include "slab/purge.h"
#include "base/hint.h"
#include "os/os.h"
#include "slab/orphans.h"
#include "slab/ragged.h"
#include "slab/superslab_pool.h"
#include "slab/thin.h"

HAK_READ_MOSTLY _Atomic bool hak_purge_debt;
HAK_READ_MOSTLY _Atomic bool hak_purge_behind;

#define RETRY_MS                 1000u
#define TRIM_FAILURES_IN_ROW_MAX 16u
#define REFUSALS_MAX             16u /* purges in a row, after which none is tried for a while */
#define DIRTY_LOOK_MAX           8u
#define RAGGED_LOOK_MAX          64u
#define RAGGED_CALLS_MIN         (HAK_PURGE_STEP_CALLS / 2) /* with which a slab is begun that cannot go on */

/* What one operation has given back so far. */
struct purge {
    enum hak_giver giver;
    size_t given_bytes;
    unsigned calls;
};

/* Header maps that stayed with units whose memory has gone. */
static void drop_maps(struct superslab *s, uint32_t units) {
    for (uint32_t left = units; left != 0; left &= left - 1) {
        hak_slab_drop_map(&s->slabs[hak_ctz32(left)]);
    }
}

/* Unmaps an empty SuperSlab that has been taken out of the LRU. False when it failed. */
static bool unmap_detached(struct superslab *s, struct purge *purge) {
    size_t bytes = hak_superslab_bytes_in(s->dirty_count, s->light_count);
    int error = hak_os_unmap((void *)s->base, HAK_SUPERSLAB_BYTES);
    uint64_t now_ms = hak_os_now_ms();
    drop_maps(s, error == 0 ? s->free_units : 0);
    hak_lock_acquire(&hak_superslab_lock);
    if (error == 0) {
        hak_superslab_push_spare(s);
        hak_retention_note_purged(&hak_superslab_pool.retention, bytes, now_ms);
        hak_superslab_note_owed(); /* by the maps, and who looked meanwhile did not find it */
    } else {
        s->emptied_ms = now_ms;
        hak_superslab_none_to_free(s);
        hak_superslab_pool.unmap_retry_ms = now_ms + RETRY_MS;
    }
    hak_lock_release(&hak_superslab_lock);
    purge->calls++;
    purge->given_bytes += error == 0 ? HAK_SUPERSLAB_BYTES : 0;
    return error == 0;
}

/* Purges one run of dirty units, already marked purging. False when it failed. */
static bool purge_marked(struct superslab *s, uint32_t run, struct purge *purge) {
    size_t run_bytes = hak_popcount32(run) * HAK_UNIT_BYTES;
    purge->calls += hak_superslab_split(s);
    int error = hak_os_purge((void *)(s->base + hak_ctz32(run) * HAK_UNIT_BYTES), run_bytes);
    uint64_t now_ms = hak_os_now_ms();
    drop_maps(s, error == 0 ? run : 0);
    hak_lock_acquire(&hak_superslab_lock);
    size_t bytes = hak_superslab_bytes_in(hak_popcount32(run), hak_popcount32(run & s->light_units));
    if (error == 0) {
        hak_superslab_change(s, (struct hak_unit_change){.purge_done = run});
        s->emptied_ms = now_ms; /* of use if that emptied it */
        hak_retention_note_purged(&hak_superslab_pool.retention, bytes, now_ms);
        hak_superslab_note_owed(); /* as above */
    } else {
        hak_superslab_change(s, (struct hak_unit_change){.purge_failed = run});
        hak_dirty_pause(s, now_ms + RETRY_MS);
    }
    hak_refusals_note(&hak_superslab_pool.refusals, error != 0, REFUSALS_MAX, now_ms + RETRY_MS);
    hak_lock_release(&hak_superslab_lock);
    purge->calls++;
    purge->given_bytes += error == 0 ? bytes : 0;
    return error == 0;
}

/* Gives the lease of a slab back that was purged. */
static void release_purged(struct slab *slab) {
    enum hak_slab_event event;
    do {
        event = hak_slab_release_any(slab, 0);
    } while (hak_ragged_or_thin_enter(slab, event)); /* more was freed meanwhile */
    if (event == HAK_EVENT_LIST) {
        event = hak_orphans_push(slab); /* its owner's hint went stale meanwhile */
    }
    if (event == HAK_EVENT_RETIRE) {
        hak_slab_retire(slab);
    }
}

/* Purges a leased slab and gives the lease back. */
static void purge_slab(struct slab *slab, unsigned calls_max, struct purge *purge) {
    purge->given_bytes += hak_thin_purge(slab, calls_max, &purge->calls);
    release_purged(slab);
}

/* The longest run of dirty units: a system call costs more than the pages that it gives back. 0: none. */
static uint32_t longest_dirty_run(const struct superslab *s) {
    uint32_t dirty = hak_superslab_dirty(s);
    unsigned length = 1;
    if (dirty == 0) {
        return 0;
    }
    while (hak_runs_of(dirty, length + 1) != 0) {
        length++;
    }
    return hak_mask32(length) << hak_ctz32(hak_runs_of(dirty, length));
}

/* An empty SuperSlab to unmap: one beyond the LRU's bounds, or any. NULL if there is none or none can be. */
static struct superslab *choose_victim(bool is_any_welcome, uint64_t now_ms) {
    struct superslab_pool *pool = &hak_superslab_pool;
    if (now_ms < pool->unmap_retry_ms) {
        return NULL;
    }
    struct superslab *victim = hak_superslab_lru_victim(now_ms);
    return victim == NULL && is_any_welcome ? pool->lru_oldest : victim;
}

/* The SuperSlab that was dirty first; of the first few, one with dirty units, which give more for a call.
 * NULL if there is none that can be asked now. */
static struct superslab *choose_dirty(bool is_trim, uint64_t now_ms) {
    hak_dirty_end_pauses(is_trim ? UINT64_MAX : now_ms);
    struct superslab *s = hak_superslab_pool.dirty.oldest;
    for (unsigned looked = 0; s != NULL && looked < DIRTY_LOOK_MAX; looked++, s = s->dirty_next) {
        if (hak_superslab_dirty(s) != 0) {
            return s;
        }
    }
    return hak_superslab_pool.dirty.oldest;
}

/* The lock is held on entry and released here. False when nothing was done. */
static bool purge_dirty(struct superslab *s, struct purge *purge) {
    struct slab *thin = NULL;
    uint32_t run = longest_dirty_run(s);
    if (run != 0) {
        hak_superslab_change(s, (struct hak_unit_change){.purge_begun = run});
    } else {
        thin = &s->slabs[hak_ctz32(s->thin_slabs)];
        if (!hak_slab_lease_any(thin)) { /* somebody is at work on it */
            thin = NULL;
            hak_dirty_put_off(s);
        }
    }
    hak_lock_release(&hak_superslab_lock);
    if (thin != NULL) {
        purge_slab(thin, HAK_THIN_CALLS_MAX, purge);
    }
    return thin != NULL || (run != 0 && purge_marked(s, run, purge));
}

/* Under the lock: whether more of free header maps holds memory than may stay, and is to go back now. */
static bool are_maps_due(size_t keep_bytes, enum hak_giver giver, uint64_t now_ms) {
    struct superslab_pool *pool = &hak_superslab_pool;
    size_t owed_bytes = hak_maps_owed_bytes();
    bool is_above = owed_bytes > keep_bytes;
    struct hak_over over = {.is_over = is_above, .excess_bytes = is_above ? owed_bytes - keep_bytes : 0};
    return hak_retention_is_due(&pool->maps_over_since_ms, over, giver, now_ms) &&
           now_ms >= pool->maps_retry_ms;
}

/* One system call's worth of header maps. False when it failed, or another thread was first. */
static bool purge_maps(struct purge *purge) {
    size_t given_bytes = 0;
    unsigned calls = hak_maps_purge(&given_bytes);
    uint64_t now_ms = hak_os_now_ms();
    purge->calls += calls;
    purge->given_bytes += given_bytes;
    hak_lock_acquire(&hak_superslab_lock);
    if (calls != 0 && given_bytes == 0) {
        hak_superslab_pool.maps_retry_ms = now_ms + RETRY_MS;
    }
    hak_superslab_note_owed(); /* more was freed meanwhile, and who looked then did not find it */
    hak_lock_release(&hak_superslab_lock);
    return given_bytes != 0;
}

/* One system call's worth, or one thin slab. False when there is nothing to do or it failed. */
static bool purge_once(size_t keep_bytes, bool is_trim, struct purge *purge) {
    struct superslab_pool *pool = &hak_superslab_pool;
    hak_lock_acquire(&hak_superslab_lock);
    uint64_t now_ms = hak_os_now_ms();
    if (!is_trim) {
        keep_bytes = hak_superslab_floor_bytes(now_ms);
        if (are_maps_due(keep_bytes >> HAK_MAPS_FLOOR_SHIFT, purge->giver, now_ms)) {
            hak_lock_release(&hak_superslab_lock);
            if (purge_maps(purge)) {
                return true;
            }
            hak_lock_acquire(&hak_superslab_lock);
        }
    }
    if (!is_trim && hak_refusals_were_many(&pool->refusals, now_ms)) {
        hak_superslab_note_paid();
        hak_lock_release(&hak_superslab_lock);
        return false;
    }
    size_t dirty_bytes = hak_superslab_dirty_bytes();
    bool is_above = dirty_bytes > keep_bytes;
    struct superslab *victim = choose_victim(is_above || (is_trim && keep_bytes == 0), now_ms);
    struct hak_over over = {.is_over = is_above || victim != NULL,
                            .excess_bytes = is_above ? dirty_bytes - keep_bytes : 0};
    if (!hak_retention_is_due(&pool->retention.over_since_ms, over, purge->giver, now_ms) && !is_trim) {
        hak_superslab_note_paid(); /* or not yet */
        hak_superslab_settle(keep_bytes, now_ms);
        hak_lock_release(&hak_superslab_lock);
        return false;
    }
    if (victim != NULL) {
        hak_superslab_free_to_none(victim);
        hak_lock_release(&hak_superslab_lock);
        return unmap_detached(victim, purge);
    }
    struct superslab *dirty = is_above ? choose_dirty(is_trim, now_ms) : NULL;
    if (dirty == NULL) {
        if (!is_trim) {
            hak_superslab_note_paid(); /* or cannot be now */
        }
        hak_lock_release(&hak_superslab_lock);
        return false;
    }
    return purge_dirty(dirty, purge);
}

static unsigned step(unsigned calls_max, enum hak_giver giver) {
    struct purge purge = {.giver = giver};
    bool may_be_more = true;
    while (may_be_more && purge.calls + HAK_THIN_CALLS_MAX <= calls_max &&
           purge.given_bytes < HAK_PURGE_STEP_BYTES) {
        may_be_more = purge_once(0, false, &purge);
    }
    if (may_be_more && hak_purge_is_owed()) {
        hak_hint_set(&hak_purge_behind, true);
    }
    return purge.calls;
}

unsigned hak_purge_step(unsigned calls_max) {
    return step(calls_max, HAK_GIVER_OPERATION);
}

/* Whether nothing that could stay is to go back, now or at all: the program or the options say so. */
static bool may_all_stay(void) {
    const struct retention *retention = &hak_superslab_pool.retention;
    return hak_options.purge_ms != 0 ||
           (retention->is_set && retention->set_bytes > hak_retention_base_bytes());
}

/*
 * The turn of one, with the calls that are left. One that is cut off waits again and goes on from there, if
 * it knows which pages went; else it would begin anew, and is not begun with few.
 */
static void take_ragged_turn(struct slab *slab, struct purge *purge) {
    unsigned left = HAK_PURGE_STEP_CALLS - purge->calls;
    bool goes_on = hak_slab_knows_purged_pages(slab);
    if (!goes_on && left < RAGGED_CALLS_MIN) {
        purge->calls = HAK_PURGE_STEP_CALLS;
        hak_ragged_enter(slab);
    } else {
        unsigned calls_max = hak_ragged_is_still(slab) ? left : 0;
        hak_ragged_lower(slab);
        purge->given_bytes += hak_thin_purge(slab, calls_max, &purge->calls);
        if (goes_on && purge->calls >= HAK_PURGE_STEP_CALLS) {
            hak_ragged_enter(slab);
        }
    }
    release_purged(slab);
}

void hak_purge_ragged(void) {
    struct purge purge = {0};
    uint64_t now_ms = hak_os_now_ms();
    for (unsigned looked = 0; purge.calls < HAK_PURGE_STEP_CALLS && looked < RAGGED_LOOK_MAX; looked++) {
        hak_lock_acquire(&hak_superslab_lock);
        struct slab *slab = may_all_stay() ? NULL : hak_ragged_next(now_ms);
        hak_lock_release(&hak_superslab_lock);
        if (slab == NULL) {
            return;
        }
        take_ragged_turn(slab, &purge);
    }
}

bool hak_purge_ragged_in_time(void) {
    uint64_t now_ms = hak_os_now_ms();
    if (!hak_ragged_is_time(now_ms)) {
        return false;
    }
    hak_lock_acquire(&hak_superslab_lock);
    bool is_due = hak_ragged_take_turn(now_ms);
    hak_lock_release(&hak_superslab_lock);
    if (is_due) {
        hak_purge_ragged();
    }
    return is_due;
}

/* How often something may be given back until nothing of what is there now is left. */
static size_t pieces_now(void) {
    struct hak_superslab_counts counts = hak_superslab_count();
    return counts.dirty_units + counts.empty + hak_os_pages_in(counts.thin_bytes + hak_maps_owed_bytes());
}

static void settle(enum hak_giver giver) {
    if (!hak_purge_is_owed()) {
        return;
    }
    /* Others may free as fast as this purges: they pay for it themselves. */
    for (size_t steps = pieces_now(); steps != 0 && hak_purge_is_owed(); steps--) {
        (void)step(HAK_PURGE_STEP_CALLS, giver);
    }
}

void hak_purge_settle(void) {
    settle(HAK_GIVER_OPERATION);
}

void hak_purge_help(void) {
    hak_purge_age();
    settle(HAK_GIVER_HELPER);
}

size_t hak_superslab_trim(size_t keep_bytes) {
    struct purge purge = {0};
    unsigned failures_in_row = 0;
    /* No more calls than there was to do at the start: others may free as fast as this purges. */
    for (size_t pieces = pieces_now(); pieces != 0 && failures_in_row < TRIM_FAILURES_IN_ROW_MAX; pieces--) {
        failures_in_row = purge_once(keep_bytes, true, &purge) ? 0 : failures_in_row + 1;
    }
    return purge.given_bytes + hak_maps_trim();
}

void hak_purge_age(void) {
    hak_lock_acquire(&hak_superslab_lock);
    (void)hak_superslab_floor_bytes(hak_os_now_ms()); /* which lets it fall */
    hak_superslab_note_owed();
    hak_lock_release(&hak_superslab_lock);
}

bool hak_purge_lru_is_over(void) {
    if (!hak_atomic_load_relaxed(&hak_superslab_pool.has_empty)) { /* relaxed: a hint */
        return false;
    }
    hak_lock_acquire(&hak_superslab_lock);
    bool is_over = hak_superslab_lru_victim(hak_os_now_ms()) != NULL;
    hak_lock_release(&hak_superslab_lock);
    return is_over;
}

void hak_purge_set_floor(size_t bytes) {
    hak_lock_acquire(&hak_superslab_lock);
    hak_retention_set(&hak_superslab_pool.retention, bytes);
    hak_superslab_unsettle();
    hak_lock_release(&hak_superslab_lock);
}
