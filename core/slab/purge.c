/*
 * purge.c - see purge.h.
 *
 * What is being given back is nobody's meanwhile: its units are marked purging, or its SuperSlab has no tier,
 * so the lock is free during the system call. An unmapping that fails (too many mappings for one more hole)
 * is not tried again for a second; the memory is purged instead. A purge that fails (locked pages) leaves the
 * units dirty, puts their SuperSlab behind the others, and no step purges for a second. Registry words are
 * not touched: freed units keep their FREED marks, which name a double free also after the memory is gone.
 */
#include "slab/purge.h"
#include "os/os.h"
#include "slab/superslab_pool.h"

_Atomic bool hak_purge_debt;

#define RETRY_MS                 1000u
#define TRIM_FAILURES_IN_ROW_MAX 16u

/* Unmaps an empty SuperSlab that has been taken out of the LRU. Returns the bytes given back. */
static size_t unmap_detached(struct superslab *s, unsigned dirty_units) {
    int error = hak_os_unmap((void *)s->base, HAK_SUPERSLAB_BYTES);
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_superslab_lock);
    if (error == 0) {
        hak_superslab_push_spare(s);
        hak_retention_note_purged(&hak_superslab_pool.retention, dirty_units * HAK_UNIT_BYTES, now_ms);
    } else {
        s->emptied_ms = now_ms;
        hak_superslab_none_to_free(s, dirty_units == 0);
        hak_superslab_pool.unmap_retry_ms = now_ms + RETRY_MS;
    }
    hak_lock_release(&hak_superslab_lock);
    return error == 0 ? HAK_SUPERSLAB_BYTES : 0;
}

/* Purges one run of dirty units, already marked purging. Returns the bytes given back. */
static size_t purge_marked(struct superslab *s, uint32_t run) {
    size_t bytes = hak_popcount32(run) * HAK_UNIT_BYTES;
    int error = hak_os_purge((void *)(s->base + hak_ctz32(run) * HAK_UNIT_BYTES), bytes);
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_superslab_lock);
    if (error == 0) {
        hak_superslab_change(s, (struct hak_unit_change){.purge_done = run});
        s->emptied_ms = now_ms; /* of use if that emptied it */
        hak_retention_note_purged(&hak_superslab_pool.retention, bytes, now_ms);
    } else {
        hak_superslab_change(s, (struct hak_unit_change){.purge_failed = run});
        hak_superslab_pool.purge_retry_ms = now_ms + RETRY_MS;
    }
    hak_lock_release(&hak_superslab_lock);
    return error == 0 ? bytes : 0;
}

/* The longest run of dirty units: a system call costs more than the pages that it gives back. */
static uint32_t longest_dirty_run(const struct superslab *s) {
    uint32_t dirty = s->free_units & ~s->zero_units;
    unsigned length = 1;
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

/* One system call's worth. Returns the bytes given back; 0 when there is nothing to do or it failed. */
static size_t purge_once(size_t keep_bytes, bool is_trim) {
    struct superslab_pool *pool = &hak_superslab_pool;
    hak_lock_acquire(&hak_superslab_lock);
    uint64_t now_ms = hak_os_now_ms();
    if (!is_trim && now_ms < pool->purge_retry_ms) {
        hak_superslab_note_paid();
        hak_lock_release(&hak_superslab_lock);
        return 0;
    }
    if (!is_trim) {
        keep_bytes = hak_superslab_floor_bytes(now_ms);
    }
    bool is_above = pool->dirty_units * HAK_UNIT_BYTES > keep_bytes;
    struct superslab *victim = choose_victim(is_above || (is_trim && keep_bytes == 0), now_ms);
    if (victim != NULL) {
        unsigned dirty_units = HAK_UNITS_PER_SUPERSLAB - hak_popcount32(victim->zero_units);
        hak_superslab_free_to_none(victim);
        hak_lock_release(&hak_superslab_lock);
        return unmap_detached(victim, dirty_units);
    }
    struct superslab *dirty = is_above ? pool->dirty_oldest : NULL;
    uint32_t run = 0;
    if (dirty != NULL) {
        run = longest_dirty_run(dirty);
        hak_superslab_change(dirty, (struct hak_unit_change){.purge_begun = run});
    }
    if (dirty == NULL) {
        hak_superslab_note_paid();
    }
    hak_lock_release(&hak_superslab_lock);
    return dirty != NULL ? purge_marked(dirty, run) : 0;
}

void hak_purge_step(void) {
    size_t given_bytes = 0;
    for (unsigned call = 0; call < HAK_PURGE_STEP_CALLS && given_bytes < HAK_PURGE_STEP_BYTES; call++) {
        size_t bytes = purge_once(0, false);
        if (bytes == 0) {
            return;
        }
        given_bytes += bytes;
    }
}

void hak_purge_settle(void) {
    struct hak_superslab_counts counts;
    if (!hak_purge_is_owed()) {
        return;
    }
    hak_superslab_count(&counts);
    /* Others may free as fast as this purges: they pay for it themselves. */
    for (size_t steps = counts.dirty_units + counts.empty; steps != 0 && hak_purge_is_owed(); steps--) {
        hak_purge_step();
    }
}

size_t hak_purge_down_to(size_t keep_bytes) {
    struct hak_superslab_counts counts;
    size_t given_bytes = 0;
    unsigned failures_in_row = 0;
    hak_superslab_count(&counts);
    /* No more calls than there was to do at the start: others may free as fast as this purges. */
    for (size_t calls = counts.dirty_units + counts.empty;
         calls != 0 && failures_in_row < TRIM_FAILURES_IN_ROW_MAX; calls--) {
        size_t bytes = purge_once(keep_bytes, true);
        given_bytes += bytes;
        failures_in_row = bytes != 0 ? 0 : failures_in_row + 1;
    }
    return given_bytes;
}

void hak_purge_set_floor(size_t bytes) {
    hak_lock_acquire(&hak_superslab_lock);
    hak_retention_set(&hak_superslab_pool.retention, bytes);
    hak_lock_release(&hak_superslab_lock);
}
