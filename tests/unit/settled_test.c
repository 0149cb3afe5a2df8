/*
 * settled_test.c - what slabs that come and go leave out: after a look that finds that all may stay a few
 * gives note no debt; short header maps stay with units that hold memory.
 *
 * suite: limit 60 s
 */
#include "meta/arena.h"
#include "meta/classes.h"
#include "meta/maps.h"
#include "os/os.h"
#include "slab/header_map.h"
#include "superslab_kit.h"
#include "support/child.h"
#include "support/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GIVES_SETTLED 8u
#define DIRT          20u /* units that are dirty before each look: more than stays without proof */
#define LONG_MAPS     256u
#define OWNER         7u
#define CYCLES        20000u

static bool purge_fails;
static unsigned given; /* so many units of a, from the first on */
static bool has_b;     /* b is full */

int madvise(void *address, size_t bytes, int advice) {
    if (purge_fails && advice == MADV_DONTNEED) {
        errno = EINVAL; /* as over locked pages */
        return -1;
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

/* ---- debts ---- */

/* As if all of them had been handed out. */
static void give_used(unsigned from, unsigned to) {
    for (unsigned i = from; i < to; i++) {
        a[i]->carved_blocks = (uint16_t)hak_class_capacity(a[i]->class_idx);
        hak_superslab_give_units(a[i], false);
    }
    given = to;
}

static size_t floor_now(void) {
    hak_lock_acquire(&hak_superslab_lock);
    size_t bytes = hak_superslab_floor_bytes(hak_os_now_ms());
    hak_lock_release(&hak_superslab_lock);
    return bytes;
}

/* As if proved cycles had raised the floor to about so many units. Then a look, which finds that all may
 * stay.
 */
static void raise_and_look(unsigned floor_units) {
    struct retention *retention = &hak_superslab_pool.retention;
    (void)new_full(a);
    (void)new_full(b);
    has_b = true;
    retention->is_set = false;
    retention->raised_bytes = 0;
    retention->window_start_ms = clock_ms;
    retention->peak_used_bytes = retention->used_bytes + (size_t)UNITS * HAK_UNIT_BYTES;
    size_t wanted_bytes = floor_units * HAK_UNIT_BYTES;
    size_t base_bytes = floor_now();
    CHECK(base_bytes < DIRT * HAK_UNIT_BYTES && base_bytes < wanted_bytes);
    retention->raised_bytes = wanted_bytes - base_bytes;
    give_used(0, DIRT);
    assert_true(hak_purge_is_owed());
    hak_purge_pay();
    assert_false(hak_purge_is_owed());
    assert_int_equal(hak_superslab_count().dirty_units, DIRT);
}

static int lower_again(void **state) {
    purge_fails = false;
    hak_purge_set_floor(PTRDIFF_MAX);
    give(a, given, UNITS, false);
    give(b, 0, has_b ? UNITS : 0, false);
    has_b = false;
    return give_it_back(state);
}

static void a_few_gives_after_a_look_note_no_debt(void **state) {
    (void)state;
    raise_and_look(2 * UNITS);
    for (unsigned i = 0; i < GIVES_SETTLED; i++) {
        give_used(DIRT + i, DIRT + i + 1);
        assert_false(hak_purge_is_owed());
    }
    give_used(DIRT + GIVES_SETTLED, DIRT + GIVES_SETTLED + 1);
    assert_true(hak_purge_is_owed());
    hak_purge_pay();
    assert_false(hak_purge_is_owed()); /* all may stay still */
    assert_int_equal(hak_superslab_count().dirty_units, DIRT + GIVES_SETTLED + 1);
}

static void more_than_the_look_let_stay_is_owed_at_once(void **state) {
    (void)state;
    raise_and_look(DIRT + 4);
    unsigned gives = 0;
    for (; (DIRT + gives + 1) * HAK_UNIT_BYTES <= floor_now(); gives++) {
        give_used(DIRT + gives, DIRT + gives + 1);
        assert_false(hak_purge_is_owed());
    }
    assert_in_range(gives, 1, GIVES_SETTLED - 1);
    give_used(DIRT + gives, DIRT + gives + 1);
    assert_true(hak_purge_is_owed());
    hak_purge_pay();
    assert_true(hak_superslab_dirty_bytes() <= floor_now());
}

static void an_empty_superslab_more_is_owed_at_once(void **state) {
    (void)state;
    raise_and_look(2 * UNITS);
    give_used(DIRT, UNITS - 3);
    hak_purge_pay();
    give_used(UNITS - 3, UNITS - 1);
    assert_false(hak_purge_is_owed());
    give_used(UNITS - 1, UNITS);
    assert_int_equal(hak_superslab_count().empty, 1);
    assert_true(hak_purge_is_owed());
}

static void header_maps_beyond_their_part_are_owed_at_once(void **state) {
    (void)state;
    static _Atomic uint8_t *maps[LONG_MAPS];
    raise_and_look(DIRT + 4);
    for (unsigned i = 0; i < LONG_MAPS; i++) {
        maps[i] = hak_map_alloc(HAK_SLAB_BLOCKS_MAX, maps);
        CHECK(maps[i] != NULL);
    }
    for (unsigned i = 0; i < LONG_MAPS; i++) {
        hak_map_free(maps[i], HAK_SLAB_BLOCKS_MAX);
    }
    assert_true(hak_maps_owed_bytes() > floor_now() >> HAK_MAPS_FLOOR_SHIFT);
    assert_false(hak_purge_is_owed());
    give_used(DIRT, DIRT + 1);
    assert_true(hak_purge_is_owed());
    hak_purge_settle();
    assert_true(hak_maps_owed_bytes() <= floor_now() >> HAK_MAPS_FLOOR_SHIFT);
}

static void a_floor_that_the_program_sets_counts_at_once(void **state) {
    (void)state;
    raise_and_look(2 * UNITS);
    hak_purge_set_floor(0);
    give_used(DIRT, DIRT + 1);
    assert_true(hak_purge_is_owed());
}

static void a_floor_that_has_fallen_counts_at_once(void **state) {
    (void)state;
    raise_and_look(2 * UNITS);
    struct slab *taken[GIVES_SETTLED];
    for (unsigned i = 0; i < GIVES_SETTLED; i++) {
        taken[i] = hak_superslab_take_units(1, 0);
        CHECK(hak_superslab_of(taken[i]) == hak_superslab_of(a[0]));
    }
    clock_ms += 100000;
    hak_purge_age();
    assert_false(hak_purge_is_owed());
    for (unsigned i = 0; i < GIVES_SETTLED; i++) {
        hak_superslab_give_units(taken[i], false);
    }
    assert_int_equal(hak_superslab_count().dirty_units, DIRT);
    assert_true(hak_purge_is_owed());
}

/* Whoever gives little and seldom looks each time, or what had been kept for a cycle would stay. */
static void a_look_counts_for_a_moment(void **state) {
    (void)state;
    raise_and_look(2 * UNITS);
    clock_ms += 20;
    give_used(DIRT, DIRT + 1);
    assert_false(hak_purge_is_owed());
    clock_ms += 1;
    give_used(DIRT + 1, DIRT + 2);
    assert_true(hak_purge_is_owed());
    clock_ms += 100000;
    hak_purge_settle();
    assert_false(hak_purge_is_owed());
    assert_true(hak_superslab_dirty_bytes() < DIRT * HAK_UNIT_BYTES);
}

/* Where a helper thread is to see to it. */
static void what_waits_to_go_back_may_not_stay(void **state) {
    (void)state;
    raise_and_look(DIRT + 4);
    hak_retention_set_helper(true);
    give_used(DIRT, DIRT + GIVES_SETTLED);
    assert_true(hak_purge_is_owed());
    hak_purge_pay();
    assert_false(hak_purge_is_owed()); /* not by an operation, nor now */
    assert_int_equal(hak_superslab_count().dirty_units, DIRT + GIVES_SETTLED);
    give_used(DIRT + GIVES_SETTLED, DIRT + GIVES_SETTLED + 1);
    assert_true(hak_purge_is_owed());
    hak_retention_set_helper(false);
}

/* ---- header maps ---- */

static struct slab *assigned(unsigned class_idx) {
    struct slab *slab = hak_superslab_take_units(hak_class_units[class_idx], class_idx);
    CHECK(slab != NULL && hak_slab_assign(slab, class_idx, OWNER) == 0);
    CHECK(hak_map_owner(slab->map) == slab);
    for (unsigned i = 0; i < slab->capacity_blocks + HAK_MAP_GROUP_BLOCKS; i++) {
        CHECK(slab->map[i] == HAK_HEADER_NEVER);
    }
    return slab;
}

/* Every block was handed out and freed. */
static void use_and_retire(struct slab *slab) {
    memset((void *)(uintptr_t)slab->map, HAK_HEADER_FREE, slab->capacity_blocks);
    hak_slab_set_carved(slab, slab->capacity_blocks);
    hak_slab_retire(slab);
}

static int take_but_one(void **state) {
    (void)take_what_is_mapped(state);
    (void)new_full(a);
    give_used(0, 1);
    return 0;
}

#define MAP_TEST(name) cmocka_unit_test_setup_teardown(name, take_but_one, lower_again)

static void a_short_map_stays_with_its_units(void **state) {
    (void)state;
    struct slab *slab = assigned(hak_class_of(8192));
    const _Atomic uint8_t *map = slab->map;
    use_and_retire(slab);
    assert_ptr_equal(slab->map, map);
    struct slab *next = assigned(hak_class_of(8192));
    assert_ptr_equal(next, slab);
    assert_ptr_equal(next->map, map);
    use_and_retire(next);
}

static void it_goes_when_their_memory_goes(void **state) {
    (void)state;
    struct slab *slab = assigned(hak_class_of(8192));
    use_and_retire(slab);
    assert_non_null(slab->map);
    purge_fails = true;
    (void)hak_superslab_trim(0);
    assert_non_null(slab->map); /* the memory has not gone */
    purge_fails = false;
    clock_ms += 2000;
    (void)hak_superslab_trim(0);
    assert_null(slab->map);
}

static void it_goes_with_its_superslab(void **state) {
    (void)state;
    struct slab *slab = assigned(hak_class_of(8192));
    use_and_retire(slab);
    give_used(1, UNITS);
    assert_int_equal(hak_superslab_count().empty, 1);
    assert_non_null(slab->map);
    size_t mapped = hak_superslab_count().mapped;
    (void)hak_superslab_trim(0);
    assert_true(hak_superslab_count().mapped < mapped);
    assert_null(slab->map);
}

static void a_long_map_and_one_that_was_not_used_go_at_once(void **state) {
    (void)state;
    struct slab *slab = assigned(hak_class_of(64));
    use_and_retire(slab);
    assert_null(slab->map);
    (void)hak_superslab_trim(0);
    slab = assigned(hak_class_of(8192));
    assert_true(slab->is_zero);
    hak_slab_retire(slab);
    assert_null(slab->map);
}

/* Of one line, of two and of many, in turn: none is lost. */
static void maps_of_other_lengths_take_its_place(void **state) {
    (void)state;
    static const size_t sizes[] = {8192, 1024, 64};
    size_t before_bytes = 0;
    for (unsigned cycle = 0; cycle < CYCLES; cycle++) {
        use_and_retire(assigned(hak_class_of(sizes[cycle % 3])));
        before_bytes = cycle == 2 ? hak_meta_mapped_bytes() : before_bytes;
    }
    assert_int_equal(hak_meta_mapped_bytes(), before_bytes);
    const char *why;
    assert_true(hak_maps_verify(&why));
}

/* Another thread had taken the units and was about to assign them, or was giving their memory back. */
static int rebuild_without(void *slab_of_parent) {
    struct slab *slab = slab_of_parent;
    hak_superslab_rebuild();
    return slab->map == NULL ? 0 : 1;
}

static void a_child_forgets_maps_of_units_on_their_way(void **state) {
    (void)state;
    struct slab *slab = assigned(hak_class_of(8192));
    use_and_retire(slab);
    assert_ptr_equal(hak_superslab_take_units(1, hak_class_of(8192)), slab);
    assert_non_null(slab->map);
    struct child child = {.function = rebuild_without, .context = slab};
    child_run(&child);
    assert_child_succeeded(&child);
    hak_superslab_give_units(slab, false);
}

/* ---- ragged slabs ---- */

/* Each thread reads the hint, and in a heap that is freed to the end they come and go one by one. */
static void the_hint_outlasts_those_that_wait_until_a_look(void **state) {
    (void)state;
    assert_int_equal(hak_superslab_pool.ragged.waiting, 0);
    clock_ms += 1000;
    for (unsigned i = 0; i < 3; i++) {
        struct slab *slab = assigned(hak_class_of(8192));
        hak_ragged_enter(slab);
        assert_int_equal(hak_superslab_pool.ragged.waiting, 1);
        assert_true(hak_ragged_is_waiting());
        use_and_retire(slab);
        assert_int_equal(hak_superslab_pool.ragged.waiting, 0);
        assert_true(hak_ragged_is_waiting());
        assert_int_equal(hak_ragged_turn_ms, clock_ms); /* so long the first one waits at least */
        clock_ms += HAK_RAGGED_TURN_MS;
    }
    assert_false(hak_purge_ragged_in_time());
    assert_false(hak_ragged_is_waiting());
    struct slab *slab = assigned(hak_class_of(8192));
    hak_ragged_enter(slab);
    assert_true(hak_ragged_is_waiting());
    assert_int_equal(hak_ragged_turn_ms, clock_ms);
    use_and_retire(slab);
}

#define DEBT_TEST(name) cmocka_unit_test_setup_teardown(name, take_what_is_mapped, lower_again)

int main(void) {
    const struct CMUnitTest tests[] = {
        DEBT_TEST(a_few_gives_after_a_look_note_no_debt),
        DEBT_TEST(more_than_the_look_let_stay_is_owed_at_once),
        DEBT_TEST(an_empty_superslab_more_is_owed_at_once),
        DEBT_TEST(header_maps_beyond_their_part_are_owed_at_once),
        DEBT_TEST(a_floor_that_the_program_sets_counts_at_once),
        DEBT_TEST(a_floor_that_has_fallen_counts_at_once),
        DEBT_TEST(a_look_counts_for_a_moment),
        DEBT_TEST(what_waits_to_go_back_may_not_stay),
        MAP_TEST(a_short_map_stays_with_its_units),
        MAP_TEST(it_goes_when_their_memory_goes),
        MAP_TEST(it_goes_with_its_superslab),
        MAP_TEST(a_long_map_and_one_that_was_not_used_go_at_once),
        MAP_TEST(maps_of_other_lengths_take_its_place),
        MAP_TEST(a_child_forgets_maps_of_units_on_their_way),
        MAP_TEST(the_hint_outlasts_those_that_wait_until_a_look),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
