/*
 * huge_pace_test.c - how quickly huge pages come decides whether more are asked for. Time is simulated: what
 * the first touch of one takes, and what the program itself takes.
 *
 * suite: limit 60 s
 */
#include "slab/huge.h"
#include "slab/superslab.h"
#include "support/clock.h"
#include "support/target.h"
#include "support/test.h"

#include <stdlib.h>
#include <sys/mman.h>

#define MS           UINT64_C(1000000)
#define NOW          (1000 * MS)
#define BLOCK_BYTES  500u
#define BLOCKS_MAX   ((size_t)1024 * MIB / 512)
#define BLOCKS_FIRST ((size_t)128 * MIB / 512) /* an unused SuperSlab is less than a 20th of so much */
#define PAUSE_FIRST  16u
#define PAUSE_MAX    256u

/* ---- a watch ---- */

static struct huge_watch begun(void) {
    struct huge_watch watch;
    hak_huge_watch_begin(&watch, NOW);
    return watch;
}

static void a_heap_that_was_given_none_watches_nothing(void **state) {
    (void)state;
    struct huge_watch watch = {0};
    assert_false(hak_huge_is_watched(&watch));
    watch = begun();
    assert_true(hak_huge_is_watched(&watch));
}

static void a_short_stretch_is_fast(void **state) {
    (void)state;
    struct huge_watch watch = begun();
    assert_int_equal(hak_huge_watch_end_stretch(&watch, NOW + 2 * MS - 1), HAK_HUGE_FAST);
    assert_false(hak_huge_is_watched(&watch));
}

static void a_long_one_before_a_short_one_is_slow(void **state) {
    (void)state;
    struct huge_watch watch = begun();
    assert_int_equal(hak_huge_watch_end_stretch(&watch, NOW + 2 * MS), HAK_HUGE_UNKNOWN);
    assert_true(hak_huge_is_watched(&watch));
    assert_int_equal(hak_huge_watch_end_stretch(&watch, NOW + 2 * MS + MS / 2), HAK_HUGE_SLOW);
    assert_false(hak_huge_is_watched(&watch));
}

static void a_long_one_before_another_tells_nothing(void **state) {
    (void)state;
    struct huge_watch watch = begun();
    (void)hak_huge_watch_end_stretch(&watch, NOW + 2 * MS);
    assert_int_equal(hak_huge_watch_end_stretch(&watch, NOW + 2 * MS + MS / 2 + 1), HAK_HUGE_UNKNOWN);
    assert_false(hak_huge_is_watched(&watch));
}

/* ---- the pace ---- */

/* How many have small pages before the next is tried. */
static unsigned pause_of(struct huge_pace *pace) {
    unsigned count = 0;
    while (!hak_huge_pace_allows(pace)) {
        count++;
    }
    return count;
}

static void two_slow_ones_in_a_row_make_a_pause(void **state) {
    (void)state;
    struct huge_pace pace = {0};
    hak_huge_pace_note(&pace, HAK_HUGE_SLOW);
    assert_int_equal(pause_of(&pace), 0);
    hak_huge_pace_note(&pace, HAK_HUGE_FAST);
    hak_huge_pace_note(&pace, HAK_HUGE_SLOW);
    assert_int_equal(pause_of(&pace), 0);
    hak_huge_pace_note(&pace, HAK_HUGE_UNKNOWN);
    hak_huge_pace_note(&pace, HAK_HUGE_SLOW);
    assert_int_equal(pause_of(&pace), PAUSE_FIRST);
}

static void pauses_double_while_trials_are_slow(void **state) {
    (void)state;
    struct huge_pace pace = {0};
    hak_huge_pace_note(&pace, HAK_HUGE_SLOW);
    for (unsigned pause = PAUSE_FIRST; pause <= PAUSE_MAX; pause *= 2) {
        hak_huge_pace_note(&pace, HAK_HUGE_SLOW);
        assert_int_equal(pause_of(&pace), pause);
    }
    hak_huge_pace_note(&pace, HAK_HUGE_SLOW);
    assert_int_equal(pause_of(&pace), PAUSE_MAX);
}

static void a_fast_one_ends_it(void **state) {
    (void)state;
    struct huge_pace pace = {0};
    for (unsigned i = 0; i < 4; i++) {
        hak_huge_pace_note(&pace, HAK_HUGE_SLOW);
    }
    hak_huge_pace_note(&pace, HAK_HUGE_FAST);
    assert_int_equal(pause_of(&pace), 0);
    hak_huge_pace_note(&pace, HAK_HUGE_SLOW);
    hak_huge_pace_note(&pace, HAK_HUGE_SLOW);
    assert_int_equal(pause_of(&pace), PAUSE_FIRST);
}

/* ---- a heap that grows ---- */

static void **blocks;
static size_t block_count;

static void allocate(void) {
    CHECK(block_count < BLOCKS_MAX);
    CHECK((blocks[block_count++] = malloc(BLOCK_BYTES)) != NULL);
}

static int grow_first(void **state) {
    (void)state;
    blocks =
        mmap(NULL, BLOCKS_MAX * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(blocks != MAP_FAILED);
    while (block_count < BLOCKS_FIRST) {
        allocate();
    }
    return 0;
}

static int free_all(void **state) {
    while (block_count != 0) {
        free(blocks[--block_count]);
    }
    CHECK(munmap(blocks, BLOCKS_MAX * sizeof *blocks) == 0);
    return heap_is_sound(state);
}

/*
 * Grows by so many SuperSlabs. The first touch of a huge one takes `huge_ms`, and so does what the program
 * does for every `blocks_of_work` blocks. Returns how many were huge.
 */
static unsigned grow(unsigned superslabs, uint64_t huge_ms, size_t blocks_of_work) {
    uint64_t huge_before = hak_superslab_huge_births();
    uint64_t births_end = hak_superslab_births() + superslabs;
    while (hak_superslab_births() != births_end) {
        uint64_t huge_births = hak_superslab_huge_births();
        allocate();
        bool is_touched_first = hak_superslab_huge_births() != huge_births;
        clock_ms += is_touched_first || block_count % blocks_of_work == 0 ? huge_ms : 0;
    }
    return (unsigned)(hak_superslab_huge_births() - huge_before);
}

static void what_comes_quickly_is_asked_for_again(void **state) {
    (void)state;
    assert_int_equal(grow(PAUSE_FIRST, 0, 1), PAUSE_FIRST);
}

static void what_comes_slowly_is_tried_now_and_then(void **state) {
    (void)state;
    assert_int_equal(grow(2, 8, SIZE_MAX), 2);
    assert_int_equal(grow(PAUSE_FIRST, 8, SIZE_MAX), 0);
    assert_int_equal(grow(1, 8, SIZE_MAX), 1);
    assert_int_equal(grow(2 * PAUSE_FIRST, 8, SIZE_MAX), 0);
    assert_int_equal(grow(1, 0, SIZE_MAX), 1); /* and quickly again */
    assert_int_equal(grow(PAUSE_FIRST, 0, SIZE_MAX), PAUSE_FIRST);
}

static void a_program_that_takes_long_has_them_all_the_same(void **state) {
    (void)state;
    assert_int_equal(grow(PAUSE_FIRST, 8, 10), PAUSE_FIRST);
}

int main(void) {
    const struct CMUnitTest plain[] = {
        cmocka_unit_test(a_heap_that_was_given_none_watches_nothing),
        cmocka_unit_test(a_short_stretch_is_fast),
        cmocka_unit_test(a_long_one_before_a_short_one_is_slow),
        cmocka_unit_test(a_long_one_before_another_tells_nothing),
        cmocka_unit_test(two_slow_ones_in_a_row_make_a_pause),
        cmocka_unit_test(pauses_double_while_trials_are_slow),
        cmocka_unit_test(a_fast_one_ends_it),
    };
    const struct CMUnitTest growing[] = {
        cmocka_unit_test(what_comes_quickly_is_asked_for_again),
        cmocka_unit_test(what_comes_slowly_is_tried_now_and_then),
        cmocka_unit_test(a_program_that_takes_long_has_them_all_the_same),
    };
    int failed = cmocka_run_group_tests(plain, NULL, NULL);
    return failed + cmocka_run_group_tests(growing, grow_first, free_all);
}
