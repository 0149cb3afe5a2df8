/*
 * slab_purge_test.c - what free units and empty SuperSlabs give back when the system refuses some of it, when
 * others free meanwhile, and when threads have read the clock in another order than they took the lock.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "heap/front.h"
#include "heap/heap.h"
#include "meta/classes.h"
#include "slab/blocks.h"
#include "slab/purge.h"
#include "slab/retention.h"
#include "slab/superslab_pool.h"
#include "support/clock.h"
#include "support/test.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNITS HAK_UNITS_PER_SUPERSLAB
#define MANY  (16 * UNITS)

/* ---- the system ---- */

static uintptr_t locked_address; /* madvise of a range that begins here fails, as over locked pages */
static bool unmap_fails;         /* munmap of 2 MiB fails, as with too many mappings */
static unsigned purge_calls;
static void (*meanwhile)(void); /* called in each madvise */

int madvise(void *address, size_t bytes, int advice) {
    purge_calls += advice == MADV_DONTNEED;
    if (meanwhile != NULL) {
        void (*call)(void) = meanwhile;
        meanwhile = NULL;
        call();
        meanwhile = call;
    }
    if ((uintptr_t)address == locked_address) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

int munmap(void *address, size_t bytes) {
    if (unmap_fails && bytes == HAK_SUPERSLAB_BYTES) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_munmap, address, bytes);
}

static int system_as_usual(void **state) {
    (void)state;
    locked_address = 0;
    unmap_fails = false;
    meanwhile = NULL;
    clock_ms += 1000000;
    hak_purge_set_floor(PTRDIFF_MAX); /* steps keep everything unless a test says otherwise */
    (void)hak_superslab_trim(0);
    return 0;
}

/* ---- SuperSlabs of which each unit is taken ---- */

struct full {
    struct slab *units[UNITS];
};

static void take_all(struct full *full) {
    /* An empty one, so that all of its units lie in one SuperSlab; others are used up first. */
    uint32_t zero_units;
    struct superslab *whole = hak_superslab_take_whole(&zero_units);
    CHECK(whole != NULL);
    (void)hak_superslab_give_whole(whole, zero_units, HAK_PURGE_STEP_CALLS);
    struct slab *elsewhere[MANY];
    unsigned others = 0;
    for (unsigned have = 0; have < UNITS;) {
        struct slab *slab = hak_superslab_take_units(1, 0);
        CHECK(slab != NULL);
        if (hak_superslab_of(slab) == whole) {
            full->units[have++] = slab;
        } else {
            CHECK(others < MANY);
            elsewhere[others++] = slab;
        }
    }
    while (others != 0) {
        others--;
        hak_superslab_give_units(elsewhere[others], elsewhere[others]->is_zero);
    }
}

/* As if all of them had been handed out. */
static void give(struct full *full, unsigned from, unsigned to) {
    for (unsigned i = from; i < to; i++) {
        full->units[i]->carved_blocks = (uint16_t)hak_class_capacity(full->units[i]->class_idx);
        hak_superslab_give_units(full->units[i], false);
    }
}

/* ---- tests ---- */

static struct full a, b;

/* Two SuperSlabs, the one with older dirt having two runs of it, of which the first is locked. */
static void make_dirt(void) {
    take_all(&a);
    take_all(&b);
    (void)hak_superslab_trim(0);
    give(&a, 0, 10);
    give(&a, 20, 31);
    give(&b, 0, 31);
    locked_address = a.units[0]->base;
}

static void clean_up(void) {
    locked_address = 0;
    give(&a, 10, 20);
    give(&a, 31, 32);
    give(&b, 31, 32);
}

static void locked_pages_do_not_keep_trim_from_the_rest(void **state) {
    (void)state;
    make_dirt();
    size_t before = hak_superslab_count().dirty_units;
    assert_true(hak_superslab_trim(0) >= 31 * HAK_UNIT_BYTES);
    assert_true(hak_superslab_count().dirty_units <= before - 31);
    clean_up();
}

static void locked_pages_do_not_keep_steps_from_the_rest(void **state) {
    (void)state;
    make_dirt();
    size_t before = hak_superslab_count().dirty_units;
    hak_purge_set_floor(0);
    for (unsigned step = 0; step < 4; step++) {
        clock_ms += 2000;
        (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    }
    assert_true(hak_superslab_count().dirty_units <= before - 31);
    hak_purge_set_floor(PTRDIFF_MAX);
    clean_up();
}

/* Though all that is freed is freed within the second in which the locked ones are not tried again. */
static void locked_pages_pause_their_superslab_alone(void **state) {
    (void)state;
    make_dirt();
    size_t before = hak_superslab_count().dirty_units;
    hak_purge_set_floor(0);
    for (unsigned step = 0; step < 4; step++) {
        (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    }
    assert_true(hak_superslab_count().dirty_units <= before - 31);
    unsigned calls = purge_calls;
    (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    assert_int_equal(purge_calls, calls); /* nor are they tried over and over */
    assert_false(hak_purge_is_owed());
    hak_purge_set_floor(PTRDIFF_MAX);
    clean_up();
}

/* A step ends after a MiB, and two SuperSlabs hold more. */
static void a_step_that_ends_at_its_bound_leaves_more_to_pay(void **state) {
    (void)state;
    make_dirt();
    locked_address = 0;
    hak_purge_set_floor(0);
    hak_superslab_note_owed();
    assert_false(hak_purge_is_behind());
    unsigned steps = 0;
    do {
        (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
        steps++;
        assert_true(hak_purge_is_behind() == hak_purge_is_owed());
    } while (hak_purge_is_owed());
    assert_in_range(steps, 3, 5);
    hak_superslab_note_owed(); /* nothing is there */
    assert_false(hak_purge_is_behind());
    hak_purge_set_floor(PTRDIFF_MAX);
    clean_up();
}

/* Given back by an operation that has made all the calls that it may. */
static void an_empty_superslab_that_no_call_is_left_for_is_owed(void **state) {
    (void)state;
    uint32_t zero_units;
    struct superslab *whole = hak_superslab_take_whole(&zero_units);
    hak_purge_set_floor(0);
    assert_int_equal(hak_superslab_give_whole(whole, 0, 0), 0);
    assert_true(hak_purge_is_owed());
    size_t before = hak_superslab_count().mapped;
    hak_purge_pay();
    assert_int_equal(hak_superslab_count().mapped, before - 1);
    hak_purge_pay();
    assert_false(hak_purge_is_owed());
    assert_false(hak_purge_is_behind());
    hak_superslab_note_owed(); /* as if: a new debt is behind only after a step of its own */
    assert_false(hak_purge_is_behind());
    hak_purge_set_floor(PTRDIFF_MAX);
}

/* What is above the floor is owed, whatever a trim was asked to leave. */
static void a_trim_that_keeps_all_pays_no_debt(void **state) {
    (void)state;
    make_dirt();
    hak_purge_set_floor(0);
    hak_superslab_note_owed();
    assert_true(hak_purge_is_owed());
    (void)hak_superslab_trim(PTRDIFF_MAX);
    assert_true(hak_purge_is_owed());
    hak_purge_set_floor(PTRDIFF_MAX);
    clean_up();
}

static void what_cannot_be_unmapped_is_purged(void **state) {
    (void)state;
    take_all(&a);
    memset((void *)a.units[0]->base, 1, UNITS * HAK_UNIT_BYTES);
    give(&a, 0, UNITS);
    size_t mapped = hak_superslab_count().mapped;
    unmap_fails = true;
    assert_true(hak_superslab_trim(0) >= HAK_SUPERSLAB_BYTES);
    assert_int_equal(hak_superslab_count().mapped, mapped);
    assert_int_equal(hak_superslab_count().dirty_units, 0);
    assert_int_equal(hak_superslab_trim(0), 0);
    unmap_fails = false;
    struct slab *slab = hak_superslab_take_units(1, 0);
    assert_true(slab->is_zero);
    assert_int_equal(*(char *)slab->base, 0);
    hak_superslab_give_units(slab, true);
}

/* Another thread that takes a unit and gives it back, dirty. */
static void make_a_unit_dirty(void) {
    CHECK(purge_calls < 10000);
    hak_superslab_give_units(hak_superslab_take_units(1, 0), false);
}

static void trim_ends_although_others_free(void **state) {
    (void)state;
    take_all(&a);
    give(&a, 0, 16);
    struct hak_superslab_counts counts = hak_superslab_count();
    purge_calls = 0;
    meanwhile = make_a_unit_dirty;
    (void)hak_superslab_trim(0);
    meanwhile = NULL;
    assert_true(purge_calls <= counts.dirty_units + counts.empty);
    give(&a, 16, UNITS);
}

static void an_empty_superslab_is_young_for_a_thread_with_an_older_clock(void **state) {
    (void)state;
    struct full empty;
    take_all(&empty);
    size_t mapped = hak_superslab_count().mapped;
    give(&empty, 0, UNITS);
    clock_ms -= 4;
    struct superslab *victim = NULL;
    hak_lock_acquire(&hak_superslab_lock);
    hak_superslab_pool.retention.is_set = false;
    hak_superslab_pool.retention.raised_bytes = 0;
    if (hak_superslab_pool.empty_count == 1) {
        victim = hak_superslab_lru_victim(clock_ms);
    }
    hak_superslab_pool.retention.is_set = true;
    hak_lock_release(&hak_superslab_lock);
    assert_null(victim);
    assert_int_equal(hak_superslab_count().mapped, mapped);
}

/* Its age counts from the last unit, however long the others were free. */
static void an_empty_superslab_is_as_old_as_its_last_unit(void **state) {
    (void)state;
    struct full empty;
    take_all(&empty);
    give(&empty, 0, UNITS - 1);
    clock_ms += 2 * hak_options.ss_lru_ms;
    give(&empty, UNITS - 1, UNITS);
    hak_lock_acquire(&hak_superslab_lock);
    hak_superslab_pool.retention.is_set = false;
    hak_superslab_pool.retention.raised_bytes = 0;
    size_t count = hak_superslab_pool.empty_count;
    struct superslab *victim = hak_superslab_lru_victim(clock_ms);
    struct superslab *later = hak_superslab_lru_victim(clock_ms + 2 * hak_options.ss_lru_ms);
    hak_superslab_pool.retention.is_set = true;
    hak_lock_release(&hak_superslab_lock);
    assert_int_equal(count, 1);
    assert_null(victim);
    assert_non_null(later);
}

static void the_floor_stays_raised_for_a_thread_with_an_older_clock(void **state) {
    (void)state;
    struct retention retention = {0};
    uint64_t now_ms = 1000000;
    hak_retention_note_used(&retention, 1024 * MIB); /* so much that it bounds nothing */
    for (unsigned second = 0; second < 5; second++, now_ms += 1000) {
        hak_retention_note_purged(&retention, 8 * MIB, now_ms);
        hak_retention_note_missed(&retention, 8 * MIB, now_ms);
    }
    size_t raised = hak_retention_floor_bytes(&retention, 0, now_ms);
    assert_true(raised >= 12 * MIB);
    assert_int_equal(hak_retention_floor_bytes(&retention, 0, now_ms - 4), raised);
}

/* A slab in units that were used before: its blocks that were never handed out hold pages as well. */
static void pages_below_blocks_never_used_are_purged(void **state) {
    (void)state;
    const unsigned class_of_2048 = 23;
    struct block_ref ref;
    struct slab *slab = hak_superslab_take_units(1, 0);
    memset((void *)slab->base, 1, HAK_UNIT_BYTES);
    hak_superslab_give_units(slab, false);
    slab = hak_superslab_take_units(1, 0);
    assert_false(slab->is_zero);
    assert_int_equal(hak_slab_assign(slab, class_of_2048, 0), 0);
    assert_int_equal(hak_blocks_take(slab, &ref, 1), 1);
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    unsigned calls = 0;
    assert_int_equal(hak_blocks_purge(slab, true, UINT_MAX, &calls) * page_bytes,
                     HAK_UNIT_BYTES - page_bytes);
    slab->purged_mask = 0; /* purged by no step, which would have counted it */
    hak_heap_handle_event(slab, hak_slab_release(slab, 1, HAK_PLACE_NOWHERE, 0), NULL);
    (void)hak_blocks_return(&ref, 1, 0, hak_heap_handle_event, NULL);
}

/* A class without a cache returns each block by itself; the one that ends its slab pays for that. */
static void what_a_cold_class_frees_goes_back_at_once(void **state) {
    (void)state;
    enum { BLOCKS_OF_COLD = 8, BYTES_OF_COLD = 7000 };
    void *blocks[BLOCKS_OF_COLD];
    hak_purge_set_floor(0);
    size_t before_units = hak_superslab_count().dirty_units;
    for (unsigned i = 0; i < BLOCKS_OF_COLD; i++) {
        blocks[i] = hak_alloc_gate(BYTES_OF_COLD);
        CHECK(blocks[i] != NULL);
    }
    const struct heap *heap = hak_heap_attach();
    purge_calls = 0;
    for (unsigned i = 0; i < BLOCKS_OF_COLD; i++) {
        assert_int_equal(purge_calls, 0);
        hak_free_gate(blocks[i], "free()");
    }
    assert_null(heap->classes[hak_class_of(BYTES_OF_COLD)].array);
    assert_int_equal(purge_calls, 1);
    assert_int_equal(hak_superslab_count().dirty_units, before_units);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(locked_pages_do_not_keep_trim_from_the_rest, system_as_usual),
        cmocka_unit_test_setup(locked_pages_do_not_keep_steps_from_the_rest, system_as_usual),
        cmocka_unit_test_setup(locked_pages_pause_their_superslab_alone, system_as_usual),
        cmocka_unit_test_setup(a_step_that_ends_at_its_bound_leaves_more_to_pay, system_as_usual),
        cmocka_unit_test_setup(an_empty_superslab_that_no_call_is_left_for_is_owed, system_as_usual),
        cmocka_unit_test_setup(a_trim_that_keeps_all_pays_no_debt, system_as_usual),
        cmocka_unit_test_setup(what_cannot_be_unmapped_is_purged, system_as_usual),
        cmocka_unit_test_setup(trim_ends_although_others_free, system_as_usual),
        cmocka_unit_test_setup(an_empty_superslab_is_young_for_a_thread_with_an_older_clock, system_as_usual),
        cmocka_unit_test_setup(an_empty_superslab_is_as_old_as_its_last_unit, system_as_usual),
        cmocka_unit_test_setup(the_floor_stays_raised_for_a_thread_with_an_older_clock, system_as_usual),
        cmocka_unit_test_setup(pages_below_blocks_never_used_are_purged, system_as_usual),
        cmocka_unit_test_setup(what_a_cold_class_frees_goes_back_at_once, system_as_usual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
