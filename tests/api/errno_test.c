/*
 * errno_test.c - every allocation that must fail: NULL and ENOMEM, arguments untouched, errno kept by others.
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

#define ERRNO_MARK 4321

/* Through pointers: from the names, compilers conclude that the alignment is as asked for. */
static void *(*volatile opaque_memalign)(size_t, size_t) = memalign;
static void *(*volatile opaque_aligned_alloc)(size_t, size_t) = aligned_alloc;

static const size_t impossible_sizes[] = {
    SIZE_MAX,      SIZE_MAX - 1,        SIZE_MAX - 15,    SIZE_MAX - 16,
    SIZE_MAX - 63, SIZE_MAX - 4095,     SIZE_MAX - 4096,  SIZE_MAX - 65535,
    SIZE_MAX / 2,  SIZE_MAX / 2 + 1,    SIZE_MAX / 2 + 2, SIZE_MAX - 2 * MIB,
    PTRDIFF_MAX,   PTRDIFF_MAX - 4096u, (size_t)1 << 62,  SIZE_MAX / 2 - 2 * MIB,
    SIZE_MAX / 4,  (size_t)1 << 47,     (size_t)3 << 46,  SIZE_MAX - 4 * MIB + 1,
};

#define assert_no_memory(call)                                                                               \
    do {                                                                                                     \
        errno = ERRNO_MARK;                                                                                  \
        void *got_ = (call);                                                                                 \
        int errno_ = errno;                                                                                  \
        assert_null(got_);                                                                                   \
        assert_int_equal(errno_, ENOMEM);                                                                    \
    } while (0)

static void impossible_sizes_give_enomem(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(impossible_sizes); i++) {
        size_t bytes = impossible_sizes[i];
        assert_no_memory(malloc(bytes));
        assert_no_memory(calloc(1, bytes));
        assert_no_memory(calloc(bytes, 1));
        assert_no_memory(realloc(NULL, bytes));
        assert_no_memory(reallocarray(NULL, 1, bytes));
        assert_no_memory(opaque_memalign(16, bytes));
        assert_no_memory(opaque_memalign(64, bytes));
        assert_no_memory(opaque_memalign(1 << 20, bytes));
        assert_no_memory(opaque_aligned_alloc(8, bytes));
        assert_no_memory(opaque_aligned_alloc(4096, bytes));
        assert_no_memory(valloc(bytes));
        assert_no_memory(pvalloc(bytes));
    }
}

static void impossible_alignments_give_enomem_or_einval(void **state) {
    (void)state;
    assert_no_memory(opaque_memalign(SIZE_MAX / 2 + 1, 1));
    assert_no_memory(opaque_memalign(SIZE_MAX / 4 + 1, SIZE_MAX / 2));
    errno = 0;
    assert_null(opaque_memalign(SIZE_MAX / 2 + 2, 1));
    assert_int_equal(errno, EINVAL);
    errno = 0;
    assert_null(opaque_memalign(SIZE_MAX, 1));
    assert_int_equal(errno, EINVAL);
}

static void overflowing_products_give_enomem(void **state) {
    (void)state;
    static const size_t factors[][2] = {
        {SIZE_MAX, 2},           {2, SIZE_MAX},
        {SIZE_MAX / 2 + 1, 2},   {(size_t)1 << 32, (size_t)1 << 32},
        {SIZE_MAX / 16 + 1, 16}, {SIZE_MAX, SIZE_MAX},
        {SIZE_MAX / 3 + 1, 3},   {((size_t)1 << 32) + 1, (size_t)1 << 32},
        {PTRDIFF_MAX, 2},        {PTRDIFF_MAX / 2, 3u},
    };
    char *block = malloc(100);
    assert_non_null(block);
    pattern_fill(block, 100, 1);
    for (size_t i = 0; i < COUNT_OF(factors); i++) {
        assert_no_memory(calloc(factors[i][0], factors[i][1]));
        assert_no_memory(reallocarray(NULL, factors[i][0], factors[i][1]));
        assert_no_memory(reallocarray(block, factors[i][0], factors[i][1]));
    }
    assert_true(pattern_holds(block, 100, 1));
    free(block);
}

static void realloc_that_fails_leaves_the_block(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 24, 1000, 5000, 40000, 300000, 3000000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *block = malloc(sizes[i]);
        assert_non_null(block);
        pattern_fill(block, sizes[i], i);
        for (size_t j = 0; j < COUNT_OF(impossible_sizes); j++) {
            assert_no_memory(realloc(block, impossible_sizes[j]));
        }
        assert_true(pattern_holds(block, sizes[i], i));
        block = realloc(block, sizes[i] * 2);
        assert_non_null(block);
        assert_true(pattern_holds(block, sizes[i], i));
        free(block);
    }
}

static void posix_memalign_returns_einval_and_touches_nothing(void **state) {
    (void)state;
    static const size_t bad[] = {0,  1,  2,  3,   4,    5,    7,        9,           12,
                                 24, 40, 48, 100, 4095, 4097, SIZE_MAX, SIZE_MAX - 7};
    int mark;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        void *block = &mark;
        errno = ERRNO_MARK;
        int result = posix_memalign(&block, bad[i], 64);
        assert_int_equal(errno, ERRNO_MARK);
        assert_int_equal(result, EINVAL);
        assert_ptr_equal(block, &mark);
    }
}

static void posix_memalign_returns_enomem_and_touches_nothing(void **state) {
    (void)state;
    static const size_t alignments[] = {8, 16, 64, 4096, 1 << 21};
    int mark;
    for (size_t i = 0; i < COUNT_OF(impossible_sizes); i++) {
        for (size_t j = 0; j < COUNT_OF(alignments); j++) {
            void *block = &mark;
            errno = ERRNO_MARK;
            int result = posix_memalign(&block, alignments[j], impossible_sizes[i]);
            int errno_after = errno;
            assert_int_equal(result, ENOMEM);
            if (hak_is_there()) { /* glibc sets it, against POSIX's advice */
                assert_int_equal(errno_after, ERRNO_MARK);
            }
            assert_ptr_equal(block, &mark);
        }
    }
}

static void free_keeps_errno(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes <= 128 * MIB; bytes = bytes * 2 + 7) {
        char *block = malloc(bytes);
        assert_non_null(block);
        if (bytes > 0) {
            block[0] = block[bytes - 1] = 1;
        }
        errno = ERRNO_MARK;
        free(block);
        assert_int_equal(errno, ERRNO_MARK);
    }
    errno = ERRNO_MARK;
    free(NULL);
    assert_int_equal(errno, ERRNO_MARK);
}

/* Enough at once that memory goes back to the system in between. */
static void free_keeps_errno_while_it_gives_memory_back(void **state) {
    (void)state;
    enum { COUNT = 100000 };
    void **blocks = malloc(COUNT * sizeof *blocks);
    assert_non_null(blocks);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = calloc(1, 500 + i % 3000);
        assert_non_null(blocks[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        errno = ERRNO_MARK;
        free(blocks[i]);
        assert_int_equal(errno, ERRNO_MARK);
    }
    free(blocks);
}

static void success_keeps_errno(void **state) {
    (void)state;
    for (size_t bytes = 1; bytes <= 64 * MIB; bytes *= 4) {
        errno = ERRNO_MARK;
        void *block = malloc(bytes);
        assert_int_equal(errno, ERRNO_MARK);
        block = realloc(block, bytes * 2);
        assert_int_equal(errno, ERRNO_MARK);
        assert_true(malloc_usable_size(block) >= bytes * 2);
        assert_int_equal(errno, ERRNO_MARK);
        free(block);
        assert_int_equal(errno, ERRNO_MARK);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_sizes_give_enomem),
        cmocka_unit_test(impossible_alignments_give_enomem_or_einval),
        cmocka_unit_test(overflowing_products_give_enomem),
        cmocka_unit_test(realloc_that_fails_leaves_the_block),
        cmocka_unit_test(posix_memalign_returns_einval_and_touches_nothing),
        cmocka_unit_test(posix_memalign_returns_enomem_and_touches_nothing),
        cmocka_unit_test(free_keeps_errno),
        cmocka_unit_test(free_keeps_errno_while_it_gives_memory_back),
        cmocka_unit_test(success_keeps_errno),
    };
    return cmocka_run_group_tests_name("errno", tests, NULL, heap_is_sound);
}
