/*
 * orphans_test.c - on which of a class's lists an orphan lies, in which order they are looked through, and
 * that producers stop sharing lists for which they have to wait.
 */
#include "heap/heap.h"
#include "slab/blocks.h"
#include "slab/orphans.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "support/classes.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define CLASS   CLASS_OF_512
#define SIDES   8u
#define TAGS    8u /* heaps 1 to 8 have a side each */
#define FOR_TAG 3u /* a heap of that number looks for slabs */

struct orphan {
    struct slab *slab;
    struct block_ref ref; /* what keeps it from being given back */
};

static struct orphan orphans[TAGS + 1]; /* by tag */

static void push(unsigned tag) {
    assert_int_equal(hak_orphans_push(orphans[tag].slab), HAK_EVENT_NONE);
}

static int push_one_for_each_tag(void **state) {
    (void)state;
    hak_orphans_note_heaps(SIDES);
    for (unsigned tag = 1; tag <= TAGS; tag++) {
        struct slab *slab = hak_superslab_take_units(1, CLASS);
        assert_int_equal(hak_slab_assign(slab, CLASS, tag), 0);
        assert_int_equal(hak_blocks_take(slab, &orphans[tag].ref, 1), 1);
        assert_int_equal(hak_slab_release(slab, 1, HAK_PLACE_NOWHERE, HAK_OWNER_NOBODY), HAK_EVENT_LIST);
        orphans[tag].slab = slab;
        push(tag);
    }
    return 0;
}

static int take_them_back(void **state) {
    for (unsigned tag = 1; tag <= TAGS; tag++) {
        (void)hak_blocks_return(&orphans[tag].ref, 1, HAK_OWNER_NOBODY, hak_heap_handle_event, NULL);
    }
    return heap_is_sound(state);
}

static unsigned tag_of(const struct slab *slab) {
    return hak_word_tag(hak_registry_word((const void *)slab->base));
}

/* Takes all orphans for the heap, notes their tags, and lists them again. */
static void pop_all(bool produces_only, unsigned tags[TAGS]) {
    for (unsigned i = 0; i < TAGS; i++) {
        struct slab *slab = hak_orphans_pop(CLASS, FOR_TAG, produces_only);
        assert_non_null(slab);
        tags[i] = tag_of(slab);
    }
    assert_null(hak_orphans_pop(CLASS, FOR_TAG, produces_only));
    assert_true(hak_orphans_look_empty(CLASS));
    for (unsigned i = 0; i < TAGS; i++) {
        push(tags[i]);
    }
}

static void assert_order(bool produces_only, const unsigned expected[TAGS]) {
    unsigned tags[TAGS];
    pop_all(produces_only, tags);
    assert_memory_equal(tags, expected, sizeof tags);
}

/* Those that it was tagged for come first, then those of the next heaps. Side 0 is heap 8's. */
static const unsigned from_own_side[TAGS] = {3, 4, 5, 6, 7, 8, 1, 2};

static void a_heap_looks_through_its_own_side_first(void **state) {
    (void)state;
    assert_order(false, from_own_side);
}

/* Heaps 1, 3, 5 and 7 are one group: each takes from side 1 first. */
static void producers_of_a_group_look_in_the_same_order(void **state) {
    (void)state;
    static const unsigned expected[TAGS] = {1, 3, 5, 7, 8, 2, 4, 6};
    assert_order(true, expected);
}

/* As if one in nine who wanted the list had long had to wait. */
static void crowd(unsigned side) {
    /* relaxed: one thread */
    hak_atomic_store_relaxed(&hak_orphans_of(CLASS, side)->crowding, (uint16_t)(HAK_CROWDED + 1));
}

static void producers_that_wait_for_each_other_part(void **state) {
    (void)state;
    static const unsigned at_first[TAGS] = {1, 3, 7, 8, 4, 5, 2, 6};
    static const unsigned of_four_groups[TAGS] = {3, 7, 8, 4, 1, 5, 2, 6};
    crowd(1);
    assert_order(true, at_first); /* once more from side 1, and then from those of a group of two */
    assert_false(hak_slab_list_is_crowded(hak_orphans_of(CLASS, 1)));
    assert_order(true, of_four_groups);
    crowd(3);
    assert_order(true, from_own_side);
}

static void sides_go_with_the_heaps(void **state) {
    (void)state;
    assert_int_equal(hak_orphan_sides(), SIDES);
    hak_orphans_note_heaps(1);
    assert_int_equal(hak_orphan_sides(), SIDES); /* it never falls */
    hak_orphans_note_heaps(SIDES + 1);
    assert_int_equal(hak_orphan_sides(), 2 * SIDES);
    hak_orphans_note_heaps(1000);
    assert_int_equal(hak_orphan_sides(), HAK_ORPHAN_SIDES_MAX);
}

static void *pop_and_push(void *list) {
    struct slab *slab = hak_slab_list_pop(list);
    CHECK(slab != NULL);
    CHECK(hak_orphans_push(slab) == HAK_EVENT_NONE);
    return NULL;
}

static unsigned crowding(struct slab_list *list) {
    return hak_atomic_load_relaxed(&list->crowding); /* relaxed: nobody else works */
}

static void a_wait_counts_as_eight_times_without(void **state) {
    (void)state;
    struct slab_list *list = hak_orphans_of(CLASS, FOR_TAG);
    pthread_t thread;
    assert_int_equal(crowding(list), 0);
    hak_lock_acquire(&list->lock);
    uint32_t held =
        hak_atomic_load_relaxed(&list->lock.state); /* relaxed: until it is another: somebody waits */
    assert_int_equal(pthread_create(&thread, NULL, pop_and_push, list), 0);
    while (hak_atomic_load_relaxed(&list->lock.state) == held) { /* relaxed: as above */
        (void)sched_yield();
    }
    hak_lock_release(&list->lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(crowding(list), 7); /* it waited once, and then not */
    for (unsigned i = 0; i < 4; i++) {
        (void)pop_and_push(list);
    }
    assert_int_equal(crowding(list), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_heap_looks_through_its_own_side_first),
        cmocka_unit_test(producers_of_a_group_look_in_the_same_order),
        cmocka_unit_test(a_wait_counts_as_eight_times_without),
        cmocka_unit_test(producers_that_wait_for_each_other_part),
        cmocka_unit_test(sides_go_with_the_heaps), /* the last, since they stay */
    };
    return cmocka_run_group_tests_name("orphans", tests, push_one_for_each_tag, take_them_back);
}
