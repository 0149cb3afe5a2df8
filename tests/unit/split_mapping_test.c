/*
 * split_mapping_test.c - blocks of which the program has advised, protected or locked a part, as NumPy does
 * with each of its larger arrays: they are several kernel mappings, none of which the library knows.
 *
 * suite: limit 120 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "os/os.h"
#include "support/child.h"
#include "support/limits.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES       64u
#define ARRAYS      8u
#define ROUNDS      3000u
#define ARRAY_BYTES (4 * MIB) /* and up to three times that */
#define GROWN_BYTES (256 * MIB)

/* Moves that replace what stands at their target, and those that leave the old pages mapped. */
static unsigned fixed_moves, leaving_moves;

void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *target = va_arg(rest, void *);
    va_end(rest);
    fixed_moves += (flags & MREMAP_FIXED) != 0;
    leaving_moves += (flags & MREMAP_DONTUNMAP) != 0;
    return (void *)syscall(SYS_mremap, address, old_bytes, new_bytes, flags, target);
}

static size_t mapped_bytes(void) {
    return hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes); /* relaxed: one thread */
}

/* PAGES pages of which one in the middle is a mapping of its own, and a target for them. */
static char *map_split(size_t target_bytes, void **target) {
    size_t page_bytes = hak_os_page_bytes();
    void *start;
    assert_int_equal(hak_os_map(NULL, PAGES * page_bytes, &start), 0);
    memset(start, 1, PAGES * page_bytes);
    assert_int_equal(madvise((char *)start + PAGES / 2 * page_bytes, page_bytes, MADV_DONTFORK), 0);
    assert_int_equal(hak_os_reserve_aligned(target_bytes, page_bytes, target), 0);
    fixed_moves = leaving_moves = 0;
    return start;
}

static void check_nothing_moved(char *start, char *target, size_t target_bytes, size_t before_bytes) {
    unsigned char is_resident;
    size_t bytes = PAGES * hak_os_page_bytes();
    assert_int_equal(fixed_moves + leaving_moves, 0);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(start[i], 1);
    }
    for (size_t i = 0; i < target_bytes; i += hak_os_page_bytes()) {
        assert_true(mincore(target + i, 1, &is_resident) != 0 &&
                    errno == ENOMEM); /* the target is not left */
    }
    assert_int_equal(mapped_bytes(), before_bytes + bytes);
    assert_int_equal(hak_os_unmap(start, bytes), 0);
}

/* Newer kernels move several mappings one by one, and leave it at that when one of them cannot be moved. */
static void several_mappings_are_not_moved(void **state) {
    (void)state;
    size_t bytes = PAGES * hak_os_page_bytes();
    for (unsigned grown = 0; grown < 2; grown++) {
        void *target;
        size_t before_bytes = mapped_bytes();
        char *start = map_split(bytes << grown, &target);
        assert_int_not_equal(hak_os_move(start, bytes, target, bytes << grown), 0);
        check_nothing_moved(start, target, bytes << grown, before_bytes);
    }
}

static void nor_are_their_pages(void **state) {
    (void)state;
    void *target;
    size_t bytes = PAGES * hak_os_page_bytes();
    size_t before_bytes = mapped_bytes();
    char *start = map_split(bytes, &target);
    assert_int_not_equal(hak_os_move_pages(start, bytes, target), 0);
    check_nothing_moved(start, target, bytes, before_bytes);
}

/* The kernel would unlock all of the mapping, other blocks in it too. */
static void locked_pages_are_not_moved_away(void **state) {
    (void)state;
    void *start, *moved, *target;
    size_t bytes = PAGES * hak_os_page_bytes();
    assert_int_equal(hak_os_map(NULL, bytes, &start), 0);
    if (mlock(start, bytes) != 0) {
        (void)hak_os_unmap(start, bytes);
        SKIP_BECAUSE("mlock is not allowed");
    }
    leaving_moves = 0;
    assert_int_equal(hak_os_detach(start, bytes / 2, &moved), EINVAL);
    assert_int_equal(hak_os_reserve_aligned(bytes / 2, hak_os_page_bytes(), &target), 0);
    assert_int_equal(hak_os_move_pages(start, bytes / 2, target), EINVAL);
    assert_int_equal(leaving_moves, 0);
    assert_int_equal(hak_os_unmap(start, bytes), 0);
}

/* As NumPy's: all but the first, partial page. */
static void advise(char *array, size_t bytes) {
    size_t skipped_bytes = 4096 - (uintptr_t)array % 4096;
    (void)madvise(array + skipped_bytes, bytes - skipped_bytes, MADV_HUGEPAGE);
}

static void change(char **array, size_t *bytes, struct rng *rng) {
    if (*array == NULL) {
        *bytes = ARRAY_BYTES + rng_below(rng, 2 * ARRAY_BYTES);
        *array = malloc(*bytes);
        CHECK(*array != NULL);
        advise(*array, *bytes);
        (*array)[0] = (*array)[*bytes - 1] = 'a';
    } else if (rng_below(rng, 2) != 0) {
        size_t before_bytes = *bytes;
        *bytes += rng_below(rng, ARRAY_BYTES);
        *array = realloc(*array, *bytes);
        CHECK(*array != NULL && (*array)[0] == 'a' && (*array)[before_bytes - 1] == 'a');
        (*array)[*bytes - 1] = 'a';
    } else {
        free(*array);
        *array = NULL;
    }
}

static int change_arrays(void) {
    static char *arrays[ARRAYS];
    static size_t sizes[ARRAYS];
    struct rng rng = rng_seeded(5);
    size_t before_bytes = address_space_bytes();
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned which = (unsigned)rng_below(&rng, ARRAYS);
        change(&arrays[which], &sizes[which], &rng);
    }
    for (unsigned i = 0; i < ARRAYS; i++) {
        free(arrays[i]);
    }
    CHECK(address_space_bytes() <= before_bytes + GROWN_BYTES);
    check_heap();
    return 0;
}

static void arrays_that_are_advised_take_no_more_and_more_address_space(void **state) {
    (void)state;
    assert_part_succeeds("child", "HAKMEM_TINY_PROFILE=conservative");
}

int main(int argc, char **argv) {
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_mappings_are_not_moved),
        cmocka_unit_test(nor_are_their_pages),
        cmocka_unit_test(locked_pages_are_not_moved_away),
        cmocka_unit_test(arrays_that_are_advised_take_no_more_and_more_address_space),
    };
    return argc > 1 ? change_arrays() : cmocka_run_group_tests(tests, NULL, NULL);
}
