/*
 * retention.c - see retention.h. Threads read the clock before they take the lock, so that a later call may
 * come with an earlier time: comparisons are of sums.
 */
#include "slab/retention.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/hint.h"

#define MISSED_WITHIN_MS   1000u /* after the last purge of a cycle, or it was right to purge */
#define CYCLE_MS_MAX       2000u /* a cycle that is no longer one of going back and forth */
#define PROOFS_TO_RAISE    2u
#define LIVE_SHARE_SHIFT   6u                   /* a 64th of what is in use stays, */
#define PROVED_SHARE_SHIFT 3u                   /* an eighth where it is proved, */
#define PEAK_MARGIN_SHIFT  3u                   /* an eighth: what is free may be cut up among sizes */
#define CYCLE_BYTES_MIN    ((size_t)256 * 1024) /* less is not worth keeping anything for */
#define WINDOW_MS          1000u
#define MISSED_PER_MS_MIN  ((size_t)48 * 1024)  /* 12 pages at 2 to 3 us each: some 3 % of a thread's time */
#define MISSED_PER_MS_MUCH ((size_t)192 * 1024) /* some 12 % */
#define LAPSED_WINDOWS_MAX 32u                  /* after that many halvings nothing is left */
#define HELPER_WAITS_MS    100u  /* what is freed may be wanted again, or be whole SuperSlabs then */
#define HELPER_IS_LATE_MS  1000u /* it has not come by for so long, or is stopped */

static _Atomic size_t raised_bytes_of[HAK_RETAINERS];
static _Atomic size_t beside_bytes_of[HAK_RETAINERS];
HAK_READ_MOSTLY static _Atomic bool has_helper;

void hak_retention_note_raised(enum hak_retainer who, size_t bytes) {
    hak_atomic_store_relaxed(&raised_bytes_of[who],
                             bytes); /* relaxed: one number, the other side bounds itself by it */
}

void hak_retention_note_beside(enum hak_retainer who, size_t bytes) {
    hak_atomic_store_relaxed(&beside_bytes_of[who], bytes); /* relaxed: as above */
}

void hak_retention_note_wider(ptrdiff_t bytes) {
    (void)hak_atomic_add_relaxed(&raised_bytes_of[HAK_RETAINER_CACHES],
                                 (size_t)bytes); /* relaxed: as above */
}

size_t hak_retention_raised_bytes(enum hak_retainer who) {
    return hak_atomic_load_relaxed(&raised_bytes_of[who]); /* relaxed: as above */
}

bool hak_retention_is_raised(enum hak_retainer who) {
    /* relaxed: a hint */
    return hak_retention_raised_bytes(who) != 0 || hak_atomic_load_relaxed(&beside_bytes_of[who]) != 0;
}

size_t hak_retention_capped_max(enum hak_retainer who, unsigned capped) {
    bool is_lasting = capped == HAK_CAPPED_TO_LAST;
    size_t left_bytes = (size_t)(is_lasting ? hak_options.lasting_mb : hak_options.retain_mb) << 20;
    for (unsigned other = 0; other < HAK_RETAINERS; other++) {
        left_bytes -= other != who ? hak_smaller(left_bytes, hak_retention_raised_bytes(other)) : 0;
    }
    return left_bytes;
}

size_t hak_retention_raise_max(enum hak_retainer who) {
    return hak_retention_capped_max(who, 0);
}

/* Whether so much was faulted in since then, at the rate or faster. */
static bool comes_at(size_t per_ms, size_t bytes, uint64_t since_ms, uint64_t now_ms) {
    return now_ms <= since_ms + bytes / per_ms;
}

void hak_retention_count_capped(unsigned *capped, bool wanted_more, size_t bytes, uint64_t since_ms,
                                uint64_t now_ms) {
    *capped +=
        wanted_more && *capped != HAK_CAPPED_TO_LAST && comes_at(MISSED_PER_MS_MUCH, bytes, since_ms, now_ms);
}

static void set_raised(struct retention *r, size_t bytes) {
    size_t beside_bytes = hak_smaller(bytes, r->share_bytes);
    r->raised_bytes = bytes;
    hak_retention_note_raised(HAK_RETAINER_SLABS, bytes - beside_bytes);
    hak_retention_note_beside(HAK_RETAINER_SLABS, beside_bytes);
}

/* What there can be in use and free at once, by the use that there was lately. Where what is free is cut up,
 * the next piece is mapped: without room for that one it would go back and be mapped again each time. */
static size_t peak_bytes(const struct retention *r) {
    return r->peak_used_bytes + (r->peak_used_bytes >> PEAK_MARGIN_SHIFT) + r->piece_bytes;
}

/* What the floor may rise by at most, now. Beyond the peak nothing is wanted, and others would lack it. */
static size_t raise_max(const struct retention *r) {
    return hak_smaller(peak_bytes(r),
                       r->share_bytes + hak_retention_capped_max(HAK_RETAINER_SLABS, r->capped));
}

/* What may stay beside HAKMEM_RETAIN_MB changes with what is in use. */
static void set_share(struct retention *r, size_t live_bytes) {
    size_t share_bytes = (live_bytes >> PROVED_SHARE_SHIFT) - (live_bytes >> LIVE_SHARE_SHIFT);
    r->share_bytes = hak_options.retain_mb == 0 ? 0 : share_bytes;
    if (r->raised_bytes != 0) {
        set_raised(r, hak_smaller(r->raised_bytes, raise_max(r)));
    }
}

/* Half of what lay idle all through a window, beyond the floor as it is without proof, is not worth keeping.
 */
static void close_window(struct retention *r) {
    size_t base_bytes = hak_larger(r->base_bytes, hak_retention_base_bytes());
    if (r->min_dirty_bytes > base_bytes) {
        /* Rounded up, so that the floor reaches its base. */
        size_t fall_bytes = hak_smaller(r->raised_bytes, (r->min_dirty_bytes - base_bytes + 1) / 2);
        set_raised(r, r->raised_bytes - fall_bytes);
    }
    r->min_dirty_bytes = r->dirty_bytes;
    r->peak_used_bytes -= (r->peak_used_bytes - r->max_used_bytes) / 2;
    r->max_used_bytes = r->used_bytes;
}

static void age(struct retention *r, uint64_t now_ms) {
    if (r->window_start_ms == 0) { /* the first one begins */
        r->window_start_ms = now_ms;
    }
    if (now_ms < r->window_start_ms + WINDOW_MS) {
        return;
    }
    uint64_t lapsed = (now_ms - r->window_start_ms) / WINDOW_MS;
    for (uint64_t i = 0; i < lapsed && i < LAPSED_WINDOWS_MAX; i++) {
        close_window(r);
    }
    r->window_start_ms = now_ms;
}

static void forget_cycle(struct retention *r) {
    r->purged_bytes = 0;
    r->missed_bytes = 0;
}

/* What was not missed in time was purged rightly. */
static void expire_cycle(struct retention *r, uint64_t now_ms) {
    bool is_over = now_ms > r->purged_ms + MISSED_WITHIN_MS || now_ms > r->cycle_start_ms + CYCLE_MS_MAX;
    if (r->purged_bytes != 0 && is_over) {
        forget_cycle(r);
        r->proofs = r->capped = 0;
    }
}

void hak_retention_note_purged(struct retention *r, size_t bytes, uint64_t now_ms) {
    age(r, now_ms);
    expire_cycle(r, now_ms);
    if (r->purged_bytes == 0) {
        r->cycle_start_ms = now_ms;
    }
    r->purged_bytes += bytes;
    r->purged_ms = now_ms;
}

/* Whether what was missed in the cycle came back so fast that faulting it in is worth being saved. */
static bool is_costly(const struct retention *r, uint64_t now_ms) {
    return comes_at(MISSED_PER_MS_MIN, r->missed_bytes, r->cycle_start_ms, now_ms);
}

/* The cycle that ends now is proved. */
static void raise_floor(struct retention *r, uint64_t now_ms) {
    size_t wanted_bytes = hak_smaller(r->raised_bytes + r->purged_bytes, peak_bytes(r));
    hak_retention_count_capped(&r->capped, wanted_bytes > raise_max(r), r->missed_bytes, r->cycle_start_ms,
                               now_ms);
    set_raised(r, hak_smaller(wanted_bytes, raise_max(r)));
}

void hak_retention_note_missed(struct retention *r, size_t bytes, uint64_t now_ms) {
    age(r, now_ms);
    expire_cycle(r, now_ms);
    if (r->purged_bytes == 0) {
        return;
    }
    r->missed_bytes += bytes;
    if (r->purged_bytes < CYCLE_BYTES_MIN || r->missed_bytes < r->purged_bytes / 2) {
        return;
    }
    r->proofs = is_costly(r, now_ms) ? r->proofs + (r->proofs < PROOFS_TO_RAISE) : 0;
    if (r->proofs == PROOFS_TO_RAISE && !r->is_set) {
        raise_floor(r, now_ms);
    }
    forget_cycle(r);
}

void hak_retention_note_dirty(struct retention *r, size_t dirty_bytes) {
    r->dirty_bytes = dirty_bytes;
    r->min_dirty_bytes = hak_smaller(r->min_dirty_bytes, dirty_bytes);
}

void hak_retention_note_used(struct retention *r, size_t used_bytes) {
    r->used_bytes = used_bytes;
    r->max_used_bytes = hak_larger(r->max_used_bytes, used_bytes);
    r->peak_used_bytes = hak_larger(r->peak_used_bytes, used_bytes);
}

void hak_retention_note_piece(struct retention *r, size_t piece_bytes) {
    r->piece_bytes = hak_larger(r->piece_bytes, piece_bytes);
}

/* What the use that there was lately could want again. */
static size_t wanted_bytes(const struct retention *r) {
    return peak_bytes(r) - r->used_bytes;
}

void hak_retention_set_helper(bool is_there) {
    hak_hint_set(&has_helper, is_there);
}

/* How long that waits which is beyond the floor. */
static unsigned delay_ms(size_t excess_bytes, enum hak_giver giver) {
    bool is_much = excess_bytes > (size_t)hak_options.lasting_mb << 20;
    /* relaxed: a hint */
    if (is_much || !hak_atomic_load_relaxed(&has_helper)) {
        return hak_options.purge_ms;
    }
    return (unsigned)hak_larger(hak_options.purge_ms,
                                giver == HAK_GIVER_HELPER ? HELPER_WAITS_MS : HELPER_IS_LATE_MS);
}

bool hak_retention_is_due(uint64_t *over_since_ms, struct hak_over over, enum hak_giver giver,
                          uint64_t now_ms) {
    if (!over.is_over) {
        *over_since_ms = 0;
        return false;
    }
    /* Another thread, whose look at the clock was later, may have been here first. */
    if (*over_since_ms == 0 || now_ms < *over_since_ms) {
        *over_since_ms = now_ms;
    }
    return now_ms >= *over_since_ms + delay_ms(over.excess_bytes, giver);
}

void hak_refusals_note(struct hak_refusals *refusals, bool is_refused, unsigned most, uint64_t until_ms) {
    refusals->in_row = is_refused ? refusals->in_row + 1 : 0;
    if (refusals->in_row == most) {
        *refusals = (struct hak_refusals){.in_row = 0, .until_ms = until_ms};
    }
}

void hak_retention_set(struct retention *r, size_t bytes) {
    r->is_set = true;
    r->set_bytes = bytes;
    set_raised(r, 0); /* and stays so: no cycle proves anything any more */
}

size_t hak_retention_floor_bytes(struct retention *r, size_t live_bytes, uint64_t now_ms) {
    if (r->is_set) {
        return r->set_bytes;
    }
    age(r, now_ms);
    set_share(r, live_bytes);
    r->base_bytes = hak_retention_base_bytes() + (live_bytes >> LIVE_SHARE_SHIFT);
    return r->base_bytes + hak_smaller(r->raised_bytes, wanted_bytes(r));
}
