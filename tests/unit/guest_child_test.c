/*
 * guest_child_test.c - guests in the child of a fork, whatever it begins with; and the alignment of blocks of
 * which some are guests.
 *
 * suite: limit 60 s
 */
#include "guest_kit.h"

#include "support/child.h"

/* ---- alignment ---- */

/* Every second block is a plain one, which may be a guest wherever its row begins. */
static void every_alignment_is_kept(void **state) {
    (void)state;
    unsigned guests = 0, unaligned = 0, i = 0;
    for (size_t align = 64; align <= 4096; align *= 2) {
        for (unsigned n = 0; n < 2000; n += 2) {
            bigs[i] = hak_malloc(align);
            guests += is_guest(bigs[i], align);
            unaligned += (uintptr_t)bigs[i++] % align != 0;
            bigs[i] = hak_aligned_alloc(align, n % 4 == 0 ? align : align / 2 + 1);
            assert_int_equal((uintptr_t)bigs[i++] % align, 0);
        }
    }
    print_message("%u guests\n", guests);
    assert_true(guests > 1000 && unaligned > 1000);
}

/* ---- in the child of a fork ---- */

static pthread_barrier_t barrier;
static void *guest_of_parent;

static void allocate_first(void) {
    void *block = hak_malloc(BIG_BYTES);
    memset(block, 1, BIG_BYTES);
    hak_free(guest_of_parent);
    hak_free(block);
}

static void free_first(void) {
    hak_free(guest_of_parent);
}

static void grow_first(void) {
    char *moved = hak_realloc(guest_of_parent, 5000);
    CHECK(is_filled_with(moved, BIG_BYTES, 111));
    hak_free(moved);
}

static void keep_first(void) {
    CHECK(hak_realloc(guest_of_parent, BIG_BYTES + 1) == guest_of_parent);
    hak_free(guest_of_parent);
}

static void ask_first(void) {
    CHECK(hak_owns(guest_of_parent) && !hak_owns((char *)guest_of_parent + SMALL_BYTES));
    CHECK(hak_usable_size(guest_of_parent) == hak_class_block_bytes[hak_class_of(BIG_BYTES)]);
    (void)hak_defrag_hint(guest_of_parent);
    hak_free(guest_of_parent);
}

static void trim_first(void) {
    (void)hak_trim(0);
    hak_free(guest_of_parent);
}

static void (*first)(void);

/* Whatever the child begins with, each block is one of the rebuild's or this thread's, never both's. */
static int begin_and_go_on(void *unused) {
    (void)unused;
    first();
    check_heap();
    for (unsigned i = BIGS / 2; i < BIGS; i++) {
        bigs[i] = hak_malloc(BIG_BYTES);
        fill_big(i);
    }
    check_contents(BIGS);
    (void)nothing_is_left(NULL);
    return 0;
}

static void *free_half_and_stay(void *unused) {
    void *mine[200];
    for (unsigned i = 0; i < COUNT_OF(mine); i++) {
        mine[i] = hak_malloc(BIG_BYTES);
    }
    for (unsigned i = 0; i < COUNT_OF(mine); i++) {
        hak_free(mine[i]); /* its cache holds them at the fork */
    }
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    return unused;
}

static void run_children(void) {
    static void (*const firsts[])(void) = {allocate_first, free_first, grow_first,
                                           keep_first,     ask_first,  trim_first};
    static struct child child;
    unsigned i = 0;
    while (bigs[i] != guest_of_parent) {
        i++;
    }
    bigs[i] = NULL;
    memset(guest_of_parent, 111, BIG_BYTES);
    for (size_t f = 0; f < COUNT_OF(firsts); f++) {
        first = firsts[f];
        child = (struct child){.function = begin_and_go_on};
        child_run(&child);
        assert_child_succeeded(&child);
    }
    bigs[i] = guest_of_parent;
    fill_big(i);
}

static void a_child_may_begin_with_a_guest(void **state) {
    (void)state;
    pthread_t thread;
    assert_true(allocate_bigs(BIGS / 2) > BIGS / 4);
    for (unsigned i = 0; i < 100; i++) {
        hak_free(bigs[i]); /* this thread's cache holds guests too */
        bigs[i] = NULL;
    }
    guest_of_parent = NULL;
    for (unsigned i = 100; i < BIGS / 2 && guest_of_parent == NULL; i++) {
        guest_of_parent = is_guest(bigs[i], BIG_BYTES) ? bigs[i] : NULL;
    }
    assert_non_null(guest_of_parent);
    run_children(); /* the process has this thread alone */
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, free_half_and_stay, NULL), 0);
    (void)pthread_barrier_wait(&barrier);
    run_children();
    (void)pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
}

int main(void) {
#define WITH_SURVIVORS(test) cmocka_unit_test_setup_teardown(test, leave_survivors, nothing_is_left)
    const struct CMUnitTest tests[] = {
        WITH_SURVIVORS(every_alignment_is_kept),
        WITH_SURVIVORS(a_child_may_begin_with_a_guest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
