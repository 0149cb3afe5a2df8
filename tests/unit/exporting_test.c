/*
 * exporting_test.c - classes of which a thread only allocates while others free: what makes a class export,
 * what ends that, and that producers who take turns share slabs. And threads that take over what others have
 * allocated.
 *
 * Producers work one at a time, each step in its own thread; the main thread frees what they made.
 */
#include "hakmem.h"
#include "heap/heap.h"
#include "heap/homeward.h"
#include "heap/supply.h"
#include "meta/classes.h"
#include "slab/orphans.h"
#include "support/blocks.h"
#include "support/child.h"
#include "support/stepper.h"
#include "support/target.h"
#include "support/test.h"

#include <stdlib.h>

#define BLOCK_BYTES 512u
#define BLOCKS      100u /* of a turn: less than a slab has */
#define TURNS       60u  /* more than make a class export */
#define PRODUCERS   4u

struct producer {
    struct stepper stepper;
    struct heap *heap;
};

static struct producer producers[PRODUCERS];
static void *blocks[BLOCKS];
static unsigned row_of_growth; /* refills without a spill */
static struct heap *heap_of_step;
static uint64_t adopted;
static bool exported;

static void attach(void) {
    heap_of_step = hak_heap_attach();
}

static void start(struct producer *producer) {
    stepper_start(&producer->stepper);
    stepper_do(&producer->stepper, attach);
    producer->heap = heap_of_step;
}

static void let_work(struct producer *producer, void (*work)(void)) {
    stepper_do(&producer->stepper, work);
}

static void end(struct producer *producer) {
    stepper_end(&producer->stepper);
}

static void allocate(void) {
    blocks_take(blocks, BLOCKS, BLOCK_BYTES);
}

static void free_all(void) {
    blocks_free(blocks, BLOCKS);
}

/* A heap that grows refills many times in a row too; one that empties spills. */
static void grow_and_free_all(void) {
    static void *many[3000]; /* more than a cache may hold */
    struct heap *heap = hak_heap_attach();
    blocks_take(many, COUNT_OF(many), BLOCK_BYTES);
    row_of_growth = heap->classes[hak_class_of(BLOCK_BYTES)].refills_in_row;
    blocks_free(many, COUNT_OF(many));
}

/* Whether each block of the last turn lies in a slab of that producer's side. */
static bool are_of_side(const struct producer *producer) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (hak_orphan_side_of(hak_word_tag(hak_registry_word(blocks[i])) ^ producer->heap->id) != 0) {
            return false;
        }
    }
    return true;
}

/* The main thread frees, and all of it is counted. */
static void end_turn(void) {
    free_all();
    hak_homeward_flush(hak_heap_attach());
}

/* One turn: a producer allocates, the main thread frees. */
static void take_turn(struct producer *producer) {
    let_work(producer, allocate);
    end_turn();
}

static unsigned class_of_test(void) {
    return hak_class_of(BLOCK_BYTES);
}

static bool exports(const struct producer *producer) {
    return producer->heap->classes[class_of_test()].exports;
}

static size_t slabs_now(void) {
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    return stats.classes[class_of_test()].slabs;
}

static void what_others_free_is_exported_until_a_spill(void **state) {
    (void)state;
    struct producer *producer = &producers[0];
    start(producer);
    for (unsigned i = 0; i < TURNS; i++) {
        take_turn(producer);
    }
    assert_true(exports(producer));
    assert_false(hak_supply_shares(producer->heap, class_of_test())); /* nobody else does */
    let_work(producer, grow_and_free_all);
    assert_false(exports(producer));
    end(producer);
}

static void a_thread_that_frees_its_own_blocks_exports_nothing(void **state) {
    (void)state;
    struct producer *producer = &producers[0];
    start(producer);
    for (unsigned i = 0; i < TURNS; i++) {
        let_work(producer, allocate);
        let_work(producer, free_all);
    }
    let_work(producer, grow_and_free_all);
    assert_true(row_of_growth > 8);
    assert_false(exports(producer));
    end(producer);
}

/* Leaves one block in four in more slabs than a thread keeps to itself, and fills the holes. */
static void leave_holes_and_fill_them(void) {
    static void *many[8000];
    blocks_take(many, COUNT_OF(many), BLOCK_BYTES);
    for (unsigned i = 0; i < COUNT_OF(many); i++) {
        if (i % 4 != 0) {
            free(many[i]);
            many[i] = NULL;
        }
    }
    adopted = hak_heap_attach()->classes[class_of_test()].counters.pool_adoptions;
    for (unsigned i = 0; i < COUNT_OF(many); i++) {
        many[i] = many[i] == NULL ? malloc(BLOCK_BYTES) : many[i];
    }
    adopted = hak_heap_attach()->classes[class_of_test()].counters.pool_adoptions - adopted;
    exported = hak_heap_attach()->classes[class_of_test()].exports;
    blocks_free(many, COUNT_OF(many));
}

/* What it freed to slabs that had become nobody's meanwhile are no frees of others'. */
static void nor_one_that_fills_the_holes_of_slabs_that_were_its_own(void **state) {
    (void)state;
    start(&producers[0]);
    let_work(&producers[0], leave_holes_and_fill_them);
    assert_true(adopted > 8);
    assert_false(exported);
    end(&producers[0]);
}

static void producers_that_take_turns_share_slabs(void **state) {
    (void)state;
    size_t before = slabs_now();
    for (unsigned p = 0; p < PRODUCERS; p++) {
        start(&producers[p]);
    }
    for (unsigned i = 0; i < TURNS * PRODUCERS; i++) {
        take_turn(&producers[i % PRODUCERS]);
    }
    for (unsigned p = 0; p < PRODUCERS; p++) {
        assert_true(exports(&producers[p]));
        assert_true(hak_supply_shares(producers[p].heap, class_of_test()));
    }
    /* One that they take from, and one more that was not empty when that was. */
    assert_in_range(slabs_now() - before, 1, 2);
    for (unsigned p = 1; p < PRODUCERS; p++) {
        end(&producers[p]);
    }
    assert_true(exports(&producers[0]));
    assert_false(hak_supply_shares(producers[0].heap, class_of_test())); /* the others have ended */
    end(&producers[0]);
}

static int export_alone(void *unused) {
    (void)unused;
    start(&producers[1]);
    for (unsigned i = 0; i < TURNS; i++) {
        take_turn(&producers[1]);
    }
    CHECK(exports(&producers[1]));
    CHECK(!hak_supply_shares(producers[1].heap, class_of_test()));
    end(&producers[1]);
    return 0;
}

/* A fork may cut a thread off between its own note that a class exports, or no longer does, and the count. */
static void who_was_cut_off_does_not_count_in_a_child(void **state) {
    (void)state;
    start(&producers[0]);
    for (unsigned i = 0; i < TURNS; i++) {
        take_turn(&producers[0]);
    }
    assert_true(exports(&producers[0]));
    producers[0].heap->classes[class_of_test()].exports = false;
    assert_function_succeeds(export_alone);
    producers[0].heap->classes[class_of_test()].exports = true;
    end(&producers[0]);
}

static int count_anew(void *unused) {
    static struct heap lost;
    struct heap *survivor = hak_heap_attach();
    (void)unused;
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        survivor->classes[c].exports = lost.classes[c].exports = true;
        hak_supply_note_spill(&lost, c); /* was not counted: one too few are now */
        CHECK(hak_supply_shares(survivor, c));
    }
    hak_supply_forget_exporters(survivor);
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        CHECK(!hak_supply_shares(survivor, c));
        lost.classes[c].exports = true;
        hak_supply_note_spill(&lost, c); /* there was one to take off */
        CHECK(!hak_supply_shares(survivor, c));
    }
    return 0;
}

static void who_is_left_counts_in_every_class(void **state) {
    (void)state;
    assert_function_succeeds(count_anew);
}

/* They share slabs, but neither takes those of the other while there are blocks in its own. */
static void producers_take_from_slabs_of_their_own_side_first(void **state) {
    (void)state;
    start(&producers[0]);
    start(&producers[1]);
    assert_int_not_equal(hak_orphan_side_of(producers[0].heap->id),
                         hak_orphan_side_of(producers[1].heap->id));
    for (unsigned i = 0; i < 2 * TURNS; i++) {
        take_turn(&producers[i % 2]);
    }
    for (unsigned i = 0; i < 2 * TURNS; i++) {
        struct producer *producer = &producers[i % 2];
        let_work(producer, allocate);
        assert_true(hak_supply_shares(producer->heap, class_of_test()));
        assert_true(are_of_side(producer));
        end_turn();
    }
    end(&producers[0]);
    end(&producers[1]);
}

#define TAKERS      24u
#define TAKEN_OVER  2000u /* blocks that each has */
#define TAKEN_BYTES 64u   /* which go home when they are freed */
#define PART        100u  /* of a turn */
#define TIMES       4u    /* that each block is replaced before the next thread takes it over */
#define GENERATIONS 6u

static struct producer takers[TAKERS];
static void *taken_over[TAKERS][TAKEN_OVER];
static unsigned taker; /* whose turn it is */
static unsigned generation;
static size_t next_of_taker;

static void fill(void) {
    blocks_take(taken_over[taker], TAKEN_OVER, TAKEN_BYTES);
}

static void replace_part(void) {
    for (unsigned i = 0; i < PART; i++) {
        size_t at = (next_of_taker + i * (size_t)7919) % TAKEN_OVER;
        void **place = &taken_over[(taker + generation) % TAKERS][at];
        hak_free(*place);
        *place = hak_malloc(TAKEN_BYTES);
        CHECK(*place != NULL);
    }
}

static void free_taken_over(void) {
    blocks_free(taken_over[taker], TAKEN_OVER);
}

static uint64_t remote_frees_now(void) {
    uint64_t sum = 0;
    for (unsigned t = 0; t < TAKERS; t++) {
        sum += takers[t].heap->classes[hak_class_of(TAKEN_BYTES)].counters.remote_frees;
    }
    return sum;
}

static void each_taker(void (*work)(void)) {
    for (taker = 0; taker < TAKERS; taker++) {
        let_work(&takers[taker], work);
    }
}

/* Each has its turn until all of its blocks were replaced so many times. */
static void replace_all(void) {
    for (next_of_taker = 0; next_of_taker < TIMES * TAKEN_OVER; next_of_taker += PART) {
        each_taker(replace_part);
    }
}

/*
 * As servers do whose requests outlive the thread that took them. A block that was taken over is another
 * thread's once; beyond that few are, though the class exports.
 */
static void threads_that_take_blocks_over_do_not_mix_them_for_good(void **state) {
    (void)state;
    for (unsigned t = 0; t < TAKERS; t++) {
        start(&takers[t]);
    }
    each_taker(fill);
    uint64_t before = 0;
    for (generation = 1; generation <= GENERATIONS; generation++) {
        before = remote_frees_now();
        replace_all();
    }
    assert_in_range(remote_frees_now() - before, 0, 2 * TAKERS * TAKEN_OVER);
    each_taker(free_taken_over);
    for (unsigned t = 0; t < TAKERS; t++) {
        end(&takers[t]);
    }
}

#define TEST(name) cmocka_unit_test_teardown(name, heap_is_sound)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_others_free_is_exported_until_a_spill),
        TEST(a_thread_that_frees_its_own_blocks_exports_nothing),
        TEST(producers_that_take_turns_share_slabs),
        TEST(who_was_cut_off_does_not_count_in_a_child),
        TEST(who_is_left_counts_in_every_class),
        TEST(producers_take_from_slabs_of_their_own_side_first),
        TEST(threads_that_take_blocks_over_do_not_mix_them_for_good),
        /* the last, since it leaves slabs that the others would take from */
        TEST(nor_one_that_fills_the_holes_of_slabs_that_were_its_own),
    };
    return cmocka_run_group_tests_name("exporting", tests, NULL, NULL);
}
