/*
 * realloc_test.c - realloc and reallocarray: contents, neighbours, NULL and 0, in-place and by moving.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/pattern.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define EDGE_BYTES (32 * KIB)

static const size_t sizes[] = {
    1,       8,       15,      16,      17,      24,      31,      33,     48,     64,     65,
    100,     128,     129,     160,     255,     256,     257,     500,    512,    640,    1000,
    1024,    1025,    1281,    2000,    2048,    3000,    4095,    4096,   4097,   5000,   8192,
    10000,   16384,   20000,   28673,   32767,   32768,   32769,   33000,  40000,  50000,  65535,
    65536,   65537,   100000,  131071,  131072,  131073,  200000,  262145, 400000, 524289, 1000000,
    1048575, 1048576, 1048577, 1500000, 2097152, 2097153, 4000000,
};

/* A block between two others is resized; all three must keep what they had. */
static void check_pair(size_t from, size_t to) {
    char *before = malloc(from), *block = malloc(from), *after = malloc(from);
    assert_true(before != NULL && block != NULL && after != NULL);
    pattern_mark(before, from, 1);
    pattern_fill(block, from, from);
    pattern_mark(after, from, 2);
    char *moved = realloc(block, to);
    assert_non_null(moved);
    assert_int_equal((uintptr_t)moved % 16, 0);
    assert_true(malloc_usable_size(moved) >= to);
    assert_true(pattern_holds(moved, from < to ? from : to, from));
    size_t room = malloc_usable_size(moved);
    memset(moved, 0x5A, room < EDGE_BYTES ? room : EDGE_BYTES);
    memset(moved + room - (room < EDGE_BYTES ? room : EDGE_BYTES), 0x5A,
           room < EDGE_BYTES ? room : EDGE_BYTES);
    assert_true(pattern_marked(before, from, 1));
    assert_true(pattern_marked(after, from, 2));
    free(before);
    free(moved);
    free(after);
}

static void contents_survive_every_pair_of_sizes(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (size_t j = 0; j < COUNT_OF(sizes); j++) {
            check_pair(sizes[i], sizes[j]);
        }
    }
}

/* As a small one would, whatever kind of block the new size would be: nothing is copied for a byte. */
static void a_large_block_that_is_shortened_a_little_stays(void **state) {
    (void)state;
    char *block = malloc(34000);
    assert_non_null(block);
    pattern_fill(block, 34000, 1);
    char *shortened = realloc(block, 30000);
    const char *check = getenv("HAKMEM_CHECK"); /* checked mode copies, see README.md */
    assert_true(shortened == block || (check != NULL && strcmp(check, "1") == 0));
    assert_true(malloc_usable_size(shortened) >= 30000);
    char *grown = realloc(shortened, 34000);
    assert_non_null(grown);
    assert_true(pattern_holds(grown, 30000, 1));
    char *much_shorter = realloc(grown, 2000);
    assert_non_null(much_shorter);
    assert_true(pattern_holds(much_shorter, 2000, 1));
    assert_in_range(malloc_usable_size(much_shorter), 2000, 4000);
    free(much_shorter);
}

/* What is aligned to more than a slab's blocks can be is of a kind that is large otherwise. */
static void a_short_block_of_a_large_kind_grows(void **state) {
    (void)state;
    for (size_t bytes = 1; bytes <= 20000; bytes = bytes * 3 + 1) {
        for (size_t grown_bytes = bytes; grown_bytes <= 40000; grown_bytes += 700) {
            char *block = memalign(64 * KIB, bytes);
            assert_non_null(block);
            pattern_fill(block, bytes, bytes);
            char *grown = realloc(block, grown_bytes);
            assert_non_null(grown);
            assert_true(malloc_usable_size(grown) >= grown_bytes);
            assert_true(pattern_holds(grown, bytes, bytes));
            memset(grown, 1, grown_bytes);
            free(grown);
        }
    }
}

static void contents_survive_growth_in_small_steps(void **state) {
    (void)state;
    static const size_t steps[] = {1, 16, 100, 4096, 33333, 100000};
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        size_t bytes = steps[i];
        char *block = malloc(bytes);
        pattern_fill(block, bytes, i);
        for (unsigned grown = 0; grown < 200; grown++) {
            block = realloc(block, bytes + steps[i]);
            assert_non_null(block);
            assert_true(pattern_holds(block, bytes, i));
            bytes += steps[i];
            pattern_fill(block, bytes, i);
        }
        while (bytes > steps[i]) {
            bytes -= steps[i];
            block = realloc(block, bytes);
            assert_non_null(block);
            assert_true(pattern_holds(block, bytes, i));
            pattern_fill(block, bytes, i);
        }
        free(block);
    }
}

static void contents_survive_growth_to_256_mib(void **state) {
    (void)state;
    char *block = NULL;
    for (size_t bytes = 64 * KIB; bytes <= 256 * MIB; bytes *= 2) {
        block = realloc(block, bytes);
        assert_non_null(block);
        if (bytes > 64 * KIB) {
            assert_true(pattern_marked(block, bytes / 2, bytes / 2));
        }
        pattern_mark(block, bytes, bytes);
    }
    char *small = realloc(block, 1000);
    assert_non_null(small);
    free(small);
}

static void realloc_of_null_is_malloc(void **state) {
    (void)state;
    void *block = realloc(NULL, 100);
    void *empty = realloc(NULL, 0);
    assert_non_null(block);
    assert_non_null(empty);
    assert_ptr_not_equal(block, empty);
    free(block);
    free(empty);
}

static void realloc_to_0_frees_and_returns_null(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *block = malloc(sizes[i]);
        assert_non_null(block);
        assert_null(realloc(block, 0));
        if (hak_is_there()) {
            assert_false(hak_owns(block));
        }
        block = malloc(sizes[i]);
        assert_non_null(block);
        assert_null(reallocarray(block, 0, sizes[i]));
        block = malloc(sizes[i]);
        assert_non_null(block);
        assert_null(reallocarray(block, sizes[i], 0));
    }
}

static void realloc_to_the_same_size_keeps_the_address(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *block = malloc(sizes[i]);
        assert_non_null(block);
        uintptr_t address = (uintptr_t)block;
        char *same = realloc(block, sizes[i]);
        assert_int_equal((uintptr_t)same, address);
        same = realloc(same, malloc_usable_size(same));
        assert_int_equal((uintptr_t)same, address);
        free(same);
    }
}

static void reallocarray_keeps_contents(void **state) {
    (void)state;
    uint64_t *words = NULL;
    for (size_t count = 1; count <= 100000; count = count * 3 / 2 + 1) {
        size_t old_bytes = words != NULL ? malloc_usable_size(words) : 0;
        uint64_t *moved = reallocarray(words, count, sizeof *words);
        assert_non_null(moved);
        if (words != NULL) {
            assert_true(pattern_holds(moved, old_bytes < count * 8 ? old_bytes : count * 8, 9));
        }
        words = moved;
        pattern_fill(words, malloc_usable_size(words), 9);
    }
    free(words);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_block_that_is_shortened_a_little_stays), /* first: later it may get a longer
                                                                             run on loan */
        cmocka_unit_test(contents_survive_every_pair_of_sizes),
        cmocka_unit_test(a_short_block_of_a_large_kind_grows),
        cmocka_unit_test(contents_survive_growth_in_small_steps),
        cmocka_unit_test(contents_survive_growth_to_256_mib),
        cmocka_unit_test(realloc_of_null_is_malloc),
        cmocka_unit_test(realloc_to_0_frees_and_returns_null),
        cmocka_unit_test(realloc_to_the_same_size_keeps_the_address),
        cmocka_unit_test(reallocarray_keeps_contents),
    };
    return cmocka_run_group_tests_name("realloc", tests, NULL, heap_is_sound);
}
