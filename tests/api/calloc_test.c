/*
 * calloc_test.c - calloc's memory is zero, all of what was asked for, above all where dirty memory is reused.
 */
#include "support/pattern.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 16u

/* Dirties whole blocks of the size, frees them, and looks at what calloc then gives. */
static void check_after_dirty_reuse(size_t bytes, unsigned count) {
    void *blocks[BATCH];
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = malloc(bytes);
        assert_non_null(blocks[i]);
        memset(blocks[i], 0xDB, malloc_usable_size(blocks[i]));
    }
    for (unsigned i = 0; i < count; i++) {
        free(blocks[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = calloc(1, bytes);
        assert_non_null(blocks[i]);
        assert_true(bytes_are(blocks[i], bytes, 0));
    }
    for (unsigned i = 0; i < count; i++) {
        memset(blocks[i], 0xDB, malloc_usable_size(blocks[i]));
        free(blocks[i]);
    }
}

static void calloc_is_zero_after_dirty_reuse_of_every_size(void **state) {
    (void)state;
    for (size_t bytes = 1; bytes <= 4200; bytes++) {
        check_after_dirty_reuse(bytes, BATCH);
    }
    for (size_t bytes = 4201; bytes <= 70000; bytes += 97) {
        check_after_dirty_reuse(bytes, 8);
    }
    struct rng rng = rng_seeded(11);
    for (unsigned i = 0; i < 60; i++) {
        check_after_dirty_reuse(rng_log_between(&rng, 70000, 16 * MIB), 2);
    }
}

/* The second size lands on memory that the first one dirtied, after a trim too. */
static void calloc_is_zero_on_memory_that_had_another_size(void **state) {
    (void)state;
    static const size_t sizes[] = {48, 640, 3000, 9000, 30000, 50000, 200000, 900000, 3000000};
    for (size_t i = 0; i < COUNT_OF(sizes) * COUNT_OF(sizes); i++) {
        size_t dirty_bytes = sizes[i / COUNT_OF(sizes)], bytes = sizes[i % COUNT_OF(sizes)];
        void *blocks[BATCH];
        for (unsigned j = 0; j < BATCH; j++) {
            blocks[j] = malloc(dirty_bytes);
            assert_non_null(blocks[j]);
            memset(blocks[j], 0xDB, malloc_usable_size(blocks[j]));
        }
        for (unsigned j = 0; j < BATCH; j++) {
            free(blocks[j]);
        }
        if (i % 3 == 0) {
            (void)malloc_trim(0);
        }
        for (unsigned j = 0; j < BATCH; j++) {
            blocks[j] = calloc(bytes / 8, 8);
            assert_non_null(blocks[j]);
            assert_true(bytes_are(blocks[j], bytes / 8 * 8, 0));
        }
        for (unsigned j = 0; j < BATCH; j++) {
            free(blocks[j]);
        }
    }
}

/* A block that shrank and grew in place has old bytes behind its end: a calloc there must not see them. */
static void calloc_is_zero_where_realloc_gave_room_back(void **state) {
    (void)state;
    for (size_t bytes = 64 * KIB; bytes <= 8 * MIB; bytes *= 2) {
        void *block = malloc(bytes);
        assert_non_null(block);
        memset(block, 0xDB, malloc_usable_size(block));
        block = realloc(block, bytes / 4);
        assert_non_null(block);
        void *cleared[4];
        for (unsigned i = 0; i < 4; i++) {
            cleared[i] = calloc(1, bytes / 8);
            assert_non_null(cleared[i]);
            assert_true(bytes_are(cleared[i], bytes / 8, 0));
        }
        free(block);
        for (unsigned i = 0; i < 4; i++) {
            free(cleared[i]);
        }
    }
}

static void calloc_multiplies(void **state) {
    (void)state;
    for (size_t count = 1; count < 300; count += 7) {
        for (size_t bytes = 1; bytes < 300; bytes += 11) {
            void *block = calloc(count, bytes);
            assert_non_null(block);
            assert_true(malloc_usable_size(block) >= count * bytes);
            assert_true(bytes_are(block, count * bytes, 0));
            memset(block, 0xDB, count * bytes);
            free(block);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calloc_is_zero_after_dirty_reuse_of_every_size),
        cmocka_unit_test(calloc_is_zero_on_memory_that_had_another_size),
        cmocka_unit_test(calloc_is_zero_where_realloc_gave_room_back),
        cmocka_unit_test(calloc_multiplies),
    };
    return cmocka_run_group_tests_name("calloc", tests, NULL, heap_is_sound);
}
