/*
 * release.c - see release.h. One step is one piece of memory: picked under the lock, given back without it,
 * settled under it.
 */
#include "large/release.h"
#include "base/atomic.h"
#include "base/hint.h"
#include "large/extent.h"
#include "large/large.h"
#include "large/mapping.h"
#include "large/parked.h"
#include "large/retain.h"
#include "os/os.h"

/* Less than this is not left of a kept piece when its end is given back: nothing of use would fit it. */
#define PIECE_BYTES_MIN ((size_t)1024 * 1024)

/* Purges in a row that are refused, after which none is tried for a proof_ms. */
#define REFUSALS_MAX      4u
#define TRIM_REFUSALS_MAX 16u

/* Of the helper thread each time that it comes by: what then is left it gives back the next time. */
#define HELP_CALLS_MAX 1024u

/* For so many of these no run is picked where one was refused, or the same would come first after each pause.
 */
#define REFUSED_STEPS 64u

HAK_READ_MOSTLY _Atomic bool hak_release_has_debt;

/* What a step gives back: the end of a mapping, the dirty part of a run, or a closed extent's SuperSlab. */
struct step {
    uint64_t since_ms;           /* in: no run is picked where a purge was refused at that time or later */
    struct hak_mapping *mapping; /* NULL: the SuperSlab or the run */
    struct superslab *superslab; /* NULL: the run */
    uint32_t zero_units;         /* of the SuperSlab */
    struct hak_run run;
    uintptr_t start;
    size_t bytes;
};

/* How a step ended. POOLED: the SuperSlab went to the pool, whose floor has proofs of its own. */
enum outcome { FAILED, PURGED, UNMAPPED, POOLED };

/* The end goes, so what is clean there goes along with the dirty bytes that are too many. */
static void pick_mapping(struct step *step, struct hak_mapping *mapping, size_t excess_bytes) {
    size_t cut_bytes = mapping->bytes;
    if (excess_bytes < mapping->dirty_bytes) {
        cut_bytes = mapping->bytes - hak_round_down(mapping->dirty_bytes - excess_bytes, HAK_UNIT_BYTES);
    }
    if (mapping->bytes - cut_bytes < PIECE_BYTES_MIN) {
        cut_bytes = mapping->bytes;
    }
    hak_mapping_kept_to_transit(mapping);
    step->mapping = mapping;
    step->start = mapping->base + mapping->bytes - cut_bytes;
    step->bytes = cut_bytes;
}

static bool pick_run(struct step *step) {
    size_t page_bytes = hak_os_page_bytes();
    struct hak_extent *surplus = hak_extent_dirty_surplus();
    step->mapping = NULL;
    step->superslab = NULL;
    if (surplus != NULL) {
        step->bytes = surplus->dirty_pages * page_bytes;
        step->superslab = hak_extent_close(surplus, &step->zero_units);
        return true;
    }
    if (!hak_extent_hold_dirtiest(&step->run, step->since_ms)) {
        return false;
    }
    const struct hak_run *run = &step->run;
    unsigned first = hak_page_map_find(&run->dirty, 0, HAK_EXTENT_PAGES_MAX, true);
    unsigned end = hak_page_map_last_end(&run->dirty, 0, HAK_EXTENT_PAGES_MAX);
    step->start = (uintptr_t)hak_extent_address(run->extent, first, page_bytes);
    step->bytes = (end - first) * page_bytes;
    return true;
}

/*
 * Lock held. Of mappings the one kept longest gives first, of runs the longest, which gives most for one
 * call. False when nothing can be given back.
 */
static bool pick(struct step *step, size_t excess_bytes, bool runs_first, bool may_purge) {
    struct hak_mapping *mapping = hak_mapping_oldest();
    if (may_purge && (mapping == NULL || runs_first) && pick_run(step)) {
        return true;
    }
    if (mapping != NULL) {
        pick_mapping(step, mapping, excess_bytes);
        return true;
    }
    return false;
}

/* What an operation may still do. */
struct budget {
    enum hak_giver giver;
    size_t bytes;
    unsigned calls; /* one of them, the last, may be two: an unmapping that fails, and a purge */
};

/* Lock held. What is above the floor, at most as much of it as is left: of mappings and runs, whichever holds
 * more. */
static bool pick_excess(struct step *step, const struct budget *left, uint64_t now_ms) {
    size_t excess_bytes = hak_retain_excess();
    size_t max_bytes = left->bytes;
    struct hak_over over = {.is_over = excess_bytes != 0, .excess_bytes = excess_bytes};
    if (!hak_retention_is_due(&hak_retain.over_since_ms, over, left->giver, now_ms)) {
        excess_bytes = 0;
    }
    if (hak_mapping_totals.kept_count > hak_large_policy.kept_count_max) {
        pick_mapping(step, hak_mapping_oldest(), max_bytes);
        return true;
    }
    bool runs_first = hak_mapping_totals.kept_bytes < hak_retain.dirty_bytes / 2;
    size_t wanted_bytes = hak_smaller(excess_bytes, max_bytes);
    return wanted_bytes != 0 &&
           pick(step, wanted_bytes, runs_first, !hak_refusals_were_many(&hak_retain.refusals, now_ms));
}

/*
 * No lock. Takes the calls that it makes from *calls_left. Unmapping part of a mapping fails when the
 * kernel's limit of maps is reached; purging does not.
 */
static enum outcome carry_out(const struct step *step, unsigned *calls_left) {
    if (step->mapping == NULL && step->superslab != NULL) {
        *calls_left -= hak_superslab_give_whole(step->superslab, step->zero_units, *calls_left);
        return POOLED;
    }
    --*calls_left;
    if (step->mapping != NULL && hak_os_unmap((void *)step->start, step->bytes) == 0) {
        return UNMAPPED;
    }
    return hak_os_purge((void *)step->start, step->bytes) == 0 ? PURGED : FAILED;
}

static size_t settle_mapping(const struct step *step, enum outcome outcome) {
    struct hak_mapping *mapping = step->mapping;
    size_t left_bytes = mapping->bytes - step->bytes;
    size_t dirty_before_bytes = mapping->dirty_bytes;
    if (outcome != FAILED && mapping->dirty_bytes > left_bytes) {
        mapping->dirty_bytes = left_bytes;
    }
    size_t given_bytes = dirty_before_bytes - mapping->dirty_bytes;
    if (outcome == UNMAPPED && left_bytes == 0) {
        hak_mapping_transit_to_spare(mapping);
        return given_bytes;
    }
    if (outcome == UNMAPPED) {
        struct hak_seams gone;
        hak_mapping_cut_seams(mapping, left_bytes, &gone);
        mapping->bytes = left_bytes;
        hak_mapping_sever_after(mapping);
    }
    hak_mapping_transit_to_kept(mapping);
    return given_bytes;
}

/* Some locked pages keep their extent from going back; many refusals in a row may be all of memory. */
static void note_refusal(const struct step *step, enum outcome outcome, uint64_t now_ms) {
    if (outcome == FAILED && step->mapping == NULL) {
        hak_extent_note_refused(&step->run, now_ms);
    }
    if (outcome == FAILED || outcome == PURGED) {
        hak_refusals_note(&hak_retain.refusals, outcome == FAILED, REFUSALS_MAX,
                          now_ms + hak_large_policy.proof_ms);
    }
}

/* Lock held. Puts the step's memory where it belongs now; returns the dirty bytes given back. */
static size_t settle(const struct step *step, enum outcome outcome, uint64_t now_ms) {
    size_t given_bytes = 0;
    if (step->mapping != NULL) {
        given_bytes = settle_mapping(step, outcome);
    } else if (outcome == POOLED) {
        given_bytes = step->bytes;
    } else {
        bool is_zero = outcome == PURGED;
        given_bytes = is_zero ? step->run.dirty_pages * hak_os_page_bytes() : 0;
        hak_extent_purged_to_free(&step->run, is_zero);
    }
    note_refusal(step, outcome, now_ms);
    return given_bytes;
}

/* One call's worth of what is above the floor; false when nothing more can be given back now. */
static bool release_step(struct budget *left, uint64_t now_ms) {
    struct step step = {.since_ms = now_ms - hak_smaller(now_ms, REFUSED_STEPS * hak_large_policy.proof_ms)};
    hak_lock_acquire(&hak_large_lock);
    bool has_step = pick_excess(&step, left, now_ms);
    hak_lock_release(&hak_large_lock);
    if (!has_step) {
        return false;
    }
    enum outcome outcome = carry_out(&step, &left->calls);
    hak_lock_acquire(&hak_large_lock);
    size_t given_bytes = settle(&step, outcome, now_ms);
    hak_retain_returned(step.mapping != NULL ? HAK_LARGE_MAPPINGS : HAK_LARGE_RUNS,
                        outcome == POOLED ? 0 : given_bytes, now_ms);
    hak_lock_release(&hak_large_lock);
    left->bytes -= hak_smaller(given_bytes, left->bytes);
    /* What cannot be unmapped now, the kernel's maps being used up, is not tried again in this operation. */
    return step.mapping == NULL || outcome == UNMAPPED;
}

static bool release(struct budget left, uint64_t now_ms) {
    bool has_given = false;
    hak_lock_acquire(&hak_large_lock);
    hak_parked_flush(false);
    hak_lock_release(&hak_large_lock);
    while (left.bytes >= HAK_UNIT_BYTES && left.calls != 0 && release_step(&left, now_ms)) {
        has_given = true;
    }
    hak_lock_acquire(&hak_large_lock);
    /* What failed is left alone for a while: no debt, or every operation would try it. */
    bool has_debt = hak_retain_is_over() && !hak_refusals_were_many(&hak_retain.refusals, now_ms) &&
                    (left.bytes < HAK_UNIT_BYTES || left.calls == 0);
    hak_hint_set(&hak_release_has_debt, has_debt);
    hak_lock_release(&hak_large_lock);
    return has_given;
}

bool hak_release_excess(size_t own_bytes, unsigned calls_max, uint64_t now_ms) {
    size_t bytes = hak_larger(2 * own_bytes, hak_large_policy.release_bytes_max);
    return release((struct budget){.giver = HAK_GIVER_OPERATION, .bytes = bytes, .calls = calls_max}, now_ms);
}

bool hak_release_age(void) {
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_large_lock);
    hak_retain_touch(now_ms);
    return hak_release_unlock(0, now_ms);
}

void hak_release_help(void) {
    struct budget all = {.giver = HAK_GIVER_HELPER, .bytes = SIZE_MAX, .calls = HELP_CALLS_MAX};
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_large_lock);
    hak_retain_touch(now_ms);
    hak_lock_release(&hak_large_lock);
    (void)release(all, now_ms);
}

/* Gives every empty extent back to the SuperSlab pool. */
static void close_empty_extents(void) {
    for (;;) {
        uint32_t zero_units = 0;
        struct superslab *superslab = NULL;
        hak_lock_acquire(&hak_large_lock);
        struct hak_extent *extent = hak_extent_find_empty();
        if (extent != NULL) {
            superslab = hak_extent_close(extent, &zero_units);
        }
        hak_lock_release(&hak_large_lock);
        if (superslab == NULL) {
            return;
        }
        (void)hak_superslab_give_whole(superslab, zero_units, HAK_PURGE_STEP_CALLS);
    }
}

/* What a trim has done and may still try. */
struct trim {
    size_t keep_bytes;
    size_t given_bytes;
    size_t tries_left; /* for pieces that cannot be unmapped: none of them is asked for ever */
    unsigned refusals; /* of purges, or purges that gave nothing, in a row */
};

/* One step; false when there is nothing more to do, or nothing more that can be done. */
static bool trim_step(struct trim *trim) {
    struct step step = {.since_ms = 0};
    bool has_step = false;
    hak_lock_acquire(&hak_large_lock);
    if (hak_retain.dirty_bytes > trim->keep_bytes) {
        has_step = pick(&step, hak_retain.dirty_bytes - trim->keep_bytes, trim->tries_left == 0, true);
    } else if (trim->keep_bytes == 0 && hak_mapping_oldest() != NULL && trim->tries_left != 0) {
        pick_mapping(&step, hak_mapping_oldest(), SIZE_MAX);
        has_step = true;
    }
    hak_lock_release(&hak_large_lock);
    if (!has_step) {
        return false;
    }
    unsigned calls_left = HAK_PURGE_STEP_CALLS; /* of each step */
    enum outcome outcome = carry_out(&step, &calls_left);
    hak_lock_acquire(&hak_large_lock);
    size_t given_bytes = settle(&step, outcome, hak_retain.touched_ms);
    trim->given_bytes += given_bytes;
    hak_lock_release(&hak_large_lock);
    trim->tries_left -= step.mapping != NULL && outcome != UNMAPPED && trim->tries_left != 0;
    /* What was clean and could not be unmapped stands where it stood. */
    bool is_in_vain = outcome == FAILED || (outcome == PURGED && given_bytes == 0 && trim->tries_left == 0);
    trim->refusals = is_in_vain ? trim->refusals + 1 : 0;
    return trim->refusals < TRIM_REFUSALS_MAX;
}

/* Each extent may be tried once in this trim. */
static void forget_refusals(void) {
    for (struct hak_extent *extent = hak_extent_first(); extent != NULL; extent = extent->all_next) {
        extent->refused_ms = 0;
    }
}

size_t hak_large_trim(size_t keep_bytes) {
    struct trim trim = {.keep_bytes = keep_bytes, .tries_left = hak_large_policy.kept_count_max};
    hak_lock_acquire(&hak_large_lock);
    hak_parked_flush(true);
    forget_refusals();
    hak_lock_release(&hak_large_lock);
    while (trim_step(&trim)) {
    }
    if (keep_bytes == 0) {
        close_empty_extents();
        hak_hint_set(&hak_release_has_debt, false);
    }
    return trim.given_bytes;
}
