/*
 * guest_test.c - blocks of one class in the holes of slabs of a smaller one: that they are made, lie on
 * nothing else, are what any block is to every function, and go home row by row.
 *
 * suite: limit 60 s
 */
#include "guest_kit.h"

/* ---- what they are ---- */

static void the_next_size_lies_between_survivors(void **state) {
    (void)state;
    unsigned class_idx = hak_class_of(BIG_BYTES);
    uint64_t before = guests_made(BIG_BYTES);
    unsigned guests = allocate_bigs(BIGS);
    assert_true(guests > BIGS * 3 / 4);
    assert_true(guests_made(BIG_BYTES) - before >= guests);
    for (unsigned i = 0; i < BIGS; i++) {
        if (is_guest(bigs[i], BIG_BYTES)) {
            const hak_header *header = header_of(bigs[i]);
            unsigned host_class = class_of_slab(bigs[i]), live_class = 0;
            assert_true(host_class < class_idx);
            assert_int_equal(header_value(header), HAK_HEADER_LIVE + class_idx);
            assert_true(hak_begins_row(header));
            assert_int_equal(hak_row_length(header), hak_row_blocks(host_class, class_idx));
            assert_true(hak_header_is_live(header, header_value(header), host_class, &live_class));
            assert_int_equal(live_class, class_idx);
        }
        assert_int_equal(hak_usable_size(bigs[i]), hak_class_block_bytes[class_idx]);
        assert_true(hak_owns(bigs[i]));
    }
    check_contents(BIGS);
    check_heap();
}

static struct hak_stats stats_now(void) {
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    for (unsigned c = 0; c < HAK_STATS_CLASSES; c++) {
        const struct hak_class_stats *one = &stats.classes[c];
        CHECK(one->capacity_blocks == one->live_blocks + one->cached_blocks + one->free_blocks);
    }
    return stats;
}

static void statistics_know_them(void **state) {
    (void)state;
    unsigned class_idx = hak_class_of(BIG_BYTES);
    struct hak_stats before = stats_now();
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    struct hak_stats with = stats_now();
    const struct hak_class_stats *one = &with.classes[class_idx];
    assert_int_equal(one->live_blocks, before.classes[class_idx].live_blocks + BIGS);
    assert_int_equal(with.live_bytes - before.live_bytes, BIGS * hak_class_block_bytes[class_idx]);
    assert_int_equal(with.classes[hak_class_of(SMALL_BYTES)].live_blocks, kept);
    /* Rows of them, and those that are cached, are no free blocks of their hosts' class. */
    size_t covered = before.classes[hak_class_of(SMALL_BYTES)].free_blocks -
                     with.classes[hak_class_of(SMALL_BYTES)].free_blocks;
    assert_true(covered >= BIGS / 2 * (BIG_BYTES / SMALL_BYTES));
    for (unsigned i = 0; i < BIGS; i++) {
        hak_free(bigs[i]);
        bigs[i] = NULL;
    }
    struct hak_stats after = stats_now();
    assert_int_equal(after.live_bytes, before.live_bytes);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

struct count {
    size_t blocks, bigs;
};

static int count_block(void *block, size_t usable_bytes, void *context) {
    struct count *count = context;
    bool is_big = usable_bytes == hak_class_block_bytes[hak_class_of(BIG_BYTES)];
    CHECK(hak_usable_size(block) == usable_bytes);
    count->blocks++;
    count->bigs += is_big;
    return 0;
}

static void a_walk_finds_each_once(void **state) {
    (void)state;
    struct count before = {0}, with = {0};
    assert_int_equal(hak_heap_walk(count_block, &before), 0);
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    assert_int_equal(hak_heap_walk(count_block, &with), 0);
    assert_int_equal(with.blocks - before.blocks, BIGS);
    assert_int_equal(with.bigs - before.bigs, BIGS);
}

/* ---- what can be asked of them ---- */

static void realloc_takes_them_for_what_they_are(void **state) {
    (void)state;
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    for (unsigned i = 0; i < BIGS; i++) {
        void *same = hak_realloc(bigs[i], hak_usable_size(bigs[i]));
        assert_ptr_equal(same, bigs[i]);
    }
    for (unsigned i = 0; i < 1000; i++) {
        bigs[i] = hak_realloc(bigs[i], i % 2 == 0 ? 5000 : 2 * BIG_BYTES);
        assert_true(is_filled_with(bigs[i], BIG_BYTES, i % 241));
        bigs[i] = hak_realloc(bigs[i], BIG_BYTES);
    }
    check_contents(BIGS);
}

static void calloc_clears_them(void **state) {
    (void)state;
    unsigned guests = 0;
    for (unsigned i = 0; i < BIGS; i++) {
        bigs[i] = hak_calloc(1, BIG_BYTES);
        guests += is_guest(bigs[i], BIG_BYTES);
        assert_true(is_filled_with(bigs[i], BIG_BYTES, 0));
        fill_big(i);
    }
    assert_true(guests > BIGS / 2);
    check_contents(BIGS);
}

/* 256 bytes: in slabs of their own all blocks are as aligned as that. */
static void who_asks_for_alignment_gets_it(void **state) {
    (void)state;
    unsigned unaligned = 0;
    for (unsigned i = 0; i < BIGS; i++) {
        size_t align = (size_t)32 << i % 4;
        bigs[i] = i % 2 == 0 ? hak_malloc(256) : hak_aligned_alloc(align, 256);
        unaligned += i % 2 == 0 && (uintptr_t)bigs[i] % align != 0;
        assert_true(i % 2 == 0 || (uintptr_t)bigs[i] % align == 0);
        fill_big(i);
    }
    assert_true(unaligned > 100);
    check_contents(BIGS);
}

/* ---- who frees them ---- */

static void *free_bigs(void *unused) {
    for (unsigned i = 0; i < BIGS; i++) {
        hak_free(bigs[i]);
        bigs[i] = NULL;
    }
    return unused;
}

static void another_thread_may_free_them(void **state) {
    (void)state;
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    on_thread(free_bigs, NULL);
    check_heap();
    assert_int_equal(stats_now().classes[hak_class_of(BIG_BYTES)].live_blocks, 0);
    /* And this one may have their rows again. */
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    check_contents(BIGS);
}

static pthread_key_t late_key;

static void free_late(void *block) {
    if (hak_tls.state != HAK_THREAD_EXITED) {
        CHECK(pthread_setspecific(late_key, block) == 0); /* one more round */
        return;
    }
    hak_free(block);
}

static void *leave_one_behind(void *block) {
    void *own = hak_malloc(16);
    CHECK(own != NULL);
    hak_free(own);
    CHECK(pthread_setspecific(late_key, block) == 0);
    return NULL;
}

static void a_thread_that_has_no_heap_any_more_may_free_them(void **state) {
    (void)state;
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    void *guest = any_guest();
    const hak_header *header = header_of(guest);
    unsigned length = hak_row_length(header);
    assert_int_equal(pthread_key_create(&late_key, free_late), 0);
    on_thread(leave_one_behind, guest);
    assert_int_equal(pthread_key_delete(late_key), 0);
    for (unsigned i = 0; i < length; i++) {
        assert_int_equal(header_value(header + i), HAK_HEADER_FREE);
    }
    for (unsigned i = 0; i < BIGS; i++) {
        bigs[i] = bigs[i] == guest ? NULL : bigs[i];
    }
    check_heap();
}

static void *take_and_go(void *unused) {
    (void)leave_survivors(NULL);
    CHECK(allocate_bigs(BIGS) > BIGS / 2);
    (void)nothing_is_left(NULL);
    return unused;
}

static void a_thread_that_ends_leaves_none_cached(void **state) {
    (void)state;
    struct hak_stats before = stats_now();
    (void)nothing_is_left(NULL);
    on_thread(take_and_go, NULL);
    (void)hak_trim(0);
    struct hak_stats after = stats_now();
    assert_true(after.live_bytes < before.live_bytes);
    for (unsigned c = 0; c < HAK_STATS_CLASSES; c++) {
        assert_in_range(after.classes[c].slabs, 0, 8);
    }
}

int main(void) {
#define WITH_SURVIVORS(test) cmocka_unit_test_setup_teardown(test, leave_survivors, nothing_is_left)
    const struct CMUnitTest tests[] = {
        WITH_SURVIVORS(the_next_size_lies_between_survivors),
        WITH_SURVIVORS(statistics_know_them),
        WITH_SURVIVORS(a_walk_finds_each_once),
        WITH_SURVIVORS(realloc_takes_them_for_what_they_are),
        WITH_SURVIVORS(calloc_clears_them),
        WITH_SURVIVORS(who_asks_for_alignment_gets_it),
        WITH_SURVIVORS(another_thread_may_free_them),
        WITH_SURVIVORS(a_thread_that_has_no_heap_any_more_may_free_them),
        WITH_SURVIVORS(a_thread_that_ends_leaves_none_cached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
