/*
 * retain.c - see retain.h.
 */
#include "large/retain.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "conf/options.h"
#include "large/parked.h"
#include <limits.h>

#define MIB         ((size_t)1024 * 1024)
#define FLOOR_BYTES ((size_t)HAK_BASE_FLOOR_KIB * 1024)
/* Without an operation for this many steps of ageing, everything that was raised has been idle. */
#define IDLE_STEPS_MAX 4u

/* A cycle is proved once one part in so many of what was given back has been fetched again. */
#define PROOF_PARTS 3u

/* Where the heap grows by a mapping, no more than this part of it is within what was live before. */
#define GROWTH_PARTS 4u

/* Half of what is live may stay beyond HAKMEM_RETAIN_MB. */
#define BEYOND_LIVE_SHIFT 1u

/* Values of the policy that leave the floor to floor_bytes alone. */
#define LIVE_SHIFT_NONE 63u
#define PROOFS_NEVER    UINT_MAX

HAK_CONTENDED struct hak_lock hak_large_lock = HAK_LOCK_INIT(HAK_RANK_LARGE);

HAK_READ_MOSTLY struct hak_large_policy hak_large_policy = {
    .floor_bytes = FLOOR_BYTES,
    .floor_live_shift = 6,
    .proved_live_shift = 3,
    .proof_count = 2,
    .proof_ms = 1000,
    .release_bytes_max = 16 * MIB,
    .kept_count_max = 64,
    .move_min_bytes = (size_t)128 * 1024,
    .cut_bytes_max = (size_t)64 * 1024 * MIB,
    .seams_count_max = 8192,
    .moved_count_max = 16384,
    .parked_bytes_max = HAK_PARKED_BYTES_MAX,
};

struct hak_retain hak_retain;

static void forget_proofs(void) {
    for (unsigned kind = 0; kind < HAK_LARGE_KINDS; kind++) {
        hak_retain.cycles[kind].proofs = hak_retain.cycles[kind].capped = 0;
    }
}

static void set_raised(size_t bytes, size_t beyond_bytes) {
    hak_retain.raised_bytes = bytes;
    hak_retain.beyond_bytes = beyond_bytes;
    hak_retention_note_raised(HAK_RETAINER_LARGE, bytes);
    hak_retention_note_beside(HAK_RETAINER_LARGE, beyond_bytes);
}

/* Whether what was given back lately was wanted again, be it once. */
static bool is_proved(void) {
    return hak_retain.cycles[HAK_LARGE_RUNS].proofs != 0 || hak_retain.cycles[HAK_LARGE_MAPPINGS].proofs != 0;
}

static size_t share_bytes(bool is_proved_now) {
    return hak_retain.live_bytes >>
           (is_proved_now ? hak_large_policy.proved_live_shift : hak_large_policy.floor_live_shift);
}

static size_t base_floor_bytes(void) {
    return hak_large_policy.floor_bytes + share_bytes(is_proved() && !hak_retain.is_outgrown);
}

/* By how much the floor may be beyond HAKMEM_RETAIN_MB now. */
static size_t beyond_max_bytes(void) {
    size_t below_peak_bytes = hak_retain.peak_live_bytes - hak_retain.live_bytes;
    return hak_options.retain_mb == 0
               ? 0
               : hak_smaller(hak_retain.live_bytes >> BEYOND_LIVE_SHIFT, below_peak_bytes);
}

/* Half of what lay idle for a whole step, beyond the floor as it is without proof, is not worth keeping. */
static void lower_by_idle(size_t idle_bytes) {
    size_t base_bytes = base_floor_bytes();
    if (idle_bytes <= base_bytes) {
        return;
    }
    /* Rounded up, so that the floor reaches its base. */
    size_t fall_bytes = (idle_bytes - base_bytes + 1) / 2;
    size_t beyond_fall_bytes = hak_smaller(fall_bytes, hak_retain.beyond_bytes);
    size_t raised_fall_bytes = hak_smaller(fall_bytes - beyond_fall_bytes, hak_retain.raised_bytes);
    set_raised(hak_retain.raised_bytes - raised_fall_bytes, hak_retain.beyond_bytes - beyond_fall_bytes);
}

void hak_retain_touch(uint64_t now_ms) {
    if (now_ms < hak_retain.touched_ms) {
        now_ms =
            hak_retain.touched_ms; /* another thread, whose look at the clock was later, was here first */
    }
    uint64_t step_ms = hak_large_policy.proof_ms;
    uint64_t quiet_ms = now_ms - hak_retain.touched_ms;
    if (quiet_ms >= step_ms * IDLE_STEPS_MAX) {
        set_raised(0, 0);
        forget_proofs();
    } else if (quiet_ms >= step_ms) {
        lower_by_idle(hak_retain.dirty_bytes);
    } else if (now_ms - hak_retain.min_since_ms >= step_ms) {
        lower_by_idle(hak_retain.min_dirty_bytes);
    }
    if (now_ms - hak_retain.min_since_ms >= step_ms) {
        hak_retain.min_since_ms = now_ms;
        hak_retain.min_dirty_bytes = hak_retain.dirty_bytes;
    }
    hak_retain.touched_ms = now_ms;
    hak_retain.is_outgrown = false;
}

void hak_retain_note_freed(size_t bytes) {
    hak_retain.is_outgrown = bytes <= hak_retain.outgrown_bytes;
}

void hak_retain_add_live(size_t bytes) {
    hak_retain.live_blocks++;
    hak_retain.live_bytes += bytes;
    hak_retain.peak_live_bytes = hak_larger(hak_retain.peak_live_bytes, hak_retain.live_bytes);
    hak_parked_note_live(hak_retain.live_bytes, share_bytes(is_proved()));
}

void hak_retain_remove_live(size_t bytes) {
    HAK_ASSERT(hak_retain.live_blocks != 0 && hak_retain.live_bytes >= bytes);
    hak_retain.live_blocks--;
    hak_retain.live_bytes -= bytes;
    hak_parked_note_live(hak_retain.live_bytes, share_bytes(is_proved()));
}

void hak_retain_add_dirty(size_t bytes) {
    hak_retain.dirty_bytes += bytes;
}

void hak_retain_remove_dirty(size_t bytes) {
    HAK_ASSERT(hak_retain.dirty_bytes >= bytes);
    hak_retain.dirty_bytes -= bytes;
    hak_retain.min_dirty_bytes = hak_smaller(hak_retain.min_dirty_bytes, hak_retain.dirty_bytes);
}

static void forget_cycle(struct hak_cycle *cycle) {
    cycle->returned_bytes = 0;
    cycle->fetched_bytes = 0;
    cycle->peak_bytes = 0;
}

/* What was given back and not wanted for a whole proof_ms was given back rightly. */
static void expire_cycle(struct hak_cycle *cycle, uint64_t now_ms) {
    /* A sum: another thread may have read the clock later and been here first. */
    if (cycle->returned_bytes != 0 && now_ms > cycle->returned_ms + hak_large_policy.proof_ms) {
        forget_cycle(cycle);
        cycle->proofs = cycle->capped = 0;
    }
}

void hak_retain_returned(enum hak_large_kind kind, size_t bytes, uint64_t now_ms) {
    struct hak_cycle *cycle = &hak_retain.cycles[kind];
    if (bytes == 0) {
        return;
    }
    expire_cycle(cycle, now_ms);
    if (cycle->returned_bytes == 0) {
        cycle->started_ms = now_ms;
    }
    size_t before_bytes = hak_retain.dirty_bytes + bytes;
    before_bytes -= hak_smaller(before_bytes, hak_large_policy.floor_bytes);
    cycle->peak_bytes = hak_larger(cycle->peak_bytes, before_bytes);
    cycle->returned_bytes += bytes;
    cycle->returned_ms = now_ms;
}

static void raise_floor(struct hak_cycle *cycle, size_t bytes, uint64_t now_ms) {
    size_t allowed_bytes = hak_retention_capped_max(HAK_RETAINER_LARGE, cycle->capped) + beyond_max_bytes();
    hak_retention_count_capped(&cycle->capped, bytes > allowed_bytes, cycle->fetched_bytes, cycle->started_ms,
                               now_ms);
    size_t within_bytes = hak_smaller(bytes, hak_retention_capped_max(HAK_RETAINER_LARGE, cycle->capped));
    size_t beyond_bytes = hak_smaller(bytes - within_bytes, beyond_max_bytes());
    set_raised(hak_larger(within_bytes, hak_retain.raised_bytes),
               hak_larger(beyond_bytes, hak_retain.beyond_bytes));
}

/* What had to stay for none of it to be fetched: what there was at once, or, where it went bit by bit, more.
 */
static size_t proved_bytes(const struct hak_cycle *cycle) {
    size_t fetched_bytes = hak_smaller(cycle->fetched_bytes, cycle->returned_bytes);
    return hak_larger(hak_retain.raised_bytes + hak_retain.beyond_bytes + fetched_bytes, cycle->peak_bytes);
}

/*
 * Whether a mapping that is about to be live, and so much of which has no pages, is for the most part beyond
 * all that was ever live: the heap grows then, and nothing comes back.
 */
static bool is_growth(size_t bytes) {
    return hak_retain.live_bytes + bytes > hak_retain.peak_live_bytes + bytes / GROWTH_PARTS;
}

void hak_retain_fetched(enum hak_large_kind kind, size_t bytes, uint64_t now_ms) {
    struct hak_cycle *cycle = &hak_retain.cycles[kind];
    expire_cycle(cycle, now_ms);
    bool is_growing = kind == HAK_LARGE_MAPPINGS && is_growth(bytes);
    if (kind == HAK_LARGE_MAPPINGS) {
        hak_retain.outgrown_bytes = is_growing ? bytes - bytes / GROWTH_PARTS : 0;
    }
    if (cycle->returned_bytes == 0 || is_growing) {
        return;
    }
    cycle->fetched_bytes += bytes;
    if (cycle->fetched_bytes < cycle->returned_bytes / PROOF_PARTS) {
        return;
    }
    if (++cycle->proofs >= hak_large_policy.proof_count) {
        raise_floor(cycle, proved_bytes(cycle), now_ms);
    }
    forget_cycle(cycle);
}

size_t hak_retain_excess(void) {
    size_t beyond_bytes = hak_smaller(hak_retain.beyond_bytes, beyond_max_bytes());
    size_t limit_bytes = base_floor_bytes() + hak_retain.raised_bytes + beyond_bytes;
    return hak_retain.dirty_bytes > limit_bytes ? hak_retain.dirty_bytes - limit_bytes : 0;
}

void hak_retain_bound_floor(size_t bytes) {
    hak_large_policy.floor_bytes = hak_smaller(hak_large_policy.floor_bytes, bytes);
}

void hak_retain_set_floor(size_t bytes) {
    hak_lock_acquire(&hak_large_lock);
    hak_large_policy.floor_bytes = bytes;
    hak_large_policy.floor_live_shift = LIVE_SHIFT_NONE;
    hak_large_policy.proved_live_shift = LIVE_SHIFT_NONE;
    hak_large_policy.proof_count = PROOFS_NEVER;
    set_raised(0, 0);
    /* relaxed: runs that are parked meanwhile stay until memory is next given back */
    hak_atomic_store_relaxed(&hak_large_policy.parked_bytes_max,
                             bytes < FLOOR_BYTES ? 0 : HAK_PARKED_BYTES_MAX);
    hak_lock_release(&hak_large_lock);
}
