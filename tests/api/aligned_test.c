/*
 * aligned_test.c - memalign, aligned_alloc, posix_memalign, valloc, pvalloc: alignments, sizes, odd
 * arguments.
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
#include <unistd.h>

#define ALIGN_MAX (4 * MIB)

/* Through pointers: from the names, compilers conclude that the alignment is as asked for. */
static void *(*volatile opaque_memalign)(size_t, size_t) = memalign;
static void *(*volatile opaque_aligned_alloc)(size_t, size_t) = aligned_alloc;

static const size_t sizes[] = {0,     1,     15,    16,     17,     48,      100,     1000,
                               1024,  1500,  4000,  4096,   5000,   8192,    20000,   32768,
                               33000, 65536, 70000, 131072, 300000, 1048576, 2097152, 3000000};

enum way { BY_MEMALIGN, BY_ALIGNED_ALLOC, BY_POSIX_MEMALIGN, WAYS };

static void *allocate(enum way way, size_t alignment, size_t bytes) {
    void *block = NULL;
    switch (way) {
    case BY_MEMALIGN:
        return opaque_memalign(alignment, bytes);
    case BY_ALIGNED_ALLOC:
        return opaque_aligned_alloc(alignment, bytes);
    default:
        return posix_memalign(&block, alignment, bytes) == 0 ? block : NULL;
    }
}

/* Several at once, so that the padding that alignment needs cannot be what hides an overlap. */
static void check_alignment(enum way way, size_t alignment, size_t bytes) {
    void *blocks[4];
    size_t rooms[4];
    unsigned count = alignment > MIB || bytes > MIB ? 2 : 4;
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = allocate(way, alignment, bytes);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % alignment, 0);
        rooms[i] = malloc_usable_size(blocks[i]);
        assert_true(rooms[i] >= bytes);
        pattern_mark(blocks[i], rooms[i], i);
    }
    for (unsigned i = 0; i < count; i++) {
        assert_true(pattern_marked(blocks[i], rooms[i], i));
        if (i % 2 == 0) {
            free(blocks[i]);
        } else {
            char *moved = realloc(blocks[i], bytes + 100);
            assert_non_null(moved);
            assert_true(bytes > 4096 || pattern_holds(moved, bytes & ~(size_t)7, i) || rooms[i] > 4096);
            free(moved);
        }
    }
}

static void every_alignment_from_16_to_4_mib_for_many_sizes(void **state) {
    (void)state;
    for (enum way way = BY_MEMALIGN; way < WAYS; way++) {
        for (size_t alignment = 16; alignment <= ALIGN_MAX; alignment *= 2) {
            for (size_t i = 0; i < COUNT_OF(sizes); i++) {
                check_alignment(way, alignment, sizes[i]);
            }
        }
    }
}

static void small_alignments_still_give_16(void **state) {
    (void)state;
    for (size_t alignment = 1; alignment <= 16; alignment *= 2) {
        for (size_t bytes = 0; bytes < 300; bytes++) {
            void *first = opaque_memalign(alignment, bytes);
            void *second = opaque_aligned_alloc(alignment, bytes);
            assert_true(first != NULL && second != NULL);
            assert_int_equal((uintptr_t)first % 16, 0);
            assert_int_equal((uintptr_t)second % 16, 0);
            free(first);
            free(second);
        }
    }
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, sizeof(void *), 10), 0);
    assert_int_equal((uintptr_t)block % 16, 0);
    free(block);
}

static void memalign_rounds_an_alignment_up_to_a_power_of_two(void **state) {
    (void)state;
    static const size_t odd[][2] = {{3, 4},     {17, 32},     {24, 32},        {33, 64},
                                    {100, 128}, {4097, 8192}, {100000, 131072}};
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        void *block = opaque_memalign(odd[i][0], 200);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % odd[i][1], 0);
        free(block);
    }
    void *block = opaque_memalign(0, 200);
    assert_non_null(block);
    free(block);
}

/* glibc before 2.38 rounds up as memalign does, from then on it refuses; nothing else will do. */
static void aligned_alloc_rounds_up_or_refuses_with_einval(void **state) {
    (void)state;
    static const size_t odd[][2] = {{3, 4}, {24, 32}, {100, 128}, {4097, 8192}};
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        errno = 0;
        void *block = opaque_aligned_alloc(odd[i][0], 200);
        assert_true(block != NULL ? (uintptr_t)block % odd[i][1] == 0 : errno == EINVAL);
        free(block);
    }
    errno = 0;
    void *block = opaque_aligned_alloc(0, 200);
    assert_true(block != NULL || errno == EINVAL);
    free(block);
}

static void valloc_aligns_to_the_page(void **state) {
    (void)state;
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *block = valloc(sizes[i]);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % page_bytes, 0);
        assert_true(malloc_usable_size(block) >= sizes[i]);
        free(block);
    }
}

static void pvalloc_aligns_and_rounds_up_to_the_page(void **state) {
    (void)state;
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        size_t rounded_bytes = (sizes[i] + page_bytes - 1) / page_bytes * page_bytes;
        void *block = pvalloc(sizes[i]);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % page_bytes, 0);
        assert_true(malloc_usable_size(block) >= rounded_bytes);
        pattern_mark(block, rounded_bytes, i);
        assert_true(pattern_marked(block, rounded_bytes, i));
        free(block);
    }
}

static void aligned_blocks_are_cheap_to_come_and_go(void **state) {
    (void)state;
    void *kept[64] = {NULL};
    for (unsigned i = 0; i < 20000; i++) {
        void **slot = &kept[i % COUNT_OF(kept)];
        free(*slot);
        size_t alignment = (size_t)16 << i % 13;
        *slot = opaque_memalign(alignment, i % 9000);
        assert_non_null(*slot);
        assert_int_equal((uintptr_t)*slot % alignment, 0);
    }
    for (size_t i = 0; i < COUNT_OF(kept); i++) {
        free(kept[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_alignment_from_16_to_4_mib_for_many_sizes),
        cmocka_unit_test(small_alignments_still_give_16),
        cmocka_unit_test(memalign_rounds_an_alignment_up_to_a_power_of_two),
        cmocka_unit_test(aligned_alloc_rounds_up_or_refuses_with_einval),
        cmocka_unit_test(valloc_aligns_to_the_page),
        cmocka_unit_test(pvalloc_aligns_and_rounds_up_to_the_page),
        cmocka_unit_test(aligned_blocks_are_cheap_to_come_and_go),
    };
    return cmocka_run_group_tests_name("aligned", tests, NULL, heap_is_sound);
}
