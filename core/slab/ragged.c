/*
 * ragged.c - see ragged.h.
 */
#include "slab/ragged.h"
#include "base/hint.h"
#include "os/os.h"
#include "slab/slab_word.h"
#include "slab/superslab_pool.h"

#define BLOCKS_PER_PAGE     2u /* in use at which one page in eight is free, by chance */
#define SUPERSLABS_LOOK_MAX 64u
#define JUDGED_BYTES        ((size_t)256 * 1024) /* what went back before it is asked whether that was right */
#define WINDOW_BYTES        ((size_t)8 * 1024 * 1024)
#define SKIPS_FIRST         15u
#define SKIPS_MAX           1023u
#define EASE_MS             1000u /* a second without a miss halves what is skipped */

HAK_READ_MOSTLY _Atomic bool hak_ragged_waits;
HAK_READ_MOSTLY _Atomic uint64_t hak_ragged_turn_ms;

static unsigned ragged_at_most(const struct slab *slab) {
    unsigned spread = BLOCKS_PER_PAGE * slab->units * (unsigned)hak_os_pages_in(HAK_UNIT_BYTES);
    unsigned half = slab->capacity_blocks / 2u;
    return spread < half ? spread : half;
}

static void set_threshold(struct slab *slab, unsigned blocks) {
    hak_atomic_store_relaxed(&slab->ragged_blocks, (uint16_t)blocks); /* relaxed: as in hak_ragged_begins() */
}

void hak_ragged_reset(struct slab *slab) {
    set_threshold(slab, ragged_at_most(slab));
}

void hak_ragged_raise(struct slab *slab, unsigned taken_blocks) {
    unsigned half = (hak_slab_used_blocks(slab) + taken_blocks) / 2;
    if (half > hak_atomic_load_relaxed(&slab->ragged_blocks)) { /* relaxed: written under the lease */
        unsigned most = ragged_at_most(slab);
        set_threshold(slab, half < most ? half : most);
    }
}

void hak_ragged_lower(struct slab *slab) {
    set_threshold(slab, hak_slab_used_blocks(slab) / 2);
}

/* Every thread reads it: written only if the clock has gone on, which it does some hundred times a second. */
static void begin_turn(uint64_t now_ms) {
    if (hak_atomic_load_relaxed(&hak_ragged_turn_ms) != now_ms) { /* relaxed: written under the lock */
        hak_atomic_store_relaxed(&hak_ragged_turn_ms, now_ms);    /* relaxed: as above */
    }
}

/* Whether some wait; the hint says so then. Until somebody looks it outlasts the last one: in a heap that is
 * freed to the end they come and go, and every thread reads it. */
static bool is_any_waiting(void) {
    bool is_any = hak_superslab_pool.ragged.waiting != 0;
    hak_hint_set(&hak_ragged_waits, is_any);
    return is_any;
}

void hak_ragged_enter(struct slab *slab) {
    struct superslab *s = hak_superslab_of(slab);
    uint32_t bit = (uint32_t)1 << slab->unit_idx;
    set_threshold(slab, 0); /* until it has had its turn */
    hak_lock_acquire(&hak_superslab_lock);
    if (hak_superslab_pool.ragged.waiting == 0) {
        begin_turn(hak_os_now_ms()); /* so long the first one waits at least */
    }
    hak_superslab_pool.ragged.waiting += (s->ragged_slabs & bit) == 0;
    s->ragged_slabs |= bit;
    hak_hint_set(&hak_ragged_waits, true);
    hak_lock_release(&hak_superslab_lock);
}

void hak_ragged_enter_if_due(struct slab *slab) {
    if (hak_ragged_begins(slab, hak_slab_used_blocks(slab))) {
        hak_ragged_enter(slab);
    }
}

bool hak_ragged_or_thin_enter(struct slab *slab, enum hak_slab_event event) {
    if (event == HAK_EVENT_THIN) {
        hak_thin_enter(slab);
    } else if (event == HAK_EVENT_RAGGED) {
        hak_ragged_enter(slab);
    }
    return event == HAK_EVENT_THIN || event == HAK_EVENT_RAGGED;
}

bool hak_ragged_is_still(const struct slab *slab) {
    return hak_slab_used_blocks(slab) <= ragged_at_most(slab);
}

void hak_ragged_forget(struct superslab *s, const struct slab *slab) {
    uint32_t bit = (uint32_t)1 << slab->unit_idx;
    if ((s->ragged_slabs & bit) != 0) {
        s->ragged_slabs &= ~bit;
        hak_superslab_pool.ragged.waiting--;
    }
}

void hak_ragged_forget_all(void) {
    hak_superslab_pool.ragged.waiting = 0;
}

/* Leases one of a SuperSlab's that wait. */
static struct slab *lease_one(struct superslab *s) {
    for (uint32_t left = s->ragged_slabs; left != 0; left &= left - 1) {
        struct slab *slab = &s->slabs[hak_ctz32(left)];
        if (hak_slab_lease_any(slab)) {
            hak_ragged_forget(s, slab);
            return slab;
        }
    }
    return NULL;
}

bool hak_ragged_take_turn(uint64_t now_ms) {
    if (!is_any_waiting() || !hak_ragged_is_time(now_ms)) {
        return false;
    }
    begin_turn(now_ms);
    return true;
}

/* What was long ago counts for less and less; where little is missed, fewer turns are skipped. */
static void fade(struct ragged *ragged) {
    bool is_missed =
        ragged->missed_bytes >= JUDGED_BYTES / 4 && ragged->missed_bytes >= ragged->purged_bytes / 4;
    ragged->skips = is_missed ? ragged->skips : ragged->skips / 2;
    ragged->purged_bytes /= 2;
    ragged->missed_bytes /= 2;
}

/* What was missed a while ago says nothing about a heap that has shrunk for good since. */
static void fade_with_time(struct ragged *ragged, uint64_t now_ms) {
    if (now_ms >= ragged->eased_ms + EASE_MS) {
        fade(ragged);
        ragged->eased_ms = now_ms;
    }
}

struct slab *hak_ragged_next(uint64_t now_ms) {
    struct ragged *ragged = &hak_superslab_pool.ragged;
    if (!is_any_waiting()) {
        return NULL;
    }
    fade_with_time(ragged, now_ms);
    if (ragged->skipped < ragged->skips) {
        ragged->skipped++;
        return NULL;
    }
    for (unsigned looked = 0; ragged->waiting != 0 && looked < SUPERSLABS_LOOK_MAX; looked++) {
        struct superslab *s = hak_superslab_at(ragged->cursor);
        struct slab *slab = s != NULL ? lease_one(s) : NULL;
        if (slab != NULL) {
            ragged->skipped = 0;
            return slab;
        }
        ragged->cursor = s != NULL ? ragged->cursor + 1 : 0;
    }
    return NULL;
}

void hak_ragged_note_purged(size_t bytes) {
    struct ragged *ragged = &hak_superslab_pool.ragged;
    ragged->purged_bytes += bytes;
    if (ragged->purged_bytes > WINDOW_BYTES) {
        fade(ragged);
    }
}

void hak_ragged_note_missed(size_t bytes, uint64_t now_ms) {
    struct ragged *ragged = &hak_superslab_pool.ragged;
    ragged->missed_bytes += bytes;
    if (ragged->purged_bytes < JUDGED_BYTES || ragged->missed_bytes < ragged->purged_bytes / 2) {
        return;
    }
    unsigned skips = ragged->skips == 0 ? SKIPS_FIRST : ragged->skips * 2 + 1;
    ragged->skips = skips < SKIPS_MAX ? skips : SKIPS_MAX;
    ragged->purged_bytes = ragged->missed_bytes = 0;
    ragged->eased_ms = now_ms;
}
