/*
 * defrag_test.c - hak_defrag_hint(): a program that moves the blocks it names gets its memory back; one that
 * does not loses nothing.
 *
 * suite: limit 120 s
 * The case is that of a store most of whose values were deleted at random: each OS page still has a live
 * block.
 */
#include "memory/rss_kit.h"
#include "support/target.h"

#include <malloc.h>
#include <pthread.h>

#define VALUES     200000u
#define KEEP_EVERY 10u
#define PASSES     3u
#define THREADS    4u
#define SLACK_BYTES                                                                                          \
    (8 * MIB) /* what the heap may keep, caches, and one slab of each class that is being filled */

/* What values are long, from `min` on and below `max`. */
struct lengths {
    unsigned min;
    unsigned max;
};

/* Larger ones, of many cache lines, may stay with a thread that frees them for another (heap/homeward.h). */
static const struct lengths plain = {64, 512};
static const struct lengths larger = {513, 1200};

static struct value {
    unsigned char *block;
    size_t bytes;
} * values;

static size_t live_bytes(void) {
    size_t sum = 0;
    for (size_t i = 0; i < VALUES; i++) {
        sum += values[i].block != NULL ? malloc_usable_size(values[i].block) : 0;
    }
    return sum;
}

static void fill(size_t i, struct lengths lengths, struct rng *rng) {
    size_t bytes = lengths.min + rng_below(rng, lengths.max - lengths.min);
    values[i] = (struct value){.block = malloc(bytes), .bytes = bytes};
    CHECK(values[i].block != NULL);
    memset(values[i].block, (int)(i & 0xFF), bytes);
}

static void drop(size_t i) {
    free(values[i].block);
    values[i].block = NULL;
}

static void delete_most(struct lengths lengths) {
    struct rng rng = rng_seeded(7);
    values = map_own(VALUES * sizeof *values);
    for (size_t i = 0; i < VALUES; i++) {
        fill(i, lengths, &rng);
    }
    for (size_t i = 0; i < VALUES; i++) {
        if (rng_below(&rng, KEEP_EVERY) != 0) {
            drop(i);
        }
    }
    (void)malloc_trim(0);
}

static void check_contents(void) {
    for (size_t i = 0; i < VALUES; i++) {
        for (size_t at = 0; values[i].block != NULL && at < values[i].bytes; at++) {
            CHECK(values[i].block[at] == (i & 0xFF));
        }
    }
}

static void delete_all(void) {
    for (size_t i = 0; i < VALUES; i++) {
        drop(i);
    }
    munmap(values, VALUES * sizeof *values);
}

/* One pass over values first, first + stride, ...; returns how many were moved. */
static size_t move_hinted(size_t first, size_t stride) {
    size_t moved = 0;
    for (size_t i = first; i < VALUES; i += stride) {
        struct value *value = &values[i];
        if (value->block == NULL || !hak_defrag_hint(value->block)) {
            continue;
        }
        unsigned char *block = malloc(value->bytes);
        CHECK(block != NULL);
        memcpy(block, value->block, value->bytes);
        free(value->block);
        value->block = block;
        moved++;
    }
    return moved;
}

static void move_all(struct lengths lengths) {
    size_t empty_bytes = rss_bytes();
    delete_most(lengths);
    size_t live = live_bytes();
    size_t sparse_bytes = rss_bytes() - empty_bytes;
    assert_true(sparse_bytes > 3 * live); /* else there is nothing to show */
    for (unsigned pass = 0; pass < PASSES; pass++) {
        (void)move_hinted(0, 1);
    }
    (void)malloc_trim(0);
    size_t dense_bytes = rss_bytes() - empty_bytes - VALUES * sizeof *values;
    print_message("live %zu KiB, resident %zu KiB, after moving %zu KiB\n", live / KIB, sparse_bytes / KIB,
                  dense_bytes / KIB);
    assert_true(dense_bytes <= live + live / 4 + SLACK_BYTES / 4);
    check_contents();
    delete_all();
}

static void moving_what_is_named_gives_memory_back(void **state) {
    (void)state;
    REQUIRE_HAK();
    move_all(plain);
}

/* A block that is moved out of a slab goes home, or the next one that is moved would land there. */
static void so_does_moving_larger_values(void **state) {
    (void)state;
    REQUIRE_HAK();
    move_all(larger);
}

/* Once all is dense no more than the slabs that are being filled is named: a program that asks on ends. */
static void dense_blocks_are_not_named(void **state) {
    (void)state;
    REQUIRE_HAK();
    delete_most(plain);
    for (unsigned pass = 0; pass < PASSES; pass++) {
        (void)move_hinted(0, 1);
    }
    size_t moved = move_hinted(0, 1);
    print_message("moved in one more pass: %zu\n", moved);
    assert_true(moved <= VALUES / KEEP_EVERY / 4);
    delete_all();
}

/* Sparse slabs serve before new ones do: what was free in them is used up, and nothing is mapped for it. */
static void a_hint_that_is_not_followed_costs_nothing(void **state) {
    (void)state;
    REQUIRE_HAK();
    delete_most(plain);
    for (size_t i = 0; i < VALUES; i++) {
        (void)(values[i].block != NULL && hak_defrag_hint(values[i].block));
    }
    struct hak_stats before = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof before};
    struct hak_stats after = before;
    assert_int_equal(hak_stats_get(&before), 0);
    struct rng rng = rng_seeded(7); /* the sizes of the first time */
    for (size_t i = 0; i < VALUES; i++) {
        unsigned char *kept = values[i].block;
        fill(i, plain, &rng);
        free(kept);
    }
    assert_int_equal(hak_stats_get(&after), 0);
    print_message("SuperSlabs: %zu, filled again %zu\n", before.superslabs, after.superslabs);
    assert_true(after.superslabs <= before.superslabs + 1);
    delete_all();
}

static void other_pointers_are_not_named(void **state) {
    (void)state;
    REQUIRE_HAK();
    int on_stack = 0;
    char *large = malloc(100 * KIB);
    char *huge = malloc(4 * MIB);
    char *small = malloc(100);
    assert_false(hak_defrag_hint(NULL));
    assert_false(hak_defrag_hint(&on_stack));
    assert_false(hak_defrag_hint(&values));
    assert_false(hak_defrag_hint((void *)(uintptr_t)0x123456789abcdef0));
    assert_false(hak_defrag_hint(large));
    assert_false(hak_defrag_hint(huge));
    assert_false(hak_defrag_hint(small + 1));
    free(large);
    free(huge);
    free(small);
    assert_false(hak_defrag_hint(launder(small)));
}

static void *move_a_share(void *first) {
    for (unsigned pass = 0; pass < PASSES; pass++) {
        (void)move_hinted((size_t)(uintptr_t)first, THREADS);
    }
    return NULL;
}

/* Each thread moves values that the main thread allocated, in slabs that all of them share. */
static void threads_may_ask_and_move_at_once(void **state) {
    (void)state;
    REQUIRE_HAK();
    pthread_t threads[THREADS];
    delete_most(plain);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, move_a_share, (void *)i), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    check_contents();
    check_heap();
    (void)malloc_trim(0);
    size_t live = live_bytes();
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    assert_int_equal(hak_stats_get(&stats), 0);
    print_message("live %zu KiB, resident %zu KiB\n", live / KIB, stats.resident_bytes / KIB);
    assert_true(stats.resident_bytes <= live + live / 2 + SLACK_BYTES);
    delete_all();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(moving_what_is_named_gives_memory_back, heap_is_sound),
        cmocka_unit_test_teardown(so_does_moving_larger_values, heap_is_sound),
        cmocka_unit_test_teardown(dense_blocks_are_not_named, heap_is_sound),
        cmocka_unit_test_teardown(a_hint_that_is_not_followed_costs_nothing, heap_is_sound),
        cmocka_unit_test(other_pointers_are_not_named),
        cmocka_unit_test_teardown(threads_may_ask_and_move_at_once, heap_is_sound),
    };
    return cmocka_run_group_tests_name("defrag", tests, NULL, heap_is_sound);
}
