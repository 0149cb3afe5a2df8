/*
 * large_parked_test.c - runs that are parked between a free and the next request of their length: no system
 * call, no lost block, exact counts, wrong pointers named, forks, trims and many threads.
 *
 * suite: limit 120 s
 */
#include "large_kit.h"

#include "conf/options.h"
#include "large/extent.h"
#include "large/parked.h"
#include "support/slots.h"
#include <pthread.h>
#include <sched.h>

static int start_parking(void **state) {
    (void)start_clean(state);
    hak_parked_reset(); /* no length is wanted yet */
    set_parking(HAK_PARKED_BYTES_MAX);
    return 0;
}

static size_t parked_blocks(void) {
    return hak_parked_count().blocks;
}

/* A free block of `bytes` bytes, the only one that is parked. */
static char *parked_block(size_t bytes) {
    char *p = NULL;
    /* Two requests make the length wanted; one in 256 looks after the floor and is not noted. */
    for (unsigned i = 0; i < 3 && parked_blocks() == 0; i++) {
        p = must_alloc(bytes);
        memset(p, 0x77, bytes);
        release(p);
    }
    CHECK(parked_blocks() == 1);
    return p;
}

static size_t parked_bytes(void) {
    return hak_parked_count().bytes;
}

/* Makes every length wanted. */
static void have_much_live(void) {
    release(must_alloc(9 * MIB));
    (void)hak_large_trim(0);
}

/* ---- to and fro ---- */

static void a_hot_pair_takes_one_block_without_lock_and_call(void **state) {
    (void)state;
    char *p = parked_block(100 * KIB);
    uint64_t calls = memory_calls();
    hak_lock_acquire(&hak_large_lock);   /* whoever needs it now waits for ever */
    for (unsigned i = 0; i < 100; i++) { /* one request in 256 takes the lock, but not one of the first */
        assert_ptr_equal(alloc(100 * KIB - i), p);
        assert_int_equal(parked_blocks(), 0);
        release(p);
        assert_int_equal(parked_blocks(), 1);
    }
    hak_lock_release(&hak_large_lock);
    assert_int_equal(memory_calls(), calls);
    check_sound();
}

static void only_a_length_that_was_asked_for_is_parked(void **state) {
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        bool is_zero;
        release(must_alloc(HAK_PARKED_BYTES_MAX + 1));
        release(hak_large_alloc(100 * KIB, MIB, &is_zero)); /* not of the requests that look there */
    }
    assert_int_equal(parked_blocks(), 0);
    check_all_freed();
}

static void a_large_program_parks_what_was_asked_for_once(void **state) {
    (void)state;
    release(must_alloc(7 * MIB));
    release(must_alloc(100 * KIB));
    assert_int_equal(parked_blocks(), 0);
    release(must_alloc(9 * MIB));
    release(must_alloc(200 * KIB));
    assert_int_equal(parked_blocks(), 1);
}

/* As a program that reads its files at start: each buffer has a length of its own. */
static void lengths_that_are_asked_for_once_are_not_parked(void **state) {
    (void)state;
    size_t page_bytes = hak_os_page_bytes();
    for (unsigned pages = 10; pages < 10 + 3 * HAK_PARKED_REMAINDERS; pages++) {
        char *p = must_alloc(pages * page_bytes);
        release(p);
        assert_int_equal(parked_blocks(), 0);
    }
    release(must_alloc(10 * page_bytes)); /* again, but others of its remainder came between */
    assert_int_equal(parked_blocks(), 0);
    release(must_alloc(10 * page_bytes));
    assert_int_equal(parked_blocks(), 1);
    check_all_freed();
}

/* Buffers whose lengths come again only after others of the same remainder, `each_ms` for 64 of them. */
static void pass_buffers(unsigned buffers, unsigned each_ms) {
    for (unsigned i = 0; i < buffers; i++) {
        release(must_alloc((10 + i % (3 * HAK_PARKED_REMAINDERS)) * hak_os_page_bytes()));
        clock_ahead_ms += i % 64 == 63 ? each_ms : 0;
    }
}

/* Makes every length wanted, and some runs of greater length too. */
static void be_busy(void) {
    pass_buffers(600, 0);
    (void)hak_large_trim(0);
}

/* Once a ms one request in 256 looks after the floor and finds nothing parked: the next one comes late from
 * here on. */
static void after_the_look(void) {
    char *p = must_alloc(HAK_PARKED_BYTES_MAX);
    char *q = p;
    while (q == p) {
        release(q);
        clock_ahead_ms++;
        q = must_alloc(HAK_PARKED_BYTES_MAX);
    }
    release(q);
    (void)hak_large_trim(0);
}

/* A request of `pages`, with a run of `parked_pages` parked at `p`: what it gets; whether that is the run. */
static char *request_with(unsigned pages, const char *p, unsigned parked_pages, bool *is_taken) {
    size_t page_bytes = hak_os_page_bytes();
    size_t parked = parked_blocks();
    char *q = must_alloc(pages * page_bytes);
    *is_taken = parked_blocks() == parked - 1;
    CHECK(*is_taken || parked_blocks() == parked);
    CHECK(*is_taken == (q == p));
    CHECK(usable(q) == (*is_taken ? parked_pages : pages) * page_bytes);
    check_sound();
    (void)hak_large_trim(0);
    return q;
}

/* The same with that run parked alone, where the latest is. */
static char *request_beside(unsigned pages, unsigned parked_pages, bool *is_taken) {
    size_t page_bytes = hak_os_page_bytes();
    char *p = must_alloc(parked_pages * page_bytes);
    release(p);
    CHECK(parked_blocks() == 1);
    return request_with(pages, p, parked_pages, is_taken);
}

/* The same with the run in its row, since the place of the latest is taken by one that is of no use to it. */
static char *request_beside_in_row(unsigned pages, unsigned parked_pages, bool *is_taken) {
    size_t page_bytes = hak_os_page_bytes();
    char *p = must_alloc(parked_pages * page_bytes);
    release(must_alloc(HAK_PARKED_BYTES_MAX));
    CHECK(parked_blocks() == 1);
    release(p);
    CHECK(parked_blocks() == 2);
    return request_with(pages, p, parked_pages, is_taken);
}

/* Whether such a request takes the run. */
static bool takes_it(unsigned pages, unsigned parked_pages) {
    bool is_taken;
    release(request_beside(pages, parked_pages, &is_taken));
    (void)hak_large_trim(0);
    return is_taken;
}

enum { LOANS = 4, LONG_PAGES = 20, SHORT_PAGES = 11 };

/* A request for much less than the only run that is parked; whether that is lent. */
static bool is_lent(char **block) {
    bool is_taken;
    *block = request_beside_in_row(SHORT_PAGES, LONG_PAGES, &is_taken);
    return is_taken;
}

/* All that may be out on loan is. */
static void borrow_all(char *lent[LOANS]) {
    after_the_look();
    for (unsigned i = 0; i < LOANS; i++) {
        CHECK(is_lent(&lent[i]));
    }
}

static void give_all_back(char *lent[LOANS]) {
    for (unsigned i = 0; i < LOANS; i++) {
        release(lent[i]);
    }
    (void)hak_large_trim(0);
}

static void few_runs_are_out_on_loan(void **state) {
    (void)state;
    char *lent[LOANS];
    char *block;
    be_busy();
    borrow_all(lent);
    assert_false(is_lent(&block));
    release(block);
    (void)hak_large_trim(0);
    release(lent[0]); /* one comes back */
    assert_int_equal(parked_bytes(), LONG_PAGES * hak_os_page_bytes());
    (void)hak_large_trim(0);
    assert_true(is_lent(&lent[0]));
    assert_false(is_lent(&block));
    release(block);
    give_all_back(lent);
    check_all_freed();
}

/* Requests of `count` pairs of one length that found nothing parked. */
static unsigned looks_in(unsigned count, unsigned each_ms) {
    unsigned looks = 0;
    char *p = must_alloc(HAK_PARKED_BYTES_MAX);
    for (unsigned i = 0; i < count; i++) {
        release(p);
        clock_ahead_ms += each_ms;
        char *q = must_alloc(HAK_PARKED_BYTES_MAX);
        if (q != p) {
            looks++;
            (void)hak_large_trim(0);
        }
        p = q;
    }
    release(p);
    (void)hak_large_trim(0);
    return looks;
}

static void the_floor_is_looked_after_once_in_a_while_and_a_ms(void **state) {
    (void)state;
    enum { PAIRS = 64 * 256 };
    have_much_live();
    after_the_look();
    assert_int_equal(looks_in(PAIRS, 0), 0);
    assert_in_range(looks_in(PAIRS, 1), PAIRS / 256 - 1, PAIRS / 256 + 1);
}

static void half_of_what_never_comes_back_is_forgotten_in_time(void **state) {
    (void)state;
    char *lent[LOANS];
    char *more[LOANS];
    be_busy();
    borrow_all(lent);
    after_the_look();
    for (unsigned i = 0; i < LOANS; i++) {
        assert_int_equal(is_lent(&more[i]), i < LOANS / 2);
    }
    give_all_back(lent);
    give_all_back(more);
    check_all_freed();
}

static void a_run_of_more_than_twice_the_length_is_not_lent(void **state) {
    (void)state;
    bool is_taken;
    be_busy();
    after_the_look();
    release(request_beside_in_row(SHORT_PAGES, 2 * SHORT_PAGES + 1, &is_taken));
    assert_false(is_taken);
    check_all_freed();
}

/* ---- the latest ---- */

static void the_latest_run_is_lent_at_four_times_the_length(void **state) {
    (void)state;
    be_busy();
    after_the_look();
    assert_true(takes_it(SHORT_PAGES, 4 * SHORT_PAGES));
    assert_false(takes_it(SHORT_PAGES, 4 * SHORT_PAGES + 1));
    check_all_freed();
}

static void it_is_lent_at_less_while_others_are_on_loan(void **state) {
    (void)state;
    bool is_taken;
    be_busy();
    after_the_look();
    char *lent = request_beside(SHORT_PAGES, LONG_PAGES, &is_taken);
    assert_true(is_taken);
    assert_false(takes_it(SHORT_PAGES, LONG_PAGES * 2)); /* which rows do not lend either */
    assert_true(takes_it(SHORT_PAGES, LONG_PAGES));
    assert_true(takes_it(LONG_PAGES, LONG_PAGES + LONG_PAGES / 8));
    release(lent);
    (void)hak_large_trim(0);
    assert_true(takes_it(SHORT_PAGES, LONG_PAGES * 2));
    check_all_freed();
}

/* Frees runs so long in turn, all of them live before the first is; then a request for `wanted_pages`. */
static size_t usable_pages_of_one_after(unsigned first_pages, unsigned second_pages, unsigned wanted_pages) {
    size_t page_bytes = hak_os_page_bytes();
    char *first = must_alloc(first_pages * page_bytes);
    char *second = must_alloc(second_pages * page_bytes);
    release(first);
    release(second);
    CHECK(parked_blocks() == 2); /* whoever made room is in a row */
    char *p = must_alloc(wanted_pages * page_bytes);
    CHECK(parked_blocks() == 1);
    size_t pages = usable(p) / page_bytes;
    release(p);
    check_sound();
    (void)hak_large_trim(0);
    return pages;
}

static void it_makes_room_for_a_longer_one(void **state) {
    (void)state;
    be_busy();
    after_the_look();
    /* Three times the length is lent from there alone. */
    assert_int_equal(usable_pages_of_one_after(9, 30, 10), 30);
    assert_int_equal(usable_pages_of_one_after(30, 9, 10), 30);
    check_all_freed();
}

static void it_makes_room_once_it_is_too_long_for_many(void **state) {
    (void)state;
    enum { MANY = 16, HUGE_PAGES = 64 };
    size_t page_bytes = hak_os_page_bytes();
    char *runs[MANY];
    be_busy();
    after_the_look();
    char *latest = must_alloc(HUGE_PAGES * page_bytes);
    for (unsigned i = 0; i < MANY; i++) {
        runs[i] = must_alloc((i % 4 + 9) * page_bytes);
    }
    release(latest);
    for (unsigned i = 0; i < MANY; i++) {
        release(runs[i]);
    }
    /* Else 9 pages of a row: the last in turn had 12, and that is lent. */
    char *p = must_alloc(8 * page_bytes);
    assert_int_equal(usable(p), 12 * page_bytes);
    release(p);
    check_all_freed();
}

/* By the program's own functions; the lock is held, so whoever needs it waits for ever. */
static void a_buffer_at_a_time_is_found_by_malloc_and_free(void **state) {
    (void)state;
    be_busy();
    after_the_look();
    char *p = hak_malloc(200 * KIB);
    char *longest = p;
    hak_free(p);
    hak_lock_acquire(&hak_large_lock);
    for (unsigned i = 0; i < 50; i++) {
        p = hak_malloc((60 + i) * KIB);
        assert_ptr_equal(p, longest);
        assert_int_equal(hak_usable_size(p), 200 * KIB);
        memset(p, 0x11, 200 * KIB);
        hak_free(p);
        assert_int_equal(parked_blocks(), 1);
    }
    hak_lock_release(&hak_large_lock);
    check_all_freed();
}

static void no_request_is_too_long_to_ask(void **state) {
    (void)state;
    be_busy();
    for (unsigned i = 0; i < 2; i++) {
        assert_null(hak_parked_take_latest(SIZE_MAX));
        assert_null(hak_parked_take_latest((size_t)1 << 44));
        assert_null(hak_malloc(SIZE_MAX));
        release(must_alloc(100 * KIB));
    }
    check_all_freed();
}

static void a_run_on_loan_resizes_within_its_length(void **state) {
    (void)state;
    char *p;
    size_t page_bytes = hak_os_page_bytes();
    be_busy();
    after_the_look();
    assert_true(is_lent(&p));
    for (unsigned pages = LONG_PAGES / 2; pages <= LONG_PAGES; pages++) {
        assert_ptr_equal(resize(p, pages * page_bytes), p);
        assert_int_equal(usable(p), LONG_PAGES * page_bytes);
    }
    assert_ptr_equal(resize(p, (LONG_PAGES / 2 - 1) * page_bytes), p);
    assert_int_equal(usable(p), (LONG_PAGES / 2 - 1) * page_bytes);
    check_sound();
    release(p);
    check_all_freed();
}

static void nothing_is_lent_where_buffers_come_and_go_slowly(void **state) {
    (void)state;
    char *block;
    have_much_live();
    assert_false(is_lent(&block));
    release(block);
    check_all_freed();
}

static void buffers_that_come_and_go_fast_are_parked_whatever_their_lengths(void **state) {
    (void)state;
    pass_buffers(511, 0);
    assert_int_equal(parked_blocks(), 0);
    pass_buffers(2, 0);
    assert_in_range(parked_blocks(), 1, 2);
    check_all_freed();
}

static void buffers_that_come_and_go_slowly_are_not(void **state) {
    (void)state;
    pass_buffers(4096, 2);
    assert_int_equal(parked_blocks(), 0);
    check_all_freed();
}

static void longer_ones_are_parked_where_buffers_come_and_go_fast(void **state) {
    (void)state;
    have_much_live(); /* whatever their lengths */
    release(must_alloc(HAK_PARKED_BYTES_MAX + 1));
    assert_int_equal(parked_blocks(), 0);
    hak_parked_reset();
    be_busy();
    char *p = must_alloc(HAK_PARKED_BUSY_MAX - 1);
    release(p);
    assert_int_equal(parked_bytes(), HAK_PARKED_BUSY_MAX);
    p = must_alloc(HAK_PARKED_BUSY_MAX / 2);
    assert_int_equal(usable(p), HAK_PARKED_BUSY_MAX);
    release(p);
    size_t threshold = hak_large_map_threshold;
    hak_large_map_threshold = HAK_SUPERSLAB_BYTES; /* longer ones are runs too */
    release(must_alloc(HAK_PARKED_BUSY_MAX + 1));
    hak_large_map_threshold = threshold;
    assert_int_equal(parked_blocks(), 1);
    assert_int_equal(parked_bytes(), HAK_PARKED_BUSY_MAX);
    set_parking(0);
    release(must_alloc(100 * KIB));
    assert_int_equal(parked_blocks(), 1);
    check_all_freed();
}

static void set_shards(uint32_t shards) {
    assert_int_equal(hak_os_allow(&hak_options, sizeof hak_options), 0);
    hak_options.parked_shards = shards;
}

/* Of many lengths, so that no row is full before the shard is. */
static void check_busy_bound(uint32_t shards, size_t bound_bytes) {
    char *blocks[64];
    set_shards(shards);
    be_busy();
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = must_alloc((64 + 4 * i) * KIB);
    }
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        release(blocks[i]);
    }
    assert_in_range(parked_bytes(), bound_bytes - 256 * KIB, bound_bytes);
    check_all_freed();
}

static void a_shard_parks_more_where_buffers_come_and_go_fast_unless_shards_are_many(void **state) {
    (void)state;
    uint32_t shards = hak_options.parked_shards;
    struct hak_large_policy policy = hak_large_policy;
    /* Nothing for what is live. */
    hak_large_policy.floor_live_shift = 63;
    hak_large_policy.proved_live_shift = 63;
    check_busy_bound(HAK_PARKED_SHARDS, 3 * HAK_PARKED_SHARD_BYTES);
    check_busy_bound(8, 3 * HAK_PARKED_SHARD_BYTES);
    check_busy_bound(16, 2 * HAK_PARKED_SHARD_BYTES);
    hak_large_policy = policy;
    set_shards(shards);
}

static void a_run_that_is_an_eighth_longer_will_do(void **state) {
    (void)state;
    have_much_live();
    after_the_look();
    unsigned most = (unsigned)(HAK_PARKED_BYTES_MAX / hak_os_page_bytes());
    for (unsigned pages = 9; pages <= most; pages++) {
        unsigned longest = pages + pages / 8 < most ? pages + pages / 8 : most;
        assert_true(takes_it(pages, pages));
        assert_true(takes_it(pages, longest));
        assert_true(longest == most || !takes_it(pages, longest + 1));
        assert_false(takes_it(pages, pages - 1));
    }
}

static void runs_of_one_length_are_parked_beside_each_other(void **state) {
    (void)state;
    enum { RUNS = 6, WAYS = 4 };
    char *runs[RUNS];
    have_much_live();
    for (unsigned i = 0; i < RUNS; i++) {
        runs[i] = must_alloc(40 * KIB);
    }
    for (unsigned i = 0; i < RUNS; i++) {
        release(runs[i]);
        assert_int_equal(parked_blocks(), i <= WAYS ? i + 1 : WAYS + 1); /* and the latest */
    }
    check_all_freed();
}

/* The bound is a shard's, since this is one thread. */
static void older_runs_make_room_within_the_bound(void **state) {
    (void)state;
    enum { RUNS = 16 }; /* together below the floor: nothing is given back, and so all be flushed */
    char *runs[RUNS];
    have_much_live();
    for (unsigned i = 0; i < RUNS; i++) {
        runs[i] = must_alloc((10 + i) * hak_os_page_bytes());
    }
    for (unsigned i = 0; i < RUNS; i++) {
        release(runs[i]);
        assert_in_range(parked_bytes(), 1, HAK_PARKED_SHARD_BYTES * 5 / 4);
        check_sound();
    }
    char *p = must_alloc((10 + RUNS - 1) * hak_os_page_bytes());
    assert_ptr_equal(p, runs[RUNS - 1]); /* the newest was parked nevertheless */
    release(p);
    check_all_freed();
}

/* More than any bound here, all of them live before the first is freed. */
static void release_many_lengths(void) {
    enum { RUNS = 40 };
    char *runs[RUNS];
    for (unsigned i = 0; i < RUNS; i++) {
        runs[i] = must_alloc((20 + i) * hak_os_page_bytes());
    }
    for (unsigned i = 0; i < RUNS; i++) {
        release(runs[i]);
    }
}

static void the_bound_grows_with_what_is_live(void **state) {
    (void)state;
    char *live = must_alloc(64 * MIB);
    hak_retain.cycles[HAK_LARGE_RUNS].proofs = 1; /* until then by a 64th alone */
    release_many_lengths();
    size_t bound_bytes =
        HAK_PARKED_SHARD_BYTES + (64 * MIB >> hak_large_policy.proved_live_shift) / hak_options.parked_shards;
    assert_in_range(parked_bytes(), 2 * MIB, bound_bytes * 5 / 4);
    release(live);
    pay_debts();
    for (unsigned i = 0; i < 8; i++) { /* the bound is what it was, and so becomes what is parked */
        char *p = must_alloc((60 - i) * hak_os_page_bytes());
        release(p);
    }
    assert_in_range(parked_bytes(), 0, HAK_PARKED_SHARD_BYTES * 5 / 4);
    check_all_freed();
}

static void less_is_parked_where_less_may_stay(void **state) {
    (void)state;
    size_t floor_bytes = hak_large_policy.floor_bytes;
    hak_large_policy.floor_bytes = 128 * KIB;
    have_much_live();
    char *p = must_alloc(60 * KIB);
    char *q = must_alloc(100 * KIB);
    release(p);
    assert_int_equal(parked_bytes(), 60 * KIB);
    release(q);
    assert_in_range(parked_bytes(), 0, 64 * KIB);
    hak_large_policy.floor_bytes = floor_bytes;
    check_all_freed();
}

/* Where the latest run alone is as much as may be parked, and of no use to what comes after it. */
static void the_latest_makes_room_too_within_the_bound(void **state) {
    (void)state;
    size_t floor_bytes = hak_large_policy.floor_bytes;
    hak_large_policy.floor_bytes = 256 * KIB;
    have_much_live();
    char *latest = must_alloc(128 * KIB);
    char *p = must_alloc(64 * KIB);
    release(latest);
    assert_int_equal(parked_bytes(), 128 * KIB);
    release(p);
    assert_int_equal(parked_bytes(), 64 * KIB);
    assert_ptr_equal(must_alloc(64 * KIB), p);
    release(p);
    hak_large_policy.floor_bytes = floor_bytes;
    check_all_freed();
}

/* M_TRIM_THRESHOLD: what may stay does not grow with what is live, nor does what is parked. */
static void a_set_floor_is_not_exceeded_however_much_is_live(void **state) {
    (void)state;
    struct hak_large_policy policy = hak_large_policy;
    char *live = must_alloc(64 * MIB);
    hak_retain_set_floor(4 * MIB);
    release_many_lengths();
    assert_in_range(parked_bytes(), 1, HAK_PARKED_SHARD_BYTES * 5 / 4);
    hak_large_policy = policy;
    release(live);
    pay_debts();
    check_all_freed();
}

static void calloc_of_a_parked_run_is_zero(void **state) {
    (void)state;
    char *p = parked_block(100 * KIB);
    char *again = hak_large_calloc(100 * KIB - 100);
    assert_ptr_equal(again, p);
    assert_true(bytes_are(again, 100 * KIB - 100, 0));
    release(again);
    bool is_zero = true;
    assert_ptr_equal(hak_large_alloc(100 * KIB, 16, &is_zero), p);
    assert_false(is_zero);
    release(p);
}

/* ---- what others see of it ---- */

static int count_visit(void *block, size_t usable_bytes, void *context) {
    (void)block;
    size_t *sums = context;
    sums[0]++;
    sums[1] += usable_bytes;
    return 0;
}

static void counts_and_walks_take_parked_runs_for_free(void **state) {
    (void)state;
    struct hak_large_counts before = hak_large_count();
    char *p = parked_block(100 * KIB);
    struct hak_large_counts after = hak_large_count();
    size_t sums[2] = {0, 0};
    assert_int_equal(after.live_blocks, before.live_blocks);
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_in_range(after.dirty_bytes, 100 * KIB, SIZE_MAX);
    assert_in_range(after.free_run_bytes, 100 * KIB, SIZE_MAX);
    assert_int_equal(hak_large_walk(count_visit, sums), 0);
    assert_int_equal(sums[0], after.live_blocks);
    assert_int_equal(sums[1], after.live_bytes);
    assert_false(hak_large_owns(p, word_of(p)));
    check_sound();
    (void)hak_large_trim(0);
    assert_int_equal(parked_blocks(), 0);
    assert_int_equal(hak_large_count().dirty_bytes, 0);
    check_sound();
}

/* As where a run moved while it was counted, and was found in two shards. */
static void no_more_counts_as_parked_than_is_live(void **state) {
    (void)state;
    char *mapped = must_alloc(4 * MIB);
    (void)parked_block(100 * KIB);
    struct hak_large_counts before = hak_large_count();
    struct hak_retain retain = hak_retain;
    hak_retain.live_blocks = before.mapped_blocks;
    hak_retain.live_bytes = before.mapped_bytes;
    struct hak_large_counts after = hak_large_count();
    hak_retain = retain;
    assert_int_equal(after.live_blocks, before.mapped_blocks);
    assert_int_equal(after.live_bytes, before.mapped_bytes);
    assert_int_equal(after.free_run_bytes, before.free_run_bytes - parked_bytes());
    assert_int_equal(after.dirty_bytes, before.dirty_bytes - parked_bytes());
    release(mapped);
    check_all_freed();
}

static void what_is_above_the_floor_goes_with_the_parked_runs(void **state) {
    (void)state;
    (void)parked_block(200 * KIB);
    char *p = must_alloc(40 * MIB);
    memset(p, 1, 40 * MIB);
    release(p);
    assert_int_equal(parked_blocks(), 0);
    pay_debts();
    assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes);
}

static void the_floor_falls_though_all_requests_find_a_parked_run(void **state) {
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        char *p = must_alloc(25 * MIB);
        memset(p, 1, 25 * MIB);
        release(p);
    }
    assert_in_range(hak_large_count().dirty_bytes, 24 * MIB, 64 * MIB);
    for (unsigned i = 0; i < 12 * 256; i++) {
        clock_ahead_ms += i % 256 == 0 ? 1000 : 0;
        release(must_alloc(40 * KIB));
    }
    assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes + MIB);
}

/* ---- resizing ---- */

static void a_run_from_a_slot_resizes_and_parks_at_its_new_length(void **state) {
    (void)state;
    char *p = parked_block(100 * KIB);
    assert_ptr_equal(must_alloc(100 * KIB), p);
    assert_ptr_equal(resize(p, 60 * KIB), p);
    check_sound();
    release(must_alloc(60 * KIB));
    char *q = must_alloc(60 * KIB);
    release(p);
    assert_int_equal(parked_blocks(), 1);
    assert_int_equal(usable(q), 60 * KIB);
    assert_ptr_equal(must_alloc(60 * KIB), p);
    release(p);
    release(q);
    check_all_freed();
}

/* ---- fork ---- */

static void the_child_frees_what_was_parked_or_on_its_way(void **state) {
    (void)state;
    (void)parked_block(100 * KIB);
    char *p = must_alloc(200 * KIB);
    struct hak_extent *extent = hak_word_address(word_of(p));
    hak_lock_acquire(&hak_large_lock);
    unsigned page = hak_extent_live_page(extent, p);
    bool is_claimed = hak_extent_claim(extent, page); /* as a free that was cut off half way */
    hak_lock_release(&hak_large_lock);
    assert_true(is_claimed);
    hak_large_fork_child();
    assert_int_equal(parked_blocks(), 0);
    check_all_freed();
    assert_in_range(hak_large_trim(0), 300 * KIB, 2 * HAK_SUPERSLAB_BYTES);
}

static void the_child_parks_as_much_as_its_parent_could(void **state) {
    (void)state;
    have_much_live();
    char *p = must_alloc(HAK_PARKED_BYTES_MAX);
    release(must_alloc(HAK_PARKED_BYTES_MAX));
    release(p);
    assert_int_equal(parked_bytes(), HAK_PARKED_SHARD_BYTES);
    hak_large_fork_child();
    (void)parked_block(HAK_PARKED_BYTES_MAX);
    check_all_freed();
}

/* ---- threads ---- */

enum { THREADS = 8 };
static _Atomic uintptr_t handover[64];

static void check_and_release(char *p) {
    size_t bytes;
    char *end;
    memcpy(&bytes, p, sizeof bytes);
    memcpy(&end, p + bytes - sizeof p, sizeof p);
    CHECK(end == p && usable(p) >= bytes && usable(p) <= 4 * bytes);
    release(p);
}

/* Imitates workers that pass buffers of a few lengths on; each buffer has one owner at a time. */
static void *run_thread(void *seed) {
    static const size_t lengths[] = {36 * KIB, 64 * KIB, 64 * KIB, 100 * KIB, 68 * KIB, 256 * KIB, 300 * KIB};
    struct rng rng = rng_seeded((uintptr_t)seed);
    for (unsigned round = 0; round < 20000 * test_scale(); round++) {
        size_t bytes = lengths[rng_below(&rng, COUNT_OF(lengths))];
        char *p = must_alloc(bytes);
        memcpy(p, &bytes, sizeof bytes);
        memcpy(p + bytes - sizeof p, &p, sizeof p);
        if (rng_below(&rng, 4) == 0) {
            p = (char *)atomic_exchange(&handover[rng_below(&rng, COUNT_OF(handover))], (uintptr_t)p);
        }
        if (p != NULL) {
            check_and_release(p);
        }
        if (round % 1000 == 999) {
            check_sound();
        }
        if (round % 4096 == 4095) {
            (void)hak_large_trim(0);
        }
    }
    return NULL;
}

static void threads_pass_buffers_on(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_thread, (void *)(i + 1)), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (unsigned i = 0; i < COUNT_OF(handover); i++) {
        char *p = (char *)atomic_exchange(&handover[i], 0);
        if (p != NULL) {
            check_and_release(p);
        }
    }
    assert_in_range(parked_bytes(), 0, 3 * hak_options.parked_shards * HAK_PARKED_SHARD_BYTES * 5 / 4);
    check_all_freed();
}

enum { PARKERS = 16, RUNS_EACH = 4 };

/* Frees a few runs of one length, as many as a shard has room for. */
static void *park_some(void *unused) {
    char *runs[RUNS_EACH];
    for (unsigned i = 0; i < RUNS_EACH; i++) {
        runs[i] = must_alloc(100 * KIB);
    }
    for (unsigned i = 0; i < RUNS_EACH; i++) {
        release(runs[i]);
    }
    return unused;
}

static void with_many_processors_each_thread_parks_alone(void **state) {
    (void)state;
    uint32_t shards = hak_options.parked_shards;
    set_shards(PARKERS);
    have_much_live();
    pthread_t threads[PARKERS];
    for (unsigned i = 0; i < PARKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, park_some, NULL), 0);
    }
    for (unsigned i = 0; i < PARKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(parked_blocks(), PARKERS * RUNS_EACH);
    (void)hak_large_trim(0);
    assert_int_equal(parked_blocks(), 0);
    set_shards(shards);
    check_all_freed();
}

enum { PASSERS = 4, COUNTS = 200000 };
static _Atomic uintptr_t passed;

/* Frees what another thread allocated, and passes on what it gets for it: from shard to shard. */
static void *pass_on(void *unused) {
    for (;;) {
        char *p = (char *)atomic_exchange(&passed, 0);
        if (p == (char *)&passed) {
            atomic_store(&passed, (uintptr_t)p); /* the end, for the others as well */
            return unused;
        }
        if (p != NULL) {
            release(p);
            sched_yield(); /* parked for some time */
            atomic_store(&passed, (uintptr_t)must_alloc(100 * KIB));
        }
        sched_yield();
    }
}

/* Imitates a program that asks for statistics while its threads work. */
static void counts_of_what_moves_are_off_by_little(void **state) {
    (void)state;
    pthread_t threads[PASSERS];
    have_much_live();
    atomic_store(&passed, (uintptr_t)must_alloc(100 * KIB));
    for (unsigned i = 0; i < PASSERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, pass_on, NULL), 0);
    }
    for (unsigned i = 0; i < COUNTS * test_scale(); i++) {
        struct hak_large_counts counts = hak_large_count();
        CHECK(counts.live_blocks <= live_at_start + 100);
        CHECK(counts.live_bytes <= 100 * MIB && counts.free_run_bytes <= 100 * MIB);
    }
    char *last = NULL;
    while (last == NULL) {
        last = (char *)atomic_exchange(&passed, 0);
    }
    atomic_store(&passed, (uintptr_t)&passed);
    release(last);
    for (unsigned i = 0; i < PASSERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    check_all_freed();
}

static void random_blocks_keep_their_contents(void **state) {
    (void)state;
    enum { SLOTS = 16 };
    static struct slot slots[SLOTS];
    const struct load load = {.low_bytes = 33 * KIB,
                              .high_bytes = 60 * KIB,
                              .calloc_parts = 40,
                              .realloc_parts = 90,
                              .memalign_parts = 20};
    struct rng rng = rng_seeded(23);
    for (unsigned round = 0; round < 20000 * test_scale(); round++) {
        slots_step(slots, SLOTS, &load, &rng);
        if (round % 64 == 0) {
            check_sound();
            slots_check_overlap(slots, SLOTS);
        }
    }
    slots_clear(slots, SLOTS);
    check_all_freed();
}

/* ---- wrong pointers ---- */

static int free_twice(void *context) {
    (void)context;
    char *p = parked_block(100 * KIB);
    announce(p, 100 * KIB);
    release(p);
    return 0;
}

static int free_twice_after_it_was_flushed(void *context) {
    (void)context;
    char *wall = must_alloc(40 * KIB);
    char *p = parked_block(100 * KIB);
    CHECK(wall != NULL && hak_large_trim(0) != 0);
    announce(p, 100 * KIB);
    release(p);
    return 0;
}

static int free_inside_a_parked_run(void *context) {
    (void)context;
    char *p = parked_block(100 * KIB);
    announce(p + 16, 0);
    release(p + 16);
    return 0;
}

static int resize_a_parked_run(void *context) {
    (void)context;
    char *p = parked_block(100 * KIB);
    announce(p, 100 * KIB);
    (void)!resize(p, 200 * KIB);
    return 0;
}

static int usable_of_a_parked_run(void *context) {
    (void)context;
    char *p = parked_block(100 * KIB);
    announce(p, 100 * KIB);
    (void)!usable(p);
    return 0;
}

static void wrong_pointers_end_in_their_line(void **state) {
    (void)state;
    assert_fatal(free_twice, "free", "double free of");
    assert_fatal(free_twice_after_it_was_flushed, "free", "double free of");
    assert_fatal(free_inside_a_parked_run, "free", "invalid pointer");
    assert_fatal(resize_a_parked_run, "realloc", "use of freed block");
    assert_fatal(usable_of_a_parked_run, "malloc_usable_size", "use of freed block");
}

#define TEST(name) cmocka_unit_test_setup(name, start_parking)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_hot_pair_takes_one_block_without_lock_and_call),
        TEST(only_a_length_that_was_asked_for_is_parked),
        TEST(a_large_program_parks_what_was_asked_for_once),
        TEST(lengths_that_are_asked_for_once_are_not_parked),
        TEST(buffers_that_come_and_go_fast_are_parked_whatever_their_lengths),
        TEST(buffers_that_come_and_go_slowly_are_not),
        TEST(longer_ones_are_parked_where_buffers_come_and_go_fast),
        TEST(a_shard_parks_more_where_buffers_come_and_go_fast_unless_shards_are_many),
        TEST(a_run_that_is_an_eighth_longer_will_do),
        TEST(few_runs_are_out_on_loan),
        TEST(the_floor_is_looked_after_once_in_a_while_and_a_ms),
        TEST(half_of_what_never_comes_back_is_forgotten_in_time),
        TEST(a_run_of_more_than_twice_the_length_is_not_lent),
        TEST(the_latest_run_is_lent_at_four_times_the_length),
        TEST(it_is_lent_at_less_while_others_are_on_loan),
        TEST(it_makes_room_for_a_longer_one),
        TEST(it_makes_room_once_it_is_too_long_for_many),
        TEST(a_buffer_at_a_time_is_found_by_malloc_and_free),
        TEST(no_request_is_too_long_to_ask),
        TEST(a_run_on_loan_resizes_within_its_length),
        TEST(nothing_is_lent_where_buffers_come_and_go_slowly),
        TEST(runs_of_one_length_are_parked_beside_each_other),
        TEST(older_runs_make_room_within_the_bound),
        TEST(the_bound_grows_with_what_is_live),
        TEST(less_is_parked_where_less_may_stay),
        TEST(the_latest_makes_room_too_within_the_bound),
        TEST(a_set_floor_is_not_exceeded_however_much_is_live),
        TEST(calloc_of_a_parked_run_is_zero),
        TEST(counts_and_walks_take_parked_runs_for_free),
        TEST(no_more_counts_as_parked_than_is_live),
        TEST(what_is_above_the_floor_goes_with_the_parked_runs),
        TEST(the_floor_falls_though_all_requests_find_a_parked_run),
        TEST(a_run_from_a_slot_resizes_and_parks_at_its_new_length),
        TEST(the_child_frees_what_was_parked_or_on_its_way),
        TEST(the_child_parks_as_much_as_its_parent_could),
        TEST(with_many_processors_each_thread_parks_alone),
        TEST(threads_pass_buffers_on),
        TEST(counts_of_what_moves_are_off_by_little),
        TEST(random_blocks_keep_their_contents),
        TEST(wrong_pointers_end_in_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
