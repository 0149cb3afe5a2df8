/*
 * large_mapped_test.c - blocks with a mapping of their own: what is kept and reused, what goes back, growing
 * by moving pages, the floor that rises and falls, wrong pointers, and every system call failing in turn.
 *
 * suite: limit 120 s
 */
#include "large_kit.h"

#include "slab/purge.h"
#include "slab/retention.h"
#include "support/slots.h"
#include "support/target.h"
#include <pthread.h>

/* ---- random load ---- */

static void random_mappings_keep_their_contents(void **state) {
    (void)state;
    enum { SLOTS = 24 };
    static struct slot slots[SLOTS];
    const struct load load = {.low_bytes = 600 * KIB,
                              .high_bytes = 12 * MIB,
                              .calloc_parts = 20,
                              .realloc_parts = 100,
                              .memalign_parts = 20};
    struct rng rng = rng_seeded(11);
    for (unsigned round = 0; round < 800 * test_scale(); round++) {
        slots_step(slots, SLOTS, &load, &rng);
        if (round % 32 == 0) {
            check_sound();
            slots_check_overlap(slots, SLOTS);
        }
        clock_ahead_ms += round % 500 == 0 ? 5000 : 0;
    }
    slots_clear(slots, SLOTS);
    check_all_freed();
}

static void the_same_with_pages_of_16_kib(void **state) {
    (void)state;
    run_with_pages(PAGE_VARIABLE "16384");
}

static void the_same_with_pages_of_64_kib(void **state) {
    (void)state;
    run_with_pages(PAGE_VARIABLE "65536");
}

struct thread_load {
    pthread_t thread;
    uint64_t seed;
};

/* Imitates a server: each thread has buffers of all large sizes, grown as they fill. */
static void *run_thread(void *context) {
    enum { SLOTS = 12 };
    struct slot slots[SLOTS];
    const struct load load = {.low_bytes = 40 * KIB,
                              .high_bytes = 3 * MIB,
                              .calloc_parts = 20,
                              .realloc_parts = 90,
                              .memalign_parts = 10};
    struct rng rng = rng_seeded(((struct thread_load *)context)->seed);
    memset(slots, 0, sizeof slots);
    for (unsigned round = 0; round < 600 * test_scale(); round++) {
        slots_step(slots, SLOTS, &load, &rng);
        if (round % 100 == 99) {
            check_sound();
        }
        if (round % 256 == 255) {
            (void)hak_large_trim(0);
        }
    }
    slots_clear(slots, SLOTS);
    return NULL;
}

static void threads_side_by_side(void **state) {
    (void)state;
    struct thread_load loads[4];
    for (unsigned i = 0; i < COUNT_OF(loads); i++) {
        loads[i].seed = 100 + i;
        assert_int_equal(pthread_create(&loads[i].thread, NULL, run_thread, &loads[i]), 0);
    }
    for (unsigned i = 0; i < COUNT_OF(loads); i++) {
        assert_int_equal(pthread_join(loads[i].thread, NULL), 0);
    }
    check_all_freed();
}

/* ---- sizes and alignments ---- */

static void all_of_the_usable_size_can_be_written(void **state) {
    (void)state;
    for (size_t bytes = MIB; bytes < 40 * MIB; bytes = bytes * 3 / 2 + 1) {
        char *p = must_alloc(bytes);
        assert_in_range(usable(p), bytes, bytes + bytes / 4 + HAK_UNIT_BYTES);
        assert_true(hak_is_aligned((uintptr_t)p, HAK_UNIT_BYTES));
        memset(p, 1, usable(p));
        check_sound();
        release(p);
        start_clean(NULL);
        p = must_alloc(bytes);
        assert_int_equal(usable(p), hak_large_good_size(bytes));
        release(p);
    }
}

static void alignments_up_to_a_gibibyte(void **state) {
    (void)state;
    for (size_t align = MIB; align <= GIB; align *= 2) {
        bool is_zero;
        char *p = hak_large_alloc(3 * MIB, align, &is_zero);
        char *q = hak_large_alloc(100, align, &is_zero);
        assert_non_null(p);
        assert_non_null(q);
        assert_true(hak_is_aligned((uintptr_t)p | (uintptr_t)q, align));
        p[3 * MIB - 1] = q[99] = 1;
        check_sound();
        release(q);
        release(p);
    }
}

static void impossible_sizes_are_refused(void **state) {
    (void)state;
    bool is_zero;
    char *p = must_alloc(2 * MIB);
    memset(p, 7, 2 * MIB);
    static const size_t sizes[] = {(size_t)1 << 46,         (size_t)1 << 62, PTRDIFF_MAX,
                                   (size_t)PTRDIFF_MAX + 1, SIZE_MAX - 4095, SIZE_MAX};
    for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
        assert_null(hak_large_alloc(sizes[i], 16, &is_zero));
        assert_null(hak_large_alloc(sizes[i], MIB, &is_zero));
        assert_null(hak_large_calloc(sizes[i]));
        assert_null(resize(p, sizes[i]));
    }
    assert_null(hak_large_alloc(MIB, (size_t)1 << 62, &is_zero));
    assert_true(bytes_are(p, 2 * MIB, 7));
    check_sound();
    release(p);
}

static void the_threshold_decides_the_kind(void **state) {
    (void)state;
    char *run = must_alloc(MIB - 1);
    char *mapping = must_alloc(MIB);
    assert_int_equal(hak_word_kind(word_of(run)), HAK_KIND_EXTENT);
    assert_int_equal(hak_word_kind(word_of(mapping)), HAK_KIND_MAPPED);
    hak_atomic_store_relaxed(&hak_large_map_threshold, 100 * KIB); /* relaxed: one thread */
    char *small_mapping = must_alloc(100 * KIB);
    assert_int_equal(hak_large_good_size(100 * KIB), usable(small_mapping));
    assert_int_equal(hak_large_good_size(100 * KIB - 1), hak_os_page_round(100 * KIB - 1));
    hak_atomic_store_relaxed(&hak_large_map_threshold, 32 * MIB); /* relaxed: one thread */
    char *large_run = must_alloc(2 * MIB);
    char *beyond = must_alloc(2 * MIB + 1);
    hak_atomic_store_relaxed(&hak_large_map_threshold, MIB); /* relaxed: one thread */
    assert_int_equal(hak_word_kind(word_of(small_mapping)), HAK_KIND_MAPPED);
    assert_int_equal(hak_word_kind(word_of(large_run)), HAK_KIND_EXTENT);
    assert_int_equal(hak_word_kind(word_of(beyond)), HAK_KIND_MAPPED);
    check_sound();
    release(run);
    release(mapping);
    release(small_mapping);
    release(large_run);
    release(beyond);
}

/* ---- reuse ---- */

static void use(char *p, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += 4096) {
        p[offset] = 1;
    }
}

static void steady_blocks_of_5_to_25_mib_make_no_call_and_no_fault(void **state) {
    (void)state;
    struct rng rng = rng_seeded(12);
    for (unsigned i = 0; i < 20; i++) { /* until the cycle has been proved at its largest */
        char *p = must_alloc(25 * MIB);
        use(p, 25 * MIB);
        release(p);
    }
    uint64_t calls = memory_calls();
    long faults = page_faults();
    for (unsigned i = 0; i < 200; i++) {
        size_t bytes = 5 * MIB + rng_below(&rng, 20 * MIB);
        char *p = must_alloc(bytes);
        use(p, bytes);
        release(p);
    }
    assert_int_equal(memory_calls(), calls);
    assert_in_range(page_faults() - faults, 0, 16);
    check_sound();
}

/* Too few to count as lasting. */
#define FEW_CYCLES 12u

static void the_floor_rises_by_64_mib_and_no_further(void **state) {
    (void)state;
    hak_retention_note_raised(HAK_RETAINER_SLABS, 0); /* what extents of earlier tests have proved there */
    for (unsigned i = 0; i < FEW_CYCLES; i++) {
        char *p = must_alloc(100 * MIB);
        use(p, 100 * MIB);
        release(p);
        pay_debts();
    }
    assert_in_range(hak_large_count().dirty_bytes, 60 * MIB, hak_large_policy.floor_bytes + 64 * MIB);
    /* What stayed is used for the next one, though it is too short. */
    long faults = page_faults();
    char *p = must_alloc(100 * MIB);
    use(p, 60 * MIB);
    assert_in_range(page_faults() - faults, 0, 64);
    release(p);
    check_sound();
}

/* The second time that it is missed proves the cycle. */
static void what_is_wanted_again_twice_stays(void **state) {
    (void)state;
    hak_retention_note_raised(HAK_RETAINER_SLABS, 0); /* what extents of earlier tests have proved there */
    clock_ahead_ms += 3000;                           /* what others gave back last is not missed now */
    for (unsigned i = 0; i < 4; i++) {
        char *p = must_alloc(20 * MIB);
        use(p, 20 * MIB);
        release(p);
        pay_debts();
        size_t dirty_bytes = hak_large_count().dirty_bytes;
        if (i < 2) {
            assert_in_range(dirty_bytes, 0, hak_large_policy.floor_bytes);
        } else {
            assert_in_range(dirty_bytes, 20 * MIB, 20 * MIB + hak_large_policy.floor_bytes);
        }
    }
    /* With what stays in any case, and that is not counted twice. */
    assert_in_range(hak_retain.raised_bytes, 1, 20 * MIB - hak_large_policy.floor_bytes);
    check_sound();
}

static void without_proof_only_the_floor_stays(void **state) {
    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        char *p = must_alloc(20 * MIB);
        use(p, 20 * MIB);
        release(p);
        pay_debts();
        assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes);
        clock_ahead_ms += 3000; /* wanted again, but not within a second */
    }
    check_sound();
}

/* Each copy leaves what is too short for the next one: that is no cycle, and would come on top of the peak.
 */
static void of_an_array_that_doubles_hardly_anything_stays(void **state) {
    (void)state;
    size_t bytes = 2 * MIB;
    hak_retain.peak_live_bytes = hak_retain.live_bytes; /* as if no other test had been */
    char *p = must_alloc(bytes);
    use(p, bytes);
    for (; bytes < 64 * MIB; bytes *= 2) {
        char *longer = must_alloc(2 * bytes);
        use(longer, bytes);
        release(p);
        pay_debts();
        p = longer;
        assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes + 2 * bytes / 64);
    }
    assert_int_equal(hak_retain.raised_bytes, 0);
    release(p);
    check_sound();
}

/* Something that was given back is not fetched by growth, whether the block grows where it lies or has to
 * move. */
static void check_growth_fetches_nothing(bool has_to_move) {
    struct hak_cycle *cycle = &hak_retain.cycles[HAK_LARGE_MAPPINGS];
    struct hak_cycle before = *cycle;
    size_t page_bytes = hak_os_page_bytes();
    char *p = must_alloc(32 * MIB);
    char *end = p + 32 * MIB;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    long wall = has_to_move ? syscall(SYS_mmap, end, page_bytes, PROT_NONE, flags, -1, 0) : 0;
    hak_retain.peak_live_bytes = hak_retain.live_bytes;
    *cycle = (struct hak_cycle){.returned_bytes = 16 * MIB, .returned_ms = hak_retain.touched_ms};
    char *longer = resize(p, 64 * MIB);
    assert_true(!has_to_move || longer != p);
    assert_int_equal(cycle->proofs, 0);
    assert_int_equal(cycle->fetched_bytes, 0);
    assert_int_equal(cycle->returned_bytes, 16 * MIB);
    *cycle = before;
    if (wall == (long)end) {
        assert_int_equal(syscall(SYS_munmap, end, page_bytes), 0);
    }
    release(longer);
    check_sound();
}

static void a_block_that_outgrows_all_before_proves_nothing(void **state) {
    (void)state;
    check_growth_fetches_nothing(false);
    check_growth_fetches_nothing(true);
}

static void the_raised_floor_falls_with_time(void **state) {
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        char *p = must_alloc(25 * MIB);
        use(p, 25 * MIB);
        release(p);
    }
    assert_in_range(hak_large_count().dirty_bytes, 24 * MIB, 64 * MIB);
    /* Small operations that leave the 25 MiB idle. */
    for (unsigned i = 0; i < 12; i++) {
        clock_ahead_ms += 1000;
        release(must_alloc(40 * KIB));
    }
    assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes + MIB);
    /* A long silence is enough as well. */
    for (unsigned i = 0; i < 20; i++) {
        char *p = must_alloc(25 * MIB);
        use(p, 25 * MIB);
        release(p);
    }
    assert_in_range(hak_large_count().dirty_bytes, 24 * MIB, 64 * MIB);
    clock_ahead_ms += 10000;
    release(must_alloc(40 * KIB));
    pay_debts();
    assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes + MIB);
    check_sound();
}

/* The process may sleep from then on: nothing of it waits for another operation. */
static void a_gibibyte_goes_back_with_the_free(void **state) {
    (void)state;
    release(must_alloc(GIB));
    assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes);
    char *p = must_alloc(GIB);
    p = resize(p, 100 * MIB);
    assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes + 100 * MIB / 8);
    release(p);
    check_sound();
}

/* The floor as high as it gets, and not yet falling by age: again after what may take a second on a busy
 * machine. */
static void raise_the_floor(void) {
    hak_lock_acquire(&hak_large_lock);
    hak_retain.touched_ms = hak_os_now_ms();
    hak_retain.min_since_ms = hak_os_now_ms();
    hak_retain.raised_bytes = 64 * MIB;
    hak_lock_release(&hak_large_lock);
}

static void keep_everything(void) {
    start_clean(NULL);
    raise_the_floor();
}

/* Several pieces too, as long as they are no more than one operation may give back. */
static void a_floor_that_falls_takes_several_pieces_along(void **state) {
    (void)state;
    enum { PIECES = 4 };
    char *pieces[PIECES], *walls[PIECES];
    keep_everything();
    for (unsigned i = 0; i < PIECES; i++) {
        pieces[i] = must_alloc(2 * MIB);
        use(pieces[i], 2 * MIB);
        walls[i] = must_alloc(MIB);
    }
    for (unsigned i = 0; i < PIECES; i++) {
        release(pieces[i]);
    }
    assert_int_equal(hak_large_count().kept_bytes, PIECES * 2 * MIB);
    hak_lock_acquire(&hak_large_lock);
    hak_retain.raised_bytes = 0;
    hak_lock_release(&hak_large_lock);
    release(must_alloc(40 * KIB));
    assert_in_range(hak_large_count().dirty_bytes, 0,
                    hak_large_policy.floor_bytes + PIECES * MIB / 8 + 64 * KIB);
    for (unsigned i = 0; i < PIECES; i++) {
        release(walls[i]);
    }
    check_sound();
}

/* What others left takes no operation long: 16 MiB each. */
static void a_floor_that_falls_is_paid_for_in_pieces(void **state) {
    (void)state;
    hak_retention_note_raised(HAK_RETAINER_SLABS, 0); /* what extents of earlier tests have proved there */
    for (unsigned i = 0; i < FEW_CYCLES; i++) {
        char *p = must_alloc(100 * MIB);
        use(p, 100 * MIB);
        release(p);
    }
    size_t dirty_bytes = hak_large_count().dirty_bytes;
    size_t most_bytes = 0;
    assert_in_range(dirty_bytes, 60 * MIB, 80 * MIB);
    clock_ahead_ms += 10000;
    for (unsigned i = 0; i < 12; i++) {
        release(must_alloc(40 * KIB));
        size_t now_bytes = hak_large_count().dirty_bytes;
        most_bytes = dirty_bytes > now_bytes + most_bytes ? dirty_bytes - now_bytes : most_bytes;
        dirty_bytes = now_bytes;
    }
    assert_in_range(most_bytes, 8 * MIB, 17 * MIB);
    assert_in_range(dirty_bytes, 0, hak_large_policy.floor_bytes + MIB);
    check_sound();
}

static void the_shortest_kept_piece_that_fits_is_taken(void **state) {
    (void)state;
    static const size_t sizes[] = {9, 5, 7, 12};
    char *blocks[COUNT_OF(sizes)];
    keep_everything();
    for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
        blocks[i] = must_alloc(sizes[i] * MIB);
    }
    for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
        release(blocks[i]);
    }
    uint64_t calls = memory_calls();
    assert_ptr_equal(must_alloc(6 * MIB + 512 * KIB), blocks[2]); /* with half a MiB to spare */
    assert_int_equal(usable(blocks[2]), 7 * MIB);
    assert_ptr_equal(must_alloc(4 * MIB + 1), blocks[1]);
    assert_ptr_equal(must_alloc(9 * MIB), blocks[0]);
    assert_int_equal(memory_calls(), calls);
    check_sound();
    release(blocks[0]);
    release(blocks[1]);
    release(blocks[2]);
}

static void a_long_kept_piece_is_cut_and_becomes_whole_again(void **state) {
    (void)state;
    keep_everything();
    char *whole = must_alloc(30 * MIB);
    use(whole, 30 * MIB);
    release(whole);
    uint64_t calls = memory_calls();
    char *a = must_alloc(5 * MIB);
    char *b = must_alloc(10 * MIB);
    char *c = must_alloc(14 * MIB);
    assert_ptr_equal(a, whole);
    assert_ptr_equal(b, whole + 5 * MIB);
    assert_ptr_equal(c, whole + 15 * MIB);
    check_sound();
    release(a);
    release(c);
    assert_int_equal(hak_large_count().kept_blocks, 2);
    check_sound();
    release(b);
    assert_int_equal(hak_large_count().kept_blocks, 1);
    long faults = page_faults();
    assert_ptr_equal(must_alloc(30 * MIB), whole);
    use(whole, 30 * MIB);
    assert_in_range(page_faults() - faults, 0, 8);
    assert_int_equal(memory_calls(), calls);
    check_sound();
    release(whole);
}

static void only_more_than_a_quarter_is_worth_cutting_off(void **state) {
    (void)state;
    keep_everything();
    char *piece = must_alloc(3 * MIB);
    release(piece);
    assert_ptr_equal(must_alloc(3 * MIB - 576 * KIB), piece);
    assert_int_equal(usable(piece), 3 * MIB);
    release(piece);
    assert_ptr_equal(must_alloc(3 * MIB - 640 * KIB), piece);
    assert_int_equal(usable(piece), 3 * MIB - 640 * KIB);
    release(piece);
    check_sound();
}

/* An end of a registry leaf that is far from all that is mapped, another one with each call. */
static char *new_leaf_end(void) {
    static uintptr_t leaves_below = 16;
    char *p = must_alloc(MIB);
    uintptr_t end = hak_round_down((uintptr_t)p, (size_t)1 << HAK_LEAF_SHIFT);
    release(p);
    leaves_below += 4;
    return (char *)(end - (leaves_below << HAK_LEAF_SHIFT));
}

static char *alloc_at(char *place, size_t bytes) {
    (void)hak_large_trim(0);
    next_place = place;
    char *p = must_alloc(bytes);
    assert_ptr_equal(p, place);
    return p;
}

/* Where the kernel puts a block is chance: one across the end of a leaf is cut and joined like any other. */
static void a_piece_across_two_registry_leaves_is_cut_like_any(void **state) {
    (void)state;
    keep_everything();
    char *whole = alloc_at(new_leaf_end() - 10 * MIB, 30 * MIB);
    release(whole);
    char *a = must_alloc(12 * MIB); /* what is left starts behind the end of the leaf */
    assert_ptr_equal(a, whole);
    assert_int_equal(usable(a), 12 * MIB);
    assert_ptr_equal(resize(a, 14 * MIB), whole);
    assert_int_equal(usable(a), 14 * MIB);
    assert_ptr_equal(must_alloc(16 * MIB), whole + 14 * MIB);
    assert_ptr_equal(resize(a, 11 * MIB), whole);
    assert_int_equal(hak_large_count().kept_bytes, 3 * MIB);
    check_sound();
    release(a);
    release(whole + 14 * MIB);
    assert_int_equal(hak_large_count().kept_blocks, 1);
    check_all_freed();
}

static void a_block_that_grows_into_another_leaf_is_cut_there(void **state) {
    (void)state;
    keep_everything();
    char *p = alloc_at(new_leaf_end() - 10 * MIB, 5 * MIB);
    assert_ptr_equal(resize(p, 20 * MIB), p);
    assert_ptr_equal(resize(p, 12 * MIB), p);
    assert_int_equal(hak_large_count().kept_bytes, 8 * MIB);
    char *moved_to = new_leaf_end() - 10 * MIB;
    char *wall = must_alloc(8 * MIB);
    assert_ptr_equal(wall, p + 12 * MIB);
    use(p, 12 * MIB);
    next_place = moved_to;
    char *moved = resize(p, 30 * MIB);
    assert_ptr_not_equal(moved, p);
    assert_int_equal((uintptr_t)moved >> HAK_LEAF_SHIFT, (uintptr_t)moved_to >> HAK_LEAF_SHIFT);
    assert_ptr_equal(resize(moved, 12 * MIB), moved);
    assert_int_equal(hak_large_count().kept_bytes, 18 * MIB);
    check_sound();
    release(moved);
    release(wall);
    check_all_freed();
}

static void where_no_leaf_can_be_mapped_nothing_of_the_growth_stays(void **state) {
    (void)state;
    keep_everything();
    char *p = alloc_at(new_leaf_end() - 10 * MIB, 5 * MIB);
    pattern_fill(p, 5 * MIB, 1);
    arm_faults(2, 2); /* the first makes the kernel mapping longer, the second maps the leaf */
    char *moved = resize(p, 20 * MIB);
    assert_in_range(disarm_faults(), 3, 100);
    assert_ptr_not_equal(moved, p);
    assert_true(pattern_holds(moved, 5 * MIB, 1));
    unsigned char is_resident;
    assert_int_equal(mincore(p + 5 * MIB, 1, &is_resident), -1); /* nothing is mapped there */
    assert_int_equal(usable(moved), 20 * MIB);
    check_sound();
    release(moved);
    check_all_freed();
}

/* A piece with an end where no word can be stored is left alone rather than given whole for less. */
static void what_cannot_be_cut_is_no_fit(void **state) {
    (void)state;
    struct hak_large_policy policy = hak_large_policy;
    keep_everything();
    hak_large_policy.cut_bytes_max = HAK_UNIT_BYTES;
    char *whole = alloc_at(new_leaf_end() - 10 * MIB, 30 * MIB);
    release(whole);
    char *a = must_alloc(12 * MIB);
    assert_int_equal(usable(a), 12 * MIB);
    assert_ptr_not_equal(a, whole);
    char *b = must_alloc(9 * MIB); /* this much it can give */
    assert_ptr_equal(b, whole);
    char *c = resize(b, 11 * MIB);
    assert_ptr_not_equal(c, whole);
    assert_int_equal(usable(c), 11 * MIB);
    char *d = must_alloc(30 * MIB); /* and all of it */
    assert_int_equal(usable(d), 30 * MIB);
    check_sound();
    release(a);
    release(c);
    release(d);
    hak_large_policy.cut_bytes_max = policy.cut_bytes_max;
    check_all_freed();
}

static void too_short_a_piece_is_moved_where_it_can_be_longer(void **state) {
    (void)state;
    keep_everything();
    char *a = must_alloc(14 * MIB);
    use(a, 14 * MIB);
    release(a);
    long faults = page_faults();
    char *b = must_alloc(20 * MIB);
    use(b, 14 * MIB);
    assert_in_range(page_faults() - faults, 0, 40); /* of 3584 */
    assert_int_equal(hak_large_count().kept_bytes, 0);
    check_sound();
    release(b);
}

static void no_more_pieces_are_kept_than_allowed(void **state) {
    (void)state;
    enum { BLOCKS = 100 };
    char *blocks[BLOCKS];
    keep_everything();
    hak_atomic_store_relaxed(&hak_large_map_threshold, 64 * KIB); /* relaxed: one thread */
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = must_alloc(256 * KIB);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        release(blocks[i]);
        assert_in_range(hak_large_count().kept_blocks, 0, hak_large_policy.kept_count_max);
    }
    hak_atomic_store_relaxed(&hak_large_map_threshold, MIB); /* relaxed: one thread */
    check_sound();
}

static void a_trim_gives_everything_back(void **state) {
    (void)state;
    keep_everything();
    uint64_t mapped = hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes); /* relaxed: one thread */
    char *a = must_alloc(20 * MIB);
    char *b = must_alloc(10 * MIB);
    use(a, 20 * MIB);
    release(a);
    release(b);
    assert_int_equal(hak_large_trim(15 * MIB), 15 * MIB);
    assert_int_equal(hak_large_count().dirty_bytes, 15 * MIB);
    check_sound();
    assert_int_equal(hak_large_trim(0), 15 * MIB);
    assert_int_equal(hak_large_count().kept_bytes, 0);
    assert_int_equal(hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes),
                     mapped); /* relaxed: one thread */
    check_sound();
}

/* ---- zero ---- */

static void calloc_is_zero_after_any_use(void **state) {
    (void)state;
    struct rng rng = rng_seeded(13);
    keep_everything();
    for (unsigned i = 0; i < 60; i++) {
        size_t bytes = MIB + rng_below(&rng, 6 * MIB);
        char *p = hak_large_calloc(bytes);
        char *q = hak_large_calloc(MIB);
        assert_true(bytes_are(p, bytes, 0));
        assert_true(bytes_are(q, MIB, 0));
        memset(p, 0xff, usable(p));
        memset(q, 0xff, usable(q));
        release(p);
        release(q);
    }
    check_sound();
}

static void calloc_of_a_fresh_mapping_touches_none_of_it(void **state) {
    (void)state;
    long faults = page_faults();
    char *p = hak_large_calloc(64 * MIB);
    assert_in_range(page_faults() - faults, 0, 4);
    assert_true(bytes_are(p + 60 * MIB, 4 * MIB, 0));
    release(p);
}

/* What its last owner asked for and never touched stays without pages, though it was kept. */
static void calloc_of_what_nobody_touched_touches_none_of_it(void **state) {
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        long faults = page_faults();
        char *p = hak_large_calloc(48 * MIB);
        p[47 * MIB] = 1;
        assert_in_range(page_faults() - faults, 0, 40);
        assert_int_equal(p[0] | p[24 * MIB] | p[47 * MIB + 1], 0);
        release(p);
    }
    assert_in_range(hak_large_count().dirty_bytes, 32 * MIB, 64 * MIB); /* it was kept */
    check_sound();
}

/* ---- length ---- */

static void doubling_64_mib_moves_pages_and_faults_none(void **state) {
    (void)state;
    for (size_t bytes = MIB; bytes <= 64 * MIB; bytes *= 2) {
        start_clean(NULL);
        char *wall = must_alloc(MIB);
        char *p = must_alloc(bytes);
        pattern_mark(p, bytes, bytes);
        char saved[8];
        memcpy(saved, p + bytes - 8, 8);
        memcpy(p + bytes - 8, "the end", 8);
        uint64_t calls = memory_calls();
        long faults = page_faults();
        char *moved = resize(p, 2 * bytes);
        assert_in_range(page_faults() - faults, 0, 4);
        assert_in_range(memory_calls() - calls, 1, 7); /* two of them ask whether it is one kernel mapping */
        assert_string_equal(moved + bytes - 8, "the end");
        memcpy(moved + bytes - 8, saved, 8);
        assert_true(pattern_marked(moved, bytes, bytes));
        assert_true(bytes_are(moved + bytes, MIB, 0));
        check_sound();
        release(moved);
        release(wall);
    }
}

/* Address space to grow into is asked for along with the move, and done without if there is none. */
static void without_room_to_grow_pages_move_all_the_same(void **state) {
    (void)state;
    keep_everything();
    char *whole = must_alloc(12 * MIB);
    use(whole, 12 * MIB);
    release(whole);
    char *p = must_alloc(4 * MIB);
    char *wall = must_alloc(8 * MIB);
    assert_ptr_equal(wall, p + 4 * MIB);
    pattern_mark(p, 4 * MIB, 5);
    long faults = page_faults();
    arm_faults(1, 1);
    char *moved = resize(p, 16 * MIB);
    (void)disarm_faults();
    assert_non_null(moved);
    assert_in_range(page_faults() - faults, 0, 40); /* of 1024 */
    assert_true(pattern_marked(moved, 4 * MIB, 5));
    check_sound();
    release(moved);
    release(wall);
}

/* The steps by which buffers grow: by half, and by a little. */
static void growth_in_steps_copies_nothing(void **state) {
    (void)state;
    char *p = must_alloc(MIB);
    char *wall = must_alloc(MIB); /* below or above it: no room for good */
    long faults = page_faults();
    size_t touched_pages = 256;
    use(p, MIB);
    for (size_t bytes = MIB + 4096; bytes < 40 * MIB; bytes += 300 * KIB) {
        p = resize(p, bytes);
        assert_non_null(p);
        p[bytes - 1] = 1;
        touched_pages++;
    }
    assert_in_range(page_faults() - faults, 0, touched_pages + 64);
    use(p, 40 * MIB - 300 * KIB);
    for (size_t bytes = 40 * MIB; bytes < 300 * MIB; bytes = bytes * 3 / 2) {
        faults = page_faults();
        p = resize(p, bytes);
        assert_non_null(p);
        assert_in_range(page_faults() - faults, 0, 8);
    }
    check_sound();
    release(p);
    release(wall);
}

static void a_block_shrinks_in_place_and_its_end_is_reused(void **state) {
    (void)state;
    keep_everything();
    char *p = must_alloc(30 * MIB);
    use(p, 30 * MIB);
    pattern_fill(p, 8 * MIB, 14);
    raise_the_floor();
    uint64_t calls = memory_calls();
    assert_ptr_equal(resize(p, 8 * MIB), p);
    assert_int_equal(usable(p), 8 * MIB);
    assert_int_equal(hak_large_count().kept_bytes, 22 * MIB);
    check_sound();
    /* Grows over its own end again. */
    assert_ptr_equal(resize(p, 12 * MIB), p);
    assert_int_equal(hak_large_count().kept_bytes, 18 * MIB);
    check_sound();
    assert_ptr_equal(resize(p, 30 * MIB - HAK_UNIT_BYTES), p); /* too little would be left to keep */
    assert_int_equal(usable(p), 30 * MIB);
    assert_int_equal(memory_calls(), calls);
    assert_true(pattern_holds(p, 8 * MIB, 14));
    /* From 1 MiB on an end is kept. */
    assert_ptr_equal(resize(p, 29 * MIB), p);
    assert_int_equal(hak_large_count().kept_bytes, MIB);
    assert_ptr_equal(resize(p, 30 * MIB), p);
    assert_int_equal(memory_calls(), calls);
    arm_faults(UINT_MAX, UINT_MAX);
    assert_ptr_equal(resize(p, 30 * MIB), p); /* to what it has */
    assert_int_equal(disarm_faults(), 0);
    /* A short end goes back at once. */
    assert_ptr_equal(resize(p, 30 * MIB - 3 * HAK_UNIT_BYTES), p);
    assert_int_equal(usable(p), 30 * MIB - 3 * HAK_UNIT_BYTES);
    assert_int_equal(memory_calls(), calls + 1);
    check_sound();
    release(p);
}

static void a_block_shrinks_below_the_threshold(void **state) {
    (void)state;
    char *p = must_alloc(30 * MIB);
    pattern_fill(p, 40 * KIB, 15);
    char *small = resize(p, 40 * KIB);
    assert_in_range(usable(small), 40 * KIB, HAK_UNIT_BYTES);
    assert_true(pattern_holds(small, 40 * KIB, 15));
    pay_debts();
    assert_in_range(hak_large_count().dirty_bytes, 0, hak_large_policy.floor_bytes);
    check_sound();
    release(small);
}

static void a_block_with_locked_pages_moves_too(void **state) {
    (void)state;
    char *p = must_alloc(4 * MIB);
    char *wall = must_alloc(MIB);
    if (mlock(p + MIB, 64 * KIB) != 0) {
        release(p);
        release(wall);
        SKIP_BECAUSE("mlock is not allowed");
    }
    pattern_fill(p, 4 * MIB, 16);
    char *moved = resize(p, 16 * MIB); /* more than one kernel mapping: moved or copied as the kernel can */
    assert_non_null(moved);
    assert_true(pattern_holds(moved, 4 * MIB, 16));
    check_sound();
    munlockall();
    release(moved);
    release(wall);
}

/* ---- questions ---- */

static void inner_pointers_find_their_block(void **state) {
    (void)state;
    size_t bytes = 0;
    char *p = must_alloc(5 * MIB);
    assert_ptr_equal(hak_large_find(p, &bytes), p);
    assert_int_equal(bytes, 5 * MIB);
    assert_ptr_equal(hak_large_find(p + 5 * MIB - 1, &bytes), p);
    assert_ptr_equal(hak_large_find(p + 3 * MIB + 5, &bytes), p);
    assert_null(hak_large_find(&bytes, &bytes));
    assert_int_not_equal(hak_word_kind(word_of(p + 3 * MIB)), HAK_KIND_MAPPED); /* none, or an old mark */
    assert_true(hak_large_owns(p, word_of(p)));
    assert_false(hak_large_owns(p + 16, word_of(p + 16)));
    release(p);
    assert_null(hak_large_find(p, &bytes));
    assert_false(hak_large_owns(p, word_of(p)));
}

static int find_in_list(void *block, size_t usable_bytes, void *context) {
    char **blocks = context;
    for (unsigned i = 0; i < 10; i++) {
        if (blocks[i] == block) {
            CHECK(usable_bytes == usable(block));
            blocks[i] = NULL;
        }
    }
    return 0;
}

static int add_bytes(void *range, size_t bytes, void *sum) {
    (void)range;
    *(size_t *)sum += bytes;
    return 0;
}

/* Records without memory lie among the others. */
static void all_that_is_mapped_is_visited(void **state) {
    (void)state;
    size_t before_bytes = 0, bytes = 0;
    char *first = must_alloc(3 * MIB);
    char *gone = must_alloc(20 * MIB);
    char *last = must_alloc(4 * MIB);
    release(gone);
    (void)hak_large_trim(0);
    hak_large_visit_mapped(add_bytes, &bytes);
    release(first);
    release(last);
    (void)hak_large_trim(0);
    hak_large_visit_mapped(add_bytes, &before_bytes);
    assert_int_equal(bytes, before_bytes + 7 * MIB);
}

static void a_walk_visits_every_live_block(void **state) {
    (void)state;
    char *blocks[10], *unseen[10];
    for (unsigned i = 0; i < 10; i++) {
        unseen[i] = blocks[i] = must_alloc(MIB + i * MIB);
    }
    struct hak_large_counts counts = hak_large_count();
    assert_int_equal(counts.mapped_blocks, 10);
    assert_int_equal(counts.mapped_bytes, 55 * MIB);
    assert_int_equal(hak_large_walk(find_in_list, unseen), 0);
    for (unsigned i = 0; i < 10; i++) {
        assert_null(unseen[i]);
        release(blocks[i]);
    }
}

/* ---- wrong pointers ---- */

static int free_twice(void *context) {
    (void)context;
    char *p = must_alloc(2 * MIB); /* kept */
    announce(p, usable(p));
    release(p);
    CHECK(hak_large_count().kept_blocks == 1);
    release(p);
    return 0;
}

static int free_twice_unmapped(void *context) {
    (void)context;
    char *p = must_alloc(30 * MIB);
    announce(p, usable(p));
    release(p);
    (void)hak_large_trim(0);
    CHECK(hak_large_count().kept_blocks == 0);
    release(p);
    return 0;
}

static int free_twice_joined(void *context) {
    (void)context;
    keep_everything();
    char *whole = must_alloc(20 * MIB);
    release(whole);
    char *a = must_alloc(6 * MIB);
    char *b = must_alloc(13 * MIB);
    CHECK(b == a + 6 * MIB);
    announce(b, usable(b));
    release(a);
    release(b);
    CHECK(hak_large_count().kept_blocks == 1);
    release(b);
    return 0;
}

static int free_inside(void *context) {
    (void)context;
    char *p = must_alloc(2 * MIB);
    announce(p + 4096, usable(p));
    release(p + 4096);
    return 0;
}

static int free_at_an_old_mark(void *context) {
    (void)context;
    keep_everything();
    char *whole = must_alloc(20 * MIB);
    release(whole);
    char *a = must_alloc(6 * MIB);
    char *b = must_alloc(13 * MIB);
    release(a);
    release(b);
    CHECK(must_alloc(20 * MIB) == whole && hak_word_kind(word_of(b)) == HAK_KIND_LARGE_FREED);
    announce(b, 20 * MIB); /* a block started there, but now it is inside another */
    release(b);
    return 0;
}

static int resize_what_was_moved(void *context) {
    (void)context;
    char *p = must_alloc(2 * MIB);
    char *wall = must_alloc(MIB);
    announce(p, usable(p));
    while (resize(p, 40 * MIB) == p) {
        CHECK(wall != NULL);
        p = must_alloc(2 * MIB);
        announce(p, usable(p));
    }
    (void)!resize(p, 50 * MIB);
    return 0;
}

static int usable_inside(void *context) {
    (void)context;
    char *p = must_alloc(2 * MIB);
    announce(p + 8, usable(p));
    (void)!usable(p + 8);
    return 0;
}

static int resize_inside(void *context) {
    (void)context;
    char *p = must_alloc(2 * MIB);
    announce(p + 16, usable(p));
    (void)!resize(p + 16, 4 * MIB);
    return 0;
}

static void wrong_pointers_end_in_their_line(void **state) {
    (void)state;
    assert_fatal(free_twice, "free", "double free of");
    assert_fatal(free_twice_unmapped, "free", "double free of");
    assert_fatal(free_twice_joined, "free", "double free of");
    assert_fatal(free_inside, "free", "invalid pointer");
    assert_fatal(free_at_an_old_mark, "free", "invalid pointer");
    assert_fatal(resize_what_was_moved, "realloc", "use of freed block");
    assert_fatal(usable_inside, "malloc_usable_size", "invalid pointer");
    assert_fatal(resize_inside, "realloc", "invalid pointer");
}

/* ---- system calls that fail ---- */

/* As in large_extent_test.c, with blocks that are mapped, grown, shrunk, cut, moved and reused. */
#define CHECKED_BYTES (192 * KIB) /* of each block: the whole of all would take the test's time */

static void course_of_mappings(void) {
    enum { BLOCKS = 8 };
    char *blocks[BLOCKS];
    size_t bytes[BLOCKS];
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            bytes[i] = MIB + (i * 7 + round * 3) % 8 * 700 * KIB;
            blocks[i] = i % 3 == 0 ? hak_large_calloc(bytes[i]) : alloc(bytes[i]);
            if (blocks[i] != NULL) {
                CHECK(i % 3 != 0 || bytes_are(blocks[i], bytes[i], 0));
                pattern_fill(blocks[i], CHECKED_BYTES, i);
                blocks[i][bytes[i] - 1] = 1;
            }
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            size_t new_bytes = i % 4 == 0 ? bytes[i] * 2 : i % 4 == 1 ? bytes[i] / 4 : bytes[i] - 200 * KIB;
            char *moved = blocks[i] == NULL || i % 4 == 3 ? NULL : resize(blocks[i], new_bytes);
            if (moved != NULL) {
                blocks[i] = moved;
                CHECK(pattern_holds(moved, CHECKED_BYTES, i));
                bytes[i] = new_bytes;
                moved[new_bytes - 1] = 1;
            }
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            if (blocks[i] != NULL) {
                CHECK(pattern_holds(blocks[i], CHECKED_BYTES, i));
                release(blocks[i]);
            }
        }
    }
}

static void every_system_call_may_fail(void **state) {
    (void)state;
    unsigned calls = UINT_MAX;
    for (unsigned n = 1; n <= calls; n++) {
        (void)start_clean(NULL);
        arm_faults(n, n);
        course_of_mappings();
        (void)hak_large_trim(0);
        calls = disarm_faults() + 1;
        check_all_freed();
    }
    assert_in_range(calls, 20, 10000);
}

static void all_system_calls_from_one_on_may_fail(void **state) {
    (void)state;
    unsigned made = UINT_MAX;
    for (unsigned n = 1; n <= made && n < 80; n++) {
        (void)start_clean(NULL);
        arm_faults(n, UINT_MAX);
        course_of_mappings();
        (void)hak_large_trim(0);
        made = disarm_faults();
        check_all_freed();
    }
    (void)hak_large_trim(0);
    assert_int_equal(hak_large_count().kept_blocks, 0); /* what would not go has gone now */
    course_of_mappings();
    check_sound();
}

/* A purge that gives nothing, again and again, is no progress. */
static void a_trim_ends_where_nothing_can_be_given(void **state) {
    (void)state;
    keep_everything();
    char *run = must_alloc(500 * KIB);
    char *wall = must_alloc(40 * KIB);
    char *block = must_alloc(2 * MIB);
    use(block, 2 * MIB);
    os_faults.is_unmapping_refused = true;
    os_faults.locked[0] = run + 100 * KIB;
    release(run);
    release(block);
    unsigned old_alarm = alarm(10);
    (void)hak_large_trim(0);
    alarm(old_alarm);
    assert_in_range(hak_large_count().dirty_bytes, 1, hak_os_page_round(500 * KIB)); /* the locked run */
    check_sound();
    os_faults.is_unmapping_refused = false;
    os_faults.locked[0] = NULL;
    (void)hak_large_trim(0);
    assert_int_equal(hak_large_count().dirty_bytes, 0);
    assert_int_equal(hak_large_count().kept_bytes, 0);
    release(wall);
    check_all_freed();
}

static void what_cannot_be_unmapped_is_purged_and_used_again(void **state) {
    (void)state;
    enum { BLOCKS = 90 };
    static char *blocks[BLOCKS];
    char *run = must_alloc(500 * KIB);
    char *wall = must_alloc(40 * KIB);
    os_faults.is_unmapping_refused = true;
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = must_alloc(MIB);
        use(blocks[i], MIB);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint64_t calls = memory_calls();
        release(blocks[i]);
        assert_in_range(memory_calls() - calls, 0, 2 * HAK_PURGE_STEP_CALLS);
    }
    check_sound();
    assert_in_range(hak_large_count().kept_bytes, 64 * MIB, BLOCKS * MIB);
    release(run);
    (void)hak_large_trim(0);
    assert_int_equal(hak_large_count().dirty_bytes, 0);
    char *again = hak_large_calloc(MIB);
    assert_true(bytes_are(again, MIB, 0));
    release(again);
    check_sound();
    os_faults.is_unmapping_refused = false;
    (void)hak_large_trim(0);
    assert_int_equal(hak_large_count().kept_bytes, 0);
    release(wall);
}

#define TEST(name) cmocka_unit_test_setup(name, start_clean)

int main(void) {
    const struct CMUnitTest for_any_page[] = {
        TEST(random_mappings_keep_their_contents),
        TEST(threads_side_by_side),
        TEST(all_of_the_usable_size_can_be_written),
        TEST(alignments_up_to_a_gibibyte),
        TEST(impossible_sizes_are_refused),
        TEST(calloc_is_zero_after_any_use),
        TEST(a_block_shrinks_in_place_and_its_end_is_reused),
        TEST(inner_pointers_find_their_block),
        TEST(wrong_pointers_end_in_their_line),
        TEST(every_system_call_may_fail),
        TEST(all_system_calls_from_one_on_may_fail),
        TEST(a_trim_ends_where_nothing_can_be_given),
        TEST(what_cannot_be_unmapped_is_purged_and_used_again),
    };
    const struct CMUnitTest for_pages_of_the_kernel[] = {
        TEST(the_same_with_pages_of_16_kib),
        TEST(the_same_with_pages_of_64_kib),
        TEST(the_threshold_decides_the_kind),
        TEST(steady_blocks_of_5_to_25_mib_make_no_call_and_no_fault),
        TEST(the_floor_rises_by_64_mib_and_no_further),
        TEST(what_is_wanted_again_twice_stays),
        TEST(without_proof_only_the_floor_stays),
        TEST(of_an_array_that_doubles_hardly_anything_stays),
        TEST(a_block_that_outgrows_all_before_proves_nothing),
        TEST(the_raised_floor_falls_with_time),
        TEST(a_gibibyte_goes_back_with_the_free),
        TEST(a_floor_that_falls_takes_several_pieces_along),
        TEST(a_floor_that_falls_is_paid_for_in_pieces),
        TEST(the_shortest_kept_piece_that_fits_is_taken),
        TEST(a_long_kept_piece_is_cut_and_becomes_whole_again),
        TEST(a_piece_across_two_registry_leaves_is_cut_like_any),
        TEST(a_block_that_grows_into_another_leaf_is_cut_there),
        TEST(where_no_leaf_can_be_mapped_nothing_of_the_growth_stays),
        TEST(what_cannot_be_cut_is_no_fit),
        TEST(too_short_a_piece_is_moved_where_it_can_be_longer),
        TEST(only_more_than_a_quarter_is_worth_cutting_off),
        TEST(no_more_pieces_are_kept_than_allowed),
        TEST(a_trim_gives_everything_back),
        TEST(calloc_of_a_fresh_mapping_touches_none_of_it),
        TEST(calloc_of_what_nobody_touched_touches_none_of_it),
        TEST(doubling_64_mib_moves_pages_and_faults_none),
        TEST(without_room_to_grow_pages_move_all_the_same),
        TEST(growth_in_steps_copies_nothing),
        TEST(a_block_shrinks_below_the_threshold),
        TEST(a_block_with_locked_pages_moves_too),
        TEST(all_that_is_mapped_is_visited),
        TEST(a_walk_visits_every_live_block),
    };
    int failed = cmocka_run_group_tests(for_any_page, NULL, NULL);
    return failed != 0 || !has_real_pages() ? failed
                                            : cmocka_run_group_tests(for_pages_of_the_kernel, NULL, NULL);
}
