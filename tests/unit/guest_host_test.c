/*
 * guest_host_test.c - which rows of which slabs guests are made of: of hosts all that fit, of slabs that are
 * somebody else's, about to be emptied or not needed none.
 *
 * suite: limit 60 s
 */
#include "guest_kit.h"

#include "slab/orphans.h"
#include "slab/purge.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "support/blocks.h"

#define SLABS_MAX  2048u
#define WANT       40000u /* more than one search finds */
#define HOLED      (12 * MIB)
#define HOST_MIN   16u
#define PAGE_BYTES 4096u

/* ---- rows, counted by hand ---- */

static uint8_t maps_before[SLABS_MAX][HAK_SLAB_BLOCKS_MAX];
static int counts_before[SLABS_MAX];
static unsigned made_of[SLABS_MAX];
static struct block_ref refs[WANT];
static void *holed[HOLED / HOST_MIN];

static int count_of(const struct slab *slab) {
    return hak_slab_word_count(hak_atomic_load_relaxed(&slab->word)); /* relaxed: one thread */
}

static bool is_assigned(const struct slab *slab) {
    return hak_slab_word_is_assigned(hak_atomic_load_relaxed(&slab->word)); /* relaxed: one thread */
}

/* A slab of survivors. */
static bool has_holes(const struct slab *slab) {
    return is_assigned(slab) && slab->class_idx == hak_class_of(SMALL_BYTES) &&
           count_of(slab) > (int)slab->capacity_blocks / 2;
}

static void note_maps(void) {
    struct slab *slab;
    for (size_t i = 0; (slab = hak_slab_at(i)) != NULL; i++) {
        CHECK(i < SLABS_MAX);
        counts_before[i] = is_assigned(slab) ? count_of(slab) : 0;
        for (unsigned b = 0; is_assigned(slab) && b < slab->capacity_blocks; b++) {
            maps_before[i][b] = (uint8_t)header_value(&slab->map[b]);
        }
    }
}

/* Those of all slabs but of one class. */
static void maps_are_as_noted_but(unsigned class_idx) {
    struct slab *slab;
    for (size_t i = 0; (slab = hak_slab_at(i)) != NULL; i++) {
        bool is_of_others = is_assigned(slab) && slab->class_idx != class_idx;
        for (unsigned b = 0; is_of_others && b < slab->capacity_blocks; b++) {
            CHECK(header_value(&slab->map[b]) == maps_before[i][b]);
        }
        CHECK(!is_of_others || count_of(slab) == counts_before[i]);
    }
}

static void maps_are_as_noted(void) {
    maps_are_as_noted_but(HAK_CLASS_COUNT);
}

static bool lies_on_pages_that_are_there(const struct slab *slab, unsigned block) {
    size_t bytes = hak_class_block_bytes[slab->class_idx];
    size_t first = block * bytes / PAGE_BYTES, last = (block * bytes + bytes - 1) / PAGE_BYTES;
    for (size_t page = first; page <= last; page++) {
        if ((slab->purged_mask >> page & 1) != 0) {
            return false;
        }
    }
    return true;
}

/* Of a slab as it was noted. */
static unsigned rows_that_fit(const struct slab *slab, const uint8_t *map, unsigned length) {
    unsigned rows = 0, run = 0;
    for (unsigned b = 0; b < slab->capacity_blocks; b++) {
        run = map[b] == HAK_HEADER_FREE && lies_on_pages_that_are_there(slab, b) ? run + 1 : 0;
        rows += run != 0 && run % length == 0;
    }
    return rows;
}

static size_t number_of(const struct slab *slab) {
    size_t i = 0;
    while (hak_slab_at(i) != slab) {
        i++;
        CHECK(i < SLABS_MAX);
    }
    return i;
}

static void check_row(struct block_ref ref, const struct slab *slab, size_t number, unsigned class_idx) {
    unsigned length = hak_row_blocks(slab->class_idx, class_idx);
    unsigned first = (unsigned)(ref.header - slab->map);
    CHECK(slab->class_idx < class_idx && first + length <= slab->capacity_blocks);
    CHECK((uintptr_t)ref.block == slab->base + first * hak_class_block_bytes[slab->class_idx]);
    for (unsigned b = first; b < first + length; b++) {
        CHECK(maps_before[number][b] == HAK_HEADER_FREE);
        CHECK(lies_on_pages_that_are_there(slab, b));
        CHECK(header_value(&slab->map[b]) == (b == first ? HAK_HEADER_CACHED : HAK_HEADER_TAIL));
    }
    CHECK(header_value(&slab->map[first + length]) != HAK_HEADER_TAIL);
    CHECK(hak_row_length(ref.header) == length);
}

/* Takes guests of the class past the cache; each slab that gave some gave all that it had. */
static unsigned take_all_rows(unsigned class_idx) {
    struct heap *heap = hak_heap_attach();
    CHECK(hak_orphans_look_empty(class_idx)); /* else they come first */
    unsigned got = hak_guests_take(class_idx, heap->id, refs, WANT, hak_heap_handle_event, heap);
    CHECK(got < WANT);
    memset(made_of, 0, sizeof made_of);
    for (unsigned i = 0; i < got; i++) {
        struct slab *slab = hak_slab_of_block(refs[i].block);
        size_t number = number_of(slab);
        check_row(refs[i], slab, number, class_idx);
        made_of[number]++;
    }
    for (size_t i = 0; i < SLABS_MAX; i++) {
        struct slab *slab = made_of[i] != 0 ? hak_slab_at(i) : NULL;
        unsigned length = slab != NULL ? hak_row_blocks(slab->class_idx, class_idx) : 0;
        CHECK(slab == NULL || made_of[i] == rows_that_fit(slab, maps_before[i], length));
        CHECK(slab == NULL || count_of(slab) == counts_before[i] - (int)(made_of[i] * length));
    }
    return got;
}

static unsigned leave_holes(size_t bytes, struct rng *rng) {
    unsigned left = 0, all = (unsigned)(HOLED / bytes);
    for (unsigned i = 0; i < all; i++) {
        holed[i] = hak_malloc(bytes);
        CHECK(holed[i] != NULL);
    }
    for (unsigned i = 0; i < all; i++) {
        if (rng_below(rng, 100) < KEPT_OF_100) {
            holed[left++] = holed[i];
        } else {
            hak_free(holed[i]);
        }
    }
    (void)hak_trim(0); /* the cache too, and pages that are free between blocks */
    CHECK(!hak_superslab_has_dirty());
    return left;
}

static void all_rows_that_fit_are_taken_and_given_back(void **state) {
    (void)state;
    static const size_t pairs[][2] = {{16, 32},   {16, 112},   {16, 896},  {48, 64},
                                      {48, 192},  {48, 3072},  {112, 128}, {112, 1280},
                                      {320, 448}, {320, 2048}, {640, 768}, {640, 3584}};
    struct rng rng = rng_seeded(11);
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        unsigned left = leave_holes(pairs[i][0], &rng);
        note_maps();
        unsigned got = take_all_rows(hak_class_of(pairs[i][1]));
        print_message("%u of %zu in %zu\n", got, pairs[i][1], pairs[i][0]);
        assert_true(got >= 4);
        (void)hak_blocks_return(refs, got, hak_heap_attach()->id, hak_heap_handle_event, hak_heap_attach());
        maps_are_as_noted();
        check_heap();
        for (unsigned b = 0; b < left; b++) {
            hak_free(holed[b]);
        }
        (void)hak_trim(0);
    }
}

/* One call returns both, in any order: entries of a line may be of guests, of one unit, or neither. */
static void guests_among_other_blocks_go_home_whole(void **state) {
    (void)state;
    static const unsigned others_of_ten[] = {2, 5, 8};
    enum { MIXED = 1000 };
    static struct block_ref mixed[MIXED], others[MIXED];
    struct heap *heap = hak_heap_attach();
    struct rng rng = rng_seeded(12);
    for (size_t i = 0; i < COUNT_OF(others_of_ten); i++) {
        unsigned left = leave_holes(48, &rng);
        note_maps();
        unsigned guests = take_all_rows(hak_class_of(192)), next_guest = 0, next_other = 0;
        assert_true(guests >= MIXED / 2);
        blocks_take_refs(heap, hak_class_of(2048), others, MIXED);
        while (next_guest < guests && next_other < MIXED) {
            unsigned count = 0;
            while (count < MIXED && next_guest < guests && next_other < MIXED) {
                bool is_other = rng_below(&rng, 10) < others_of_ten[i];
                mixed[count++] = is_other ? others[next_other++] : refs[next_guest++];
            }
            (void)hak_blocks_return(mixed, count, heap->id, hak_heap_handle_event, heap);
        }
        (void)hak_blocks_return(&refs[next_guest], guests - next_guest, heap->id, hak_heap_handle_event,
                                heap);
        (void)hak_blocks_return(&others[next_other], MIXED - next_other, heap->id, hak_heap_handle_event,
                                heap);
        maps_are_as_noted_but(hak_class_of(2048));
        check_heap();
        for (unsigned b = 0; b < left; b++) {
            hak_free(holed[b]);
        }
        (void)hak_trim(0);
    }
}

/* Keeps the survivors that are asked for, with their contents. */
static void keep_survivors(bool (*stays)(unsigned number, const void *survivor)) {
    unsigned left = 0;
    for (unsigned i = 0; i < kept; i++) {
        if (stays(i, smalls[i])) {
            memset(smalls[i], (int)(left % 251), SMALL_BYTES);
            smalls[left++] = smalls[i];
        } else {
            hak_free(smalls[i]);
        }
    }
    kept = left;
    hak_heap_flush(hak_heap_attach(), true);
}

/* 15 of 30 that follow each other go: some 150 blocks in a row. */
static bool is_of_odd_half(unsigned number, const void *survivor) {
    (void)survivor;
    return number / 15 % 2 != 0;
}

/* Of 48-byte blocks 75 in a row are more than are looked for, though there are as many. */
static void no_row_is_longer_than_the_longest(void **state) {
    (void)state;
    struct heap *heap = hak_heap_attach();
    unsigned as_many = 0;
    keep_survivors(is_of_odd_half);
    note_maps();
    for (size_t i = 0; i < SLABS_MAX && hak_slab_at(i) != NULL; i++) {
        as_many += has_holes(hak_slab_at(i)) ? rows_that_fit(hak_slab_at(i), maps_before[i], 75) : 0;
    }
    assert_true(as_many > 1000);
    assert_false(hak_superslab_has_dirty());
    for (unsigned n = 2 * hak_class_of(3073); n < 2 * HAK_CLASS_COUNT; n++) {
        unsigned c = n / 2; /* twice: the class may have to skip a search */
        unsigned got = hak_guests_take(c, heap->id, refs, WANT, hak_heap_handle_event, heap);
        assert_true(got == 0 || hak_class_units[c] == 1);
        for (unsigned i = 0; i < got; i++) {
            assert_int_not_equal(class_of_slab(refs[i].block), hak_class_of(SMALL_BYTES));
        }
        (void)hak_blocks_return(refs, got, heap->id, hak_heap_handle_event, heap);
    }
}

/* Who gives a lease back finds that the slab is nowhere, since its owner dropped the hint meanwhile. */
static void what_was_taken_is_off_the_count_of_a_slab_that_has_to_be_listed(void **state) {
    (void)state;
    struct heap *heap = hak_heap_attach();
    struct slab *slab = hak_superslab_take_units(1, 0);
    CHECK(slab != NULL);
    assert_int_equal(hak_slab_assign(slab, hak_class_of(512), heap->id), 0);
    assert_int_equal(hak_blocks_take(slab, refs, 10), 10);
    assert_int_equal(hak_slab_release(slab, 10, HAK_PLACE_WARM, heap->id), HAK_EVENT_NONE);
    assert_true(hak_slab_lease_any(slab));
    assert_false(hak_slab_lease_warm(slab, hak_class_of(512), heap->id));
    int count = count_of(slab);
    assert_int_equal(hak_blocks_take(slab, refs + 10, 3), 3);
    assert_int_equal(hak_slab_release_any(slab, 3), HAK_EVENT_LIST);
    assert_int_equal(count_of(slab), count - 3);
    hak_heap_handle_event(slab, HAK_EVENT_LIST, heap);
    check_heap();
    (void)hak_blocks_return(refs, 13, heap->id, hak_heap_handle_event, heap);
}

/* ---- slabs that take none ---- */

static bool has_tails(const struct slab *slab) {
    for (unsigned b = 0; b < slab->capacity_blocks; b++) {
        if (header_value(&slab->map[b]) == HAK_HEADER_TAIL) {
            return true;
        }
    }
    return false;
}

static bool is_anothers(const struct slab *slab) {
    uint32_t owner = hak_slab_owner(slab);
    return owner != HAK_OWNER_NOBODY && owner != hak_heap_attach()->id;
}

static bool is_thin(const struct slab *slab) {
    return hak_slab_word_is_thin(hak_atomic_load_relaxed(&slab->word)); /* relaxed: one thread works */
}

/* How many slabs full of holes are of that kind; none of them may have guests. */
static unsigned count_bare(bool (*is_of_kind)(const struct slab *slab)) {
    unsigned slabs = 0;
    struct slab *slab;
    for (size_t i = 0; (slab = hak_slab_at(i)) != NULL; i++) {
        if (has_holes(slab) && is_of_kind(slab)) {
            CHECK(!has_tails(slab));
            slabs++;
        }
    }
    return slabs;
}

static pthread_barrier_t barrier;

static void *leave_survivors_and_stay(void *unused) {
    (void)leave_survivors(NULL);
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    return unused;
}

static void slabs_of_other_threads_take_none(void **state) {
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, leave_survivors_and_stay, NULL), 0);
    (void)pthread_barrier_wait(&barrier);
    unsigned anothers = count_bare(is_anothers);
    assert_true(anothers > 0);
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    assert_true(count_bare(is_anothers) >= anothers);
    check_contents(BIGS);
    (void)pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
}

static void *leave_survivors_and_go(void *unused) {
    (void)leave_survivors(NULL);
    return unused;
}

/* Their slabs stay nobody's, but are tagged: a guest that is freed goes into this thread's cache. */
static void slabs_of_a_thread_that_is_gone_take_guests(void **state) {
    (void)state;
    unsigned low = hak_word_low_of_heap(hak_heap_attach()->id), guests = 0;
    on_thread(leave_survivors_and_go, NULL);
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    for (unsigned i = 0; i < BIGS; i++) {
        if (is_guest(bigs[i], BIG_BYTES)) {
            assert_true(hak_word_has_tag_of(hak_registry_word(bigs[i]), low));
            guests += hak_slab_owner(hak_slab_of_block(bigs[i])) == HAK_OWNER_NOBODY;
        }
    }
    assert_true(guests > BIGS / 4);
    void *guest = any_guest();
    hak_free(guest);
    assert_int_equal(header_value(header_of(guest)), HAK_HEADER_CACHED);
    assert_ptr_equal(hak_malloc(BIG_BYTES), guest);
    for (unsigned i = 0; i < BIGS; i++) {
        if (bigs[i] == guest) {
            fill_big(i);
        }
    }
    check_contents(BIGS);
}

/* One of each second slab's. */
static bool is_of_thick_slab_or_first(unsigned number, const void *survivor) {
    static const struct slab *slab_before;
    struct slab *slab = hak_slab_of_block(survivor);
    bool is_first = number == 0 || slab != slab_before;
    slab_before = slab;
    return is_first || number_of(slab) % 2 != 0;
}

static void thin_slabs_take_none(void **state) {
    (void)state;
    hak_purge_set_floor(GIB);
    keep_survivors(is_of_thick_slab_or_first);
    unsigned thin = count_bare(is_thin);
    assert_true(thin > 50);
    unsigned guests = allocate_bigs(BIGS / 2);
    assert_true(guests > BIGS / 4);
    assert_int_equal(count_bare(is_thin), thin);
    check_contents(BIGS / 2);
}

#define WIDE_BYTES 8192u
#define WIDES      64u /* eight units */

static void where_units_are_free_with_their_pages_none_is_made(void **state) {
    (void)state;
    static void *wides[WIDES];
    hak_purge_set_floor(GIB);
    for (unsigned i = 0; i < WIDES; i++) {
        wides[i] = hak_malloc(WIDE_BYTES);
        memset(wides[i], 1, WIDE_BYTES);
    }
    for (unsigned i = 0; i < WIDES; i++) {
        hak_free(wides[i]);
    }
    hak_heap_flush(hak_heap_attach(), true);
    assert_true(hak_superslab_has_dirty());
    unsigned before = 0;
    while (hak_superslab_has_dirty()) {
        CHECK(before < BIGS / 2);
        bigs[before] = hak_malloc(BIG_BYTES);
        assert_false(is_guest(bigs[before], BIG_BYTES));
        fill_big(before++);
    }
    assert_true(before > WIDES * WIDE_BYTES / 2 / BIG_BYTES);
    unsigned guests = 0;
    for (unsigned i = before; i < BIGS; i++) {
        bigs[i] = hak_malloc(BIG_BYTES);
        guests += is_guest(bigs[i], BIG_BYTES);
        fill_big(i);
    }
    assert_true(guests > BIGS / 4);
    check_contents(BIGS);
}

int main(void) {
#define WITH_SURVIVORS(test) cmocka_unit_test_setup_teardown(test, leave_survivors, nothing_is_left)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_rows_that_fit_are_taken_and_given_back),
        cmocka_unit_test(guests_among_other_blocks_go_home_whole),
        WITH_SURVIVORS(no_row_is_longer_than_the_longest),
        WITH_SURVIVORS(what_was_taken_is_off_the_count_of_a_slab_that_has_to_be_listed),
        cmocka_unit_test_teardown(slabs_of_other_threads_take_none, nothing_is_left),
        cmocka_unit_test_teardown(slabs_of_a_thread_that_is_gone_take_guests, nothing_is_left),
        WITH_SURVIVORS(where_units_are_free_with_their_pages_none_is_made),
        WITH_SURVIVORS(thin_slabs_take_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
