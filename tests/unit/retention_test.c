/*
 * retention_test.c - the floor of free memory: it rises for a proved ping-pong alone, stays while it is used,
 * falls when it is not. Time is simulated.
 */
#include "conf/options.h"
#include "large/retain.h"
#include "slab/retention.h"
#include "support/test.h"
#include <sys/mman.h>

#define CYCLE     (16 * MIB)
#define WINDOW_MS 1000u
#define PROOFS    2u /* cycles until the floor rises */

/* As after a peak that is far above all that a test keeps, however long ago: that bounds nothing. */
static struct retention used_much(void) {
    struct retention r = {0};
    hak_retention_note_used(&r, SIZE_MAX / 4);
    return r;
}

static void note_peak_and_fall(struct retention *r, size_t peak_bytes, size_t used_bytes) {
    hak_retention_note_used(r, peak_bytes);
    hak_retention_note_used(r, used_bytes);
}

/* A second in which CYCLE bytes are given back and wanted again. */
static uint64_t ping_pong_second(struct retention *r, uint64_t now_ms) {
    hak_retention_note_purged(r, CYCLE, now_ms);
    hak_retention_note_missed(r, CYCLE, now_ms + 10);
    return now_ms + WINDOW_MS;
}

/* A second in which kept memory was used and freed again; the least of it that was free is `unused`. */
static uint64_t reuse_second(struct retention *r, size_t unused, uint64_t now_ms) {
    hak_retention_note_dirty(r, unused);
    hak_retention_note_dirty(r, CYCLE);
    (void)hak_retention_floor_bytes(r, 0, now_ms);
    return now_ms + WINDOW_MS;
}

static uint64_t raise_floor(struct retention *r) {
    uint64_t now_ms = 1000000;
    for (unsigned second = 0; second < PROOFS; second++) {
        now_ms = ping_pong_second(r, now_ms);
    }
    return now_ms;
}

static void floor_is_a_base_and_a_share_of_what_is_live(void **state) {
    (void)state;
    struct retention r = used_much();
    assert_int_equal(hak_retention_floor_bytes(&r, 0, 5), hak_retention_base_bytes());
    assert_int_equal(hak_retention_floor_bytes(&r, 80 * MIB, 6), hak_retention_base_bytes() + 80 * MIB / 64);
}

/* What is asked when one more byte than the floor is free. */
static bool is_due(uint64_t *over_since_ms, enum hak_giver giver, uint64_t now_ms) {
    struct hak_over over = {.is_over = true, .excess_bytes = 1};
    return hak_retention_is_due(over_since_ms, over, giver, now_ms);
}

static void set_purge_ms(unsigned purge_ms) {
    assert_int_equal(mprotect(&hak_options, sizeof hak_options, PROT_READ | PROT_WRITE), 0);
    hak_options.purge_ms = purge_ms;
}

/* Threads look at the clock before they take the lock, so a later look may come first. */
static void an_earlier_look_at_the_clock_finds_it_due_as_well(void **state) {
    (void)state;
    uint64_t over_since_ms = 0;
    assert_int_equal(hak_options.purge_ms, 0);
    assert_true(is_due(&over_since_ms, HAK_GIVER_OPERATION, 1001));
    assert_true(is_due(&over_since_ms, HAK_GIVER_OPERATION, 1000));
    set_purge_ms(100);
    assert_false(is_due(&over_since_ms, HAK_GIVER_OPERATION, 1099));
    assert_true(is_due(&over_since_ms, HAK_GIVER_OPERATION, 1100)); /* from the earlier one on */
    assert_false(hak_retention_is_due(&over_since_ms, (struct hak_over){0}, HAK_GIVER_OPERATION, 1100));
    assert_false(is_due(&over_since_ms, HAK_GIVER_OPERATION, 1101)); /* as if for the first time */
    set_purge_ms(0);
}

static void what_is_beyond_waits_for_a_helper(void **state) {
    (void)state;
    uint64_t over_since_ms = 0;
    hak_retention_set_helper(true);
    assert_false(is_due(&over_since_ms, HAK_GIVER_OPERATION, 5000));
    assert_false(is_due(&over_since_ms, HAK_GIVER_HELPER, 5099));
    assert_true(is_due(&over_since_ms, HAK_GIVER_HELPER, 5100));
    assert_false(is_due(&over_since_ms, HAK_GIVER_OPERATION, 5999));
    assert_true(is_due(&over_since_ms, HAK_GIVER_OPERATION, 6000)); /* it does not come */
    set_purge_ms(2000);
    assert_false(is_due(&over_since_ms, HAK_GIVER_HELPER, 6999));
    assert_false(is_due(&over_since_ms, HAK_GIVER_OPERATION, 6999));
    assert_true(is_due(&over_since_ms, HAK_GIVER_OPERATION, 7000));
    set_purge_ms(0);
    hak_retention_set_helper(false);
    over_since_ms = 0;
    assert_true(is_due(&over_since_ms, HAK_GIVER_OPERATION, 8000));
}

static void no_more_waits_for_it_than_may_stay(void **state) {
    (void)state;
    uint64_t over_since_ms = 0;
    size_t most_bytes = hak_options.lasting_mb * MIB;
    struct hak_over over = {.is_over = true, .excess_bytes = most_bytes};
    hak_retention_set_helper(true);
    assert_false(hak_retention_is_due(&over_since_ms, over, HAK_GIVER_OPERATION, 5000));
    over.excess_bytes++;
    assert_true(hak_retention_is_due(&over_since_ms, over, HAK_GIVER_OPERATION, 5000));
    hak_retention_set_helper(false);
}

static void floor_rises_after_two_seconds_of_ping_pong(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = ping_pong_second(&r, 1000000);
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes());
    now_ms = ping_pong_second(&r, now_ms);
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + CYCLE);
}

/* A cycle in which CYCLE bytes are given back and missed `later_ms` after that. */
static uint64_t cycle(struct retention *r, uint64_t later_ms, uint64_t now_ms) {
    hak_retention_note_purged(r, CYCLE, now_ms);
    hak_retention_note_missed(r, CYCLE, now_ms + later_ms);
    return now_ms + later_ms;
}

static void short_cycles_prove_as_much_as_long_ones(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = 1000000;
    now_ms = cycle(&r, 1, now_ms);
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes());
    now_ms = cycle(&r, 1, now_ms);
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + CYCLE);
    now_ms = cycle(&r, 1, now_ms); /* and that was not enough yet */
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + 2 * CYCLE);
}

static void what_is_missed_late_proves_nothing(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = 1000000;
    for (unsigned i = 0; i < 10; i++) {
        now_ms = cycle(&r, 1001, now_ms);
    }
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes());
    /* One such cycle ends the row. */
    (void)cycle(&r, 1, cycle(&r, 1001, cycle(&r, 1, now_ms)));
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms + 1003), hak_retention_base_bytes());
}

/* Where the program has said what may stay nothing proves anything, and others have all of HAKMEM_RETAIN_MB.
 */
static void what_the_program_has_set_does_not_rise(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = cycle(&r, 1, raise_floor(&r));
    assert_int_not_equal(hak_retention_raised_bytes(HAK_RETAINER_SLABS), 0);
    hak_retention_note_purged(&r, CYCLE, now_ms);
    hak_retention_set(&r, CYCLE);
    for (unsigned i = 0; i < 2 * PROOFS; i++) {
        assert_int_equal(hak_retention_raised_bytes(HAK_RETAINER_SLABS), 0);
        now_ms = cycle(&r, 1, now_ms);
    }
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), CYCLE);
}

/* Faulting in what comes back slowly costs less than the memory would. */
static void what_is_missed_slowly_proves_nothing(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = 1000000;
    for (unsigned i = 0; i < 10; i++) {
        now_ms = cycle(&r, 400, now_ms);
    }
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes());
    /* One such cycle ends the row. */
    now_ms = cycle(&r, 1, cycle(&r, 400, cycle(&r, 1, now_ms)));
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes());
    now_ms = cycle(&r, 300, now_ms);
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + CYCLE);
}

/* A heap that goes back and forth by little purges little at a time. */
static void small_cycles_prove_together(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = 1000000;
    for (unsigned i = 0; i < 4; i++, now_ms++) {
        assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes());
        hak_retention_note_purged(&r, MIB / 8, now_ms);
        hak_retention_note_missed(&r, MIB / 8, now_ms);
    }
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + MIB / 4);
}

/* A program that frees on and on meanwhile hands out a little: its purging is right. */
static void a_long_purge_is_no_cycle(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = 1000000;
    for (unsigned i = 0; i < 300; i++, now_ms += 100) {
        hak_retention_note_purged(&r, MIB, now_ms);
        hak_retention_note_missed(&r, MIB / 4, now_ms);
    }
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes());
}

static void memory_that_is_not_wanted_again_raises_nothing(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = 1000000;
    for (unsigned second = 0; second < 10; second++, now_ms += WINDOW_MS) {
        hak_retention_note_purged(&r, CYCLE, now_ms);
        hak_retention_note_missed(&r, CYCLE / 4, now_ms + 10);
    }
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes());
}

static void raised_floor_is_bounded_by_the_option(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = raise_floor(&r);
    for (unsigned second = 0; second < 12; second++) {
        now_ms = ping_pong_second(&r, now_ms);
    }
    size_t bound_bytes = (size_t)hak_options.retain_mb * MIB;
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + bound_bytes);
}

#define SWING (100 * MIB) /* more than HAKMEM_RETAIN_MB */

/* So many cycles in which SWING bytes go back, and half of them are missed so soon after. */
static uint64_t swing(struct retention *r, unsigned times, uint64_t later_ms, uint64_t now_ms) {
    for (unsigned i = 0; i < times; i++) {
        hak_retention_note_purged(r, SWING, now_ms);
        now_ms += later_ms;
        hak_retention_note_missed(r, SWING / 2, now_ms);
    }
    return now_ms;
}

static size_t raised_bytes_at(struct retention *r, uint64_t now_ms) {
    return hak_retention_floor_bytes(r, 0, now_ms) - hak_retention_base_bytes();
}

static void what_swings_far_and_fast_on_and_on_may_keep_more(void **state) {
    (void)state;
    struct retention r = used_much();
    size_t option_bytes = (size_t)hak_options.retain_mb * MIB;
    size_t lasting_bytes = (size_t)hak_options.lasting_mb * MIB;
    assert_true(option_bytes < SWING && option_bytes + 2 * SWING > lasting_bytes);
    uint64_t now_ms = swing(&r, PROOFS - 1 + HAK_CAPPED_TO_LAST - 1, 10, 1000000);
    assert_int_equal(raised_bytes_at(&r, now_ms), option_bytes);
    now_ms = swing(&r, 1, 10, now_ms);
    assert_int_equal(raised_bytes_at(&r, now_ms), option_bytes + SWING);
    now_ms = swing(&r, 5, 10, now_ms);
    assert_int_equal(raised_bytes_at(&r, now_ms), lasting_bytes);
    now_ms = swing(&r, 1, WINDOW_MS, now_ms); /* one that is cheap does not end it, */
    assert_int_equal(raised_bytes_at(&r, now_ms), lasting_bytes);
    (void)swing(&r, 1, WINDOW_MS + 1, now_ms); /* one in vain does */
    assert_int_equal(raised_bytes_at(&r, now_ms + WINDOW_MS + 1), option_bytes);
}

static void what_swings_far_but_not_so_fast_may_not(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = swing(&r, 4 * HAK_CAPPED_TO_LAST, 300, 1000000);
    assert_int_equal(raised_bytes_at(&r, now_ms), (size_t)hak_options.retain_mb * MIB);
}

static void what_goes_back_in_vain_in_between_counts_anew(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = swing(&r, HAK_CAPPED_TO_LAST, 10, 1000000);
    now_ms = swing(&r, HAK_CAPPED_TO_LAST, 10, swing(&r, 1, WINDOW_MS + 1, now_ms));
    assert_int_equal(raised_bytes_at(&r, now_ms), (size_t)hak_options.retain_mb * MIB);
}

/* Of a big heap an eighth stays where that is proved, beside the option. */
static void a_share_of_what_is_live_needs_proof_but_not_the_option(void **state) {
    (void)state;
    const size_t live_bytes = 1024 * MIB, share_bytes = live_bytes / 8 - live_bytes / 64;
    struct retention r = used_much();
    size_t option_bytes = (size_t)hak_options.retain_mb * MIB;
    size_t base_bytes = hak_retention_base_bytes();
    uint64_t now_ms = 1000000;
    (void)hak_retention_floor_bytes(&r, live_bytes, now_ms);
    now_ms = ping_pong_second(&r, ping_pong_second(&r, now_ms));
    assert_int_equal(hak_retention_floor_bytes(&r, live_bytes, now_ms), base_bytes + live_bytes / 64 + CYCLE);
    assert_int_equal(hak_retention_raised_bytes(HAK_RETAINER_SLABS), 0);
    for (unsigned second = 0; second < 20; second++) {
        now_ms = ping_pong_second(&r, now_ms);
    }
    assert_int_equal(hak_retention_floor_bytes(&r, live_bytes, now_ms),
                     base_bytes + live_bytes / 64 + share_bytes + option_bytes);
    assert_int_equal(hak_retention_raised_bytes(HAK_RETAINER_SLABS), option_bytes);
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), base_bytes + option_bytes);
    assert_int_equal(hak_retention_floor_bytes(&r, live_bytes, now_ms),
                     base_bytes + live_bytes / 64 + option_bytes);
    assert_int_equal(hak_retention_raised_bytes(HAK_RETAINER_SLABS), 0);
}

static void set_retain_mb(unsigned mb) {
    CHECK(mprotect(&hak_options, sizeof hak_options, PROT_READ | PROT_WRITE) == 0);
    hak_options.retain_mb = mb;
    CHECK(mprotect(&hak_options, sizeof hak_options, PROT_READ) == 0);
}

static void without_the_option_nothing_is_proved(void **state) {
    (void)state;
    struct retention r = used_much();
    set_retain_mb(0);
    uint64_t now_ms = 1000000;
    (void)hak_retention_floor_bytes(&r, 1024 * MIB, now_ms);
    for (unsigned second = 0; second < 4; second++) {
        now_ms = ping_pong_second(&r, now_ms);
    }
    size_t floor_bytes = hak_retention_floor_bytes(&r, 1024 * MIB, now_ms);
    set_retain_mb(64);
    assert_int_equal(floor_bytes, hak_retention_base_bytes() + 16 * MIB);
}

/* What the large floor has risen by is taken off what this one may, and the other way round. */
static void two_floors_share_the_option(void **state) {
    (void)state;
    struct retention r = used_much();
    size_t bound_bytes = (size_t)hak_options.retain_mb * MIB;
    hak_retention_note_raised(HAK_RETAINER_LARGE, bound_bytes - 8 * MIB);
    uint64_t now_ms = raise_floor(&r);
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + 8 * MIB);
    assert_int_equal(hak_retention_raise_max(HAK_RETAINER_LARGE), bound_bytes - 8 * MIB);
    hak_retention_note_raised(HAK_RETAINER_LARGE, 2 * bound_bytes); /* for a moment, before it falls */
    assert_int_equal(hak_retention_raise_max(HAK_RETAINER_SLABS), 0);
    hak_retention_note_raised(HAK_RETAINER_LARGE, 0);
}

static void raised_floor_stays_while_its_memory_is_used(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = raise_floor(&r);
    for (unsigned second = 0; second < 60; second++) {
        now_ms = reuse_second(&r, 0, now_ms);
    }
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms - WINDOW_MS),
                     hak_retention_base_bytes() + CYCLE);
}

static void raised_floor_falls_when_its_memory_lies_unused(void **state) {
    (void)state;
    struct retention r = used_much();
    uint64_t now_ms = raise_floor(&r);
    for (unsigned second = 0; second < 6; second++) { /* half of the rest beyond the base each */
        now_ms = reuse_second(&r, CYCLE, now_ms);
    }
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes());
}

/* Threads read the clock before they take the lock, so that the later one may come first. */
static void large_floor_stays_raised_for_a_thread_with_an_older_clock(void **state) {
    (void)state;
    struct hak_retain before = hak_retain;
    uint64_t now_ms = before.touched_ms + 1000000;
    hak_retain_touch(now_ms);
    hak_retain.raised_bytes = CYCLE;
    hak_retain.cycles[HAK_LARGE_RUNS].proofs = 1;
    hak_retain.cycles[HAK_LARGE_RUNS].returned_bytes = CYCLE;
    hak_retain.cycles[HAK_LARGE_RUNS].returned_ms = now_ms;
    hak_retain_touch(now_ms - 4);
    hak_retain_fetched(HAK_LARGE_RUNS, CYCLE / 4, now_ms - 4);
    size_t raised_bytes = hak_retain.raised_bytes;
    unsigned proofs = hak_retain.cycles[HAK_LARGE_RUNS].proofs;
    hak_retain = before;
    assert_int_equal(raised_bytes, CYCLE);
    assert_int_equal(proofs, 1);
}

/* Three cycles in which all of it was fetched again, at one moment. */
static void prove_large(size_t bytes, uint64_t now_ms) {
    for (unsigned cycle = 0; cycle < hak_large_policy.proof_count; cycle++) {
        hak_retain_returned(HAK_LARGE_RUNS, bytes, now_ms);
        hak_retain_fetched(HAK_LARGE_RUNS, bytes, now_ms);
    }
}

/* The same of large blocks: how far their floor has risen after so many cycles, each fetched so soon. */
static size_t large_raised_after(unsigned cycles, uint64_t later_ms) {
    struct hak_retain before = hak_retain;
    uint64_t now_ms = before.touched_ms + 1000000;
    hak_retain_touch(now_ms);
    for (unsigned i = 0; i < cycles; i++) {
        hak_retain_returned(HAK_LARGE_RUNS, SWING, now_ms);
        now_ms += later_ms;
        hak_retain_fetched(HAK_LARGE_RUNS, SWING / 2, now_ms);
    }
    size_t raised_bytes = hak_retain.raised_bytes;
    hak_retain = before;
    hak_retention_note_raised(HAK_RETAINER_LARGE, before.raised_bytes);
    hak_retention_note_beside(HAK_RETAINER_LARGE, before.beyond_bytes);
    return raised_bytes;
}

static void large_blocks_that_swing_far_and_fast_may_keep_more(void **state) {
    (void)state;
    const unsigned last = hak_large_policy.proof_count - 1 + HAK_CAPPED_TO_LAST;
    size_t option_bytes = (size_t)hak_options.retain_mb * MIB;
    hak_retention_note_raised(HAK_RETAINER_SLABS, 0);
    assert_int_equal(large_raised_after(last - 1, 10), option_bytes);
    assert_in_range(large_raised_after(last, 10), option_bytes + SWING / 4, option_bytes + SWING);
    assert_int_equal(large_raised_after(2 * last, 10), (size_t)hak_options.lasting_mb * MIB);
    assert_int_equal(large_raised_after(4 * last, 300), option_bytes);
}

/* Nothing that is kept of the one would serve the other. */
static void what_mappings_give_back_is_not_fetched_by_runs(void **state) {
    (void)state;
    struct hak_retain before = hak_retain;
    hak_retain.peak_live_bytes = hak_retain.live_bytes + CYCLE; /* or it would be growth */
    uint64_t now_ms = before.touched_ms + 1000000;
    for (unsigned cycle = 0; cycle < 2 * hak_large_policy.proof_count; cycle++) {
        hak_retain_returned(HAK_LARGE_MAPPINGS, CYCLE, now_ms);
        hak_retain_fetched(HAK_LARGE_RUNS, CYCLE, now_ms);
    }
    size_t by_the_others_bytes = hak_retain.raised_bytes;
    for (unsigned cycle = 0; cycle < 2 * hak_large_policy.proof_count; cycle++) {
        hak_retain_fetched(HAK_LARGE_MAPPINGS, CYCLE, now_ms);
        hak_retain_returned(HAK_LARGE_MAPPINGS, CYCLE, now_ms);
    }
    size_t by_its_own_bytes = hak_retain.raised_bytes;
    hak_retain = before;
    assert_int_equal(by_the_others_bytes, before.raised_bytes);
    assert_in_range(by_its_own_bytes, CYCLE / 2, SIZE_MAX);
}

/* How much may stay now. */
static size_t large_limit_bytes(void) {
    size_t kept_bytes = 100000 * MIB;
    hak_retain_add_dirty(kept_bytes);
    size_t excess_bytes = hak_retain_excess();
    hak_retain_remove_dirty(kept_bytes);
    return kept_bytes - excess_bytes;
}

/* A big heap whose size goes up and down keeps what it needs for that, but less than would raise its peak. */
static void a_level_of_large_blocks_raises_their_floor_beyond_the_option(void **state) {
    (void)state;
    struct hak_retain before = hak_retain;
    size_t others_bytes = hak_retention_raised_bytes(HAK_RETAINER_SLABS);
    uint64_t now_ms = before.touched_ms + 1000000;
    hak_retention_note_raised(HAK_RETAINER_SLABS, 0);
    hak_retain = (struct hak_retain){.touched_ms = now_ms, .min_since_ms = now_ms};
    size_t base_bytes = hak_large_policy.floor_bytes;
    size_t option_bytes = (size_t)hak_options.retain_mb * MIB;
    size_t limit_bytes[6];
    hak_retain_add_live(500 * MIB);
    hak_retain_add_live(500 * MIB);
    hak_retain_remove_live(500 * MIB);
    limit_bytes[0] = large_limit_bytes(); /* nothing is proved */
    prove_large(200 * MIB, now_ms);
    limit_bytes[1] = large_limit_bytes();
    hak_retain_add_live(450 * MIB);
    limit_bytes[2] = large_limit_bytes(); /* near the peak */
    hak_retain_remove_live(450 * MIB);
    hak_retain_remove_live(500 * MIB);
    limit_bytes[3] = large_limit_bytes(); /* nothing is live */
    prove_large(200 * MIB, now_ms);
    hak_retain_add_live(100 * MIB);
    limit_bytes[4] = large_limit_bytes(); /* half of what is live */
    hak_retain_touch(now_ms + 10 * hak_large_policy.proof_ms);
    limit_bytes[5] = large_limit_bytes(); /* after idle seconds */
    hak_retain = before;
    hak_retention_note_raised(HAK_RETAINER_LARGE, before.raised_bytes);
    hak_retention_note_raised(HAK_RETAINER_SLABS, others_bytes);
    assert_int_equal(limit_bytes[0], base_bytes + 500 * MIB / 64);
    assert_int_equal(limit_bytes[1], base_bytes + 500 * MIB / 8 + 200 * MIB);
    assert_int_equal(limit_bytes[2], base_bytes + 950 * MIB / 8 + option_bytes + 50 * MIB);
    assert_int_equal(limit_bytes[3], base_bytes + option_bytes);
    assert_int_equal(limit_bytes[4], base_bytes + 100 * MIB / 8 + option_bytes + 50 * MIB);
    assert_int_equal(limit_bytes[5], base_bytes + 100 * MIB / 64);
}

/* Beside the options' own: the large floor's, which is no option. */
static void a_container_bounds_the_floor_of_large_blocks(void **state) {
    (void)state;
    struct hak_retain before = hak_retain;
    struct hak_large_policy policy = hak_large_policy;
    hak_retain = (struct hak_retain){.dirty_bytes = 2 * MIB};
    hak_retain_bound_floor((size_t)HAK_BASE_FLOOR_KIB * KIB * 2);
    size_t excess_before = hak_retain_excess();
    hak_retain_bound_floor(512 * KIB);
    size_t excess_after = hak_retain_excess();
    hak_retain_bound_floor(768 * KIB);
    size_t excess_last = hak_retain_excess();
    hak_retain = before;
    hak_large_policy = policy;
    assert_int_equal(excess_before, 2 * MIB - (size_t)HAK_BASE_FLOOR_KIB * KIB); /* it never raises it */
    assert_int_equal(excess_after, 2 * MIB - 512 * KIB);
    assert_int_equal(excess_last, excess_after);
}

/* Of what cycles have proved, no more than would be in use at the peak, an eighth of that and a piece. */
static void what_is_kept_and_used_hardly_exceeds_the_peak(void **state) {
    (void)state;
    struct retention r = {0};
    note_peak_and_fall(&r, 16 * MIB, 16 * MIB);
    uint64_t now_ms = cycle(&r, 1, cycle(&r, 1, 1000000));
    size_t base_bytes = hak_retention_base_bytes();
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), base_bytes + 2 * MIB);
    hak_retention_note_used(&r, 10 * MIB);
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), base_bytes + 8 * MIB);
    hak_retention_note_piece(&r, 2 * MIB); /* may be missing although as much is free, in shorter ones */
    hak_retention_note_piece(&r, 1 * MIB);
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), base_bytes + 10 * MIB);
    hak_retention_note_used(&r, 0);
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), base_bytes + CYCLE);
}

static void a_peak_is_forgotten_by_halves(void **state) {
    (void)state;
    struct retention r = {0};
    note_peak_and_fall(&r, 24 * MIB, 8 * MIB);
    uint64_t now_ms = cycle(&r, 1, cycle(&r, 1, 1000000));
    static const size_t peaks[] = {24 * MIB, 24 * MIB, 16 * MIB, 12 * MIB,
                                   10 * MIB}; /* the peak was in the first second */
    for (unsigned second = 0; second < COUNT_OF(peaks); second++) {
        size_t wanted_bytes = peaks[second] + peaks[second] / 8 - 8 * MIB;
        size_t kept_bytes = wanted_bytes < CYCLE ? wanted_bytes : CYCLE;
        assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + kept_bytes);
        now_ms += WINDOW_MS;
    }
    note_peak_and_fall(&r, 12 * MIB, 8 * MIB); /* a new one counts at once, */
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + 11 * MIB / 2);
    note_peak_and_fall(&r, 40 * MIB, 8 * MIB); /* but the floor fell with the old one */
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + 45 * MIB / 4);
}

/* What is beyond it nobody would use, and caches and large blocks would lack it. */
static void the_floor_rises_no_higher_than_the_peak(void **state) {
    (void)state;
    struct retention r = {0};
    note_peak_and_fall(&r, 24 * MIB, 20 * MIB);
    uint64_t now_ms = 1000000;
    for (unsigned i = 0; i < 10; i++) {
        now_ms = cycle(&r, 1, now_ms);
    }
    assert_int_equal(hak_retention_floor_bytes(&r, 0, now_ms), hak_retention_base_bytes() + 7 * MIB);
    size_t raised_bytes = r.raised_bytes;
    size_t left_bytes = hak_retention_raise_max(HAK_RETAINER_LARGE);
    hak_retention_note_raised(HAK_RETAINER_SLABS, 0);
    assert_int_equal(raised_bytes, 27 * MIB);
    assert_int_equal(left_bytes, ((size_t)hak_options.retain_mb << 20) - 27 * MIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floor_is_a_base_and_a_share_of_what_is_live),
        cmocka_unit_test(an_earlier_look_at_the_clock_finds_it_due_as_well),
        cmocka_unit_test(what_is_beyond_waits_for_a_helper),
        cmocka_unit_test(no_more_waits_for_it_than_may_stay),
        cmocka_unit_test(floor_rises_after_two_seconds_of_ping_pong),
        cmocka_unit_test(short_cycles_prove_as_much_as_long_ones),
        cmocka_unit_test(what_is_missed_late_proves_nothing),
        cmocka_unit_test(what_the_program_has_set_does_not_rise),
        cmocka_unit_test(what_is_missed_slowly_proves_nothing),
        cmocka_unit_test(small_cycles_prove_together),
        cmocka_unit_test(a_long_purge_is_no_cycle),
        cmocka_unit_test(memory_that_is_not_wanted_again_raises_nothing),
        cmocka_unit_test(raised_floor_is_bounded_by_the_option),
        cmocka_unit_test(what_swings_far_and_fast_on_and_on_may_keep_more),
        cmocka_unit_test(what_swings_far_but_not_so_fast_may_not),
        cmocka_unit_test(what_goes_back_in_vain_in_between_counts_anew),
        cmocka_unit_test(large_blocks_that_swing_far_and_fast_may_keep_more),
        cmocka_unit_test(a_share_of_what_is_live_needs_proof_but_not_the_option),
        cmocka_unit_test(without_the_option_nothing_is_proved),
        cmocka_unit_test(two_floors_share_the_option),
        cmocka_unit_test(raised_floor_stays_while_its_memory_is_used),
        cmocka_unit_test(raised_floor_falls_when_its_memory_lies_unused),
        cmocka_unit_test(what_is_kept_and_used_hardly_exceeds_the_peak),
        cmocka_unit_test(a_peak_is_forgotten_by_halves),
        cmocka_unit_test(the_floor_rises_no_higher_than_the_peak),
        cmocka_unit_test(what_mappings_give_back_is_not_fetched_by_runs),
        cmocka_unit_test(large_floor_stays_raised_for_a_thread_with_an_older_clock),
        cmocka_unit_test(a_level_of_large_blocks_raises_their_floor_beyond_the_option),
        cmocka_unit_test(a_container_bounds_the_floor_of_large_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
