/*
 * sizes_test.c - what malloc hands out: alignment, room, separateness, for every size a program may ask for.
 */
#include "support/pattern.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <malloc.h>
#include <stdlib.h>

#define DENSE_MAX   ((size_t)70000)
#define NEIGHBOURS  8u
#define SAMPLED_MAX (64 * MIB)

static void every_size_is_16_byte_aligned(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes <= DENSE_MAX; bytes++) {
        void *block = malloc(bytes);
        void *cleared = calloc(1, bytes);
        assert_non_null(block);
        assert_non_null(cleared);
        assert_int_equal((uintptr_t)block % 16, 0);
        assert_int_equal((uintptr_t)cleared % 16, 0);
        assert_true(malloc_usable_size(block) >= bytes);
        assert_true(malloc_usable_size(cleared) >= bytes);
        free(block);
        free(cleared);
    }
}

static void sampled_sizes_up_to_64_mib_are_16_byte_aligned(void **state) {
    (void)state;
    struct rng rng = rng_seeded(1);
    for (unsigned i = 0; i < 2000; i++) {
        size_t bytes = rng_log_between(&rng, DENSE_MAX, SAMPLED_MAX);
        char *block = malloc(bytes);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 16, 0);
        assert_true(malloc_usable_size(block) >= bytes);
        block[0] = block[bytes - 1] = 1;
        free(block);
    }
}

static void size_0_gives_distinct_blocks_that_can_be_freed(void **state) {
    (void)state;
    void *blocks[100];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = i % 2 == 0 ? malloc(0) : calloc(i % 3, 0);
        assert_non_null(blocks[i]);
        for (size_t j = 0; j < i; j++) {
            assert_ptr_not_equal(blocks[i], blocks[j]);
        }
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        free(blocks[i]);
    }
}

/* Fills all that malloc_usable_size promises of several blocks, then looks whether any touched another. */
static void check_whole_room_of(size_t bytes, unsigned count) {
    unsigned char *blocks[NEIGHBOURS];
    size_t rooms[NEIGHBOURS];
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = malloc(bytes);
        assert_non_null(blocks[i]);
        rooms[i] = malloc_usable_size(blocks[i]);
        assert_true(rooms[i] >= bytes);
        pattern_fill(blocks[i], rooms[i], bytes * NEIGHBOURS + i);
    }
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(malloc_usable_size(blocks[i]), rooms[i]);
        assert_true(pattern_holds(blocks[i], rooms[i], bytes * NEIGHBOURS + i));
        free(blocks[i]);
    }
}

static void usable_size_is_all_writable_and_neighbours_stay_intact(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes <= 2100; bytes++) {
        check_whole_room_of(bytes, NEIGHBOURS);
    }
    for (size_t bytes = 2101; bytes <= DENSE_MAX; bytes += 61) {
        check_whole_room_of(bytes, NEIGHBOURS);
    }
    struct rng rng = rng_seeded(2);
    for (unsigned i = 0; i < 40; i++) {
        check_whole_room_of(rng_log_between(&rng, DENSE_MAX, 8 * MIB), 3);
    }
}

static void usable_size_of_null_is_0(void **state) {
    (void)state;
    assert_int_equal(malloc_usable_size(NULL), 0);
}

static void blocks_alive_together_never_overlap(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    struct entry {
        unsigned char *block;
        size_t bytes;
    } *entries = malloc(COUNT * sizeof *entries);
    assert_non_null(entries);
    struct rng rng = rng_seeded(3);
    for (size_t i = 0; i < COUNT; i++) {
        entries[i].bytes = rng_log_between(&rng, 1, 4000);
        entries[i].block = malloc(entries[i].bytes);
        assert_non_null(entries[i].block);
        pattern_fill(entries[i].block, entries[i].bytes, i);
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(pattern_holds(entries[i].block, entries[i].bytes, i));
        free(entries[i].block);
    }
    free(entries);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_16_byte_aligned),
        cmocka_unit_test(sampled_sizes_up_to_64_mib_are_16_byte_aligned),
        cmocka_unit_test(size_0_gives_distinct_blocks_that_can_be_freed),
        cmocka_unit_test(usable_size_is_all_writable_and_neighbours_stay_intact),
        cmocka_unit_test(usable_size_of_null_is_0),
        cmocka_unit_test(blocks_alive_together_never_overlap),
    };
    return cmocka_run_group_tests_name("sizes", tests, NULL, heap_is_sound);
}
