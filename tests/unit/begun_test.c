/*
 * begun_test.c - how many units slabs have that may still hand out blocks for the first time is counted, by
 * whatever way they begin, are through, and go.
 *
 * suite: limit 60 s
 */
#include "slab/slab.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "support/child.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>

#define SLOTS      4096u
#define BYTES_MAX  40000u /* beyond the largest class */
#define OPERATIONS 60000u
#define THREADS    3u

/* By looking at every slab but those of blocks longer than an OS page; no other thread uses the heap. */
static size_t begun_units(void) {
    size_t units = 0;
    struct slab *slab;
    for (size_t i = 0; (slab = hak_slab_at(i)) != NULL; i++) {
        bool is_assigned = hak_slab_word_is_assigned(hak_atomic_load_relaxed(&slab->word));
        bool has_begun = is_assigned && slab->carved_blocks < slab->capacity_blocks;
        units += has_begun && !hak_class_exceeds_page(slab->class_idx) ? slab->units : 0;
    }
    return units;
}

static size_t counted_units(void) {
    return hak_atomic_load_relaxed(&hak_slab_begun_units);
}

struct worker {
    void *slots[SLOTS];
    uint64_t seed;
};

/* Small sizes fill their slabs, large ones and rare ones do not. */
static void *replace_blocks(void *arg) {
    struct worker *worker = arg;
    struct rng rng = rng_seeded(worker->seed);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        void **slot = &worker->slots[rng_below(&rng, SLOTS)];
        hak_free(*slot);
        *slot = hak_malloc(rng_below(&rng, 1 + rng_below(&rng, BYTES_MAX)));
        CHECK(*slot != NULL);
    }
    return NULL;
}

static struct worker workers[THREADS];

static void free_all(struct worker *worker) {
    for (unsigned i = 0; i < SLOTS; i++) {
        hak_free(worker->slots[i]);
        worker->slots[i] = NULL;
    }
}

static void run_workers(void) {
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].seed++;
        CHECK(pthread_create(&threads[i], NULL, replace_blocks, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* In a child the count is made anew; the threads that had the slabs are gone. */
static int count_anew(void *unused) {
    (void)unused;
    hak_free(hak_malloc(1));
    CHECK(counted_units() == begun_units());
    (void)replace_blocks(&workers[0]);
    CHECK(counted_units() == begun_units());
    return 0;
}

static void units_of_slabs_that_have_begun_are_counted(void **state) {
    (void)state;
    for (unsigned round = 0; round < 4; round++) {
        run_workers();
        assert_int_equal(counted_units(), begun_units());
        assert_true(begun_units() > 0);
        assert_function_succeeds(count_anew);
        free_all(&workers[round % THREADS]);
        assert_int_equal(counted_units(), begun_units());
    }
    for (unsigned i = 0; i < THREADS; i++) {
        free_all(&workers[i]);
    }
    (void)hak_trim(0);
    assert_int_equal(counted_units(), begun_units());
}

static void a_slab_that_is_through_counts_no_more(void **state) {
    (void)state;
    static void *blocks[3000];
    for (unsigned i = 0; i < 3000; i++) { /* of 48 bytes: two slabs and some */
        size_t before = counted_units();
        blocks[i] = hak_malloc(48);
        assert_true(counted_units() + 1 >= before && counted_units() <= before + 1);
    }
    struct slab *first = hak_slab_of_block(blocks[0]);
    assert_int_equal(first->carved_blocks, first->capacity_blocks);
    assert_int_equal(counted_units(), begun_units());
    for (unsigned i = 0; i < 3000; i++) {
        hak_free(blocks[i]);
    }
    assert_int_equal(counted_units(), begun_units());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slab_that_is_through_counts_no_more),
        cmocka_unit_test(units_of_slabs_that_have_begun_are_counted),
    };
    return cmocka_run_group_tests_name("begun", tests, NULL, heap_is_sound);
}
