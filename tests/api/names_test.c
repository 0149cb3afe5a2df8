/*
 * names_test.c - the names that not every libc has: cfree, free_sized, free_aligned_sized, the __libc_
 * aliases.
 *
 * Each is called and must work on the same heap as malloc and free.
 */
#include "support/pattern.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUIRE_FUNCTION(pointer, name)                                                                      \
    void *symbol_##pointer = function_named(name);                                                           \
    if (symbol_##pointer == NULL) {                                                                          \
        assert_false(hak_is_there());                                                                        \
        SKIP_BECAUSE("this libc has no " name);                                                              \
    }                                                                                                        \
    memcpy(&(pointer), &symbol_##pointer, sizeof symbol_##pointer)

/* Through pointers: from the names, compilers conclude that the alignment is as asked for. */
static void *(*volatile opaque_aligned_alloc)(size_t, size_t) = aligned_alloc;

static const size_t sizes[] = {0, 1, 16, 100, 1024, 5000, 32768, 40000, 200000, 1 << 20, 3 << 20};

static void assert_freed(const void *block) {
    if (hak_is_there()) {
        assert_false(hak_owns(block));
    }
}

static void cfree_frees(void **state) {
    (void)state;
    void (*cfree_)(void *);
    REQUIRE_FUNCTION(cfree_, "cfree");
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *block = malloc(sizes[i]);
        assert_non_null(block);
        errno = 77;
        cfree_(block);
        assert_int_equal(errno, 77);
        assert_freed(block);
    }
    cfree_(NULL);
}

static void free_sized_frees(void **state) {
    (void)state;
    void (*free_sized_)(void *, size_t);
    REQUIRE_FUNCTION(free_sized_, "free_sized");
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *block = malloc(sizes[i]);
        void *cleared = calloc(sizes[i], 1);
        void *resized = realloc(malloc(10), sizes[i] + 1);
        assert_true(block != NULL && cleared != NULL && resized != NULL);
        errno = 77;
        free_sized_(block, sizes[i]);
        free_sized_(cleared, sizes[i]);
        free_sized_(resized, sizes[i] + 1);
        assert_int_equal(errno, 77);
        assert_freed(block);
        assert_freed(cleared);
        assert_freed(resized);
    }
    free_sized_(NULL, 100);
}

static void (*free_sized_of_a_fresh_thread)(void *, size_t);

static void *free_sized_first(void *block) {
    free_sized_of_a_fresh_thread(block, 100);
    return NULL;
}

/* A thread without a heap takes another way than one with. */
static void free_sized_frees_in_a_thread_that_never_allocated(void **state) {
    (void)state;
    REQUIRE_FUNCTION(free_sized_of_a_fresh_thread, "free_sized");
    pthread_t thread;
    void *block = malloc(100);
    assert_non_null(block);
    assert_int_equal(pthread_create(&thread, NULL, free_sized_first, block), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_freed(block);
}

static void free_aligned_sized_frees(void **state) {
    (void)state;
    void (*free_aligned_sized_)(void *, size_t, size_t);
    REQUIRE_FUNCTION(free_aligned_sized_, "free_aligned_sized");
    for (size_t alignment = 8; alignment <= 2 * MIB; alignment *= 4) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            void *block = opaque_aligned_alloc(alignment, sizes[i]);
            assert_non_null(block);
            errno = 77;
            free_aligned_sized_(block, alignment, sizes[i]);
            assert_int_equal(errno, 77);
            assert_freed(block);
        }
    }
    free_aligned_sized_(NULL, 64, 100);
}

static void libc_malloc_calloc_realloc_free_share_the_heap(void **state) {
    (void)state;
    void *(*libc_malloc)(size_t);
    void *(*libc_calloc)(size_t, size_t);
    void *(*libc_realloc)(void *, size_t);
    void (*libc_free)(void *);
    REQUIRE_FUNCTION(libc_malloc, "__libc_malloc");
    REQUIRE_FUNCTION(libc_calloc, "__libc_calloc");
    REQUIRE_FUNCTION(libc_realloc, "__libc_realloc");
    REQUIRE_FUNCTION(libc_free, "__libc_free");
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *first = libc_malloc(sizes[i]);
        char *second = libc_calloc(1, sizes[i]);
        assert_true(first != NULL && second != NULL);
        assert_true(bytes_are(second, sizes[i], 0));
        pattern_fill(first, sizes[i], i);
        char *third = libc_realloc(first, sizes[i] + 5000);
        assert_non_null(third);
        assert_true(pattern_holds(third, sizes[i], i));
        free(second);
        libc_free(third);
        libc_free(malloc(sizes[i]));
    }
    errno = 0;
    assert_null(libc_malloc(SIZE_MAX / 2 + 1));
    assert_int_equal(errno, ENOMEM);
}

static void libc_aligned_aliases_share_the_heap(void **state) {
    (void)state;
    void *(*libc_memalign)(size_t, size_t);
    void *(*libc_valloc)(size_t);
    void *(*libc_pvalloc)(size_t);
    REQUIRE_FUNCTION(libc_memalign, "__libc_memalign");
    REQUIRE_FUNCTION(libc_valloc, "__libc_valloc");
    REQUIRE_FUNCTION(libc_pvalloc, "__libc_pvalloc");
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *block = libc_memalign(256, sizes[i]);
        void *page = libc_valloc(sizes[i]);
        void *pages = libc_pvalloc(sizes[i]);
        assert_true(block != NULL && page != NULL && pages != NULL);
        assert_int_equal((uintptr_t)block % 256, 0);
        assert_int_equal((uintptr_t)page % page_bytes, 0);
        assert_int_equal((uintptr_t)pages % page_bytes, 0);
        assert_true(malloc_usable_size(pages) >= (sizes[i] + page_bytes - 1) / page_bytes * page_bytes);
        free(block);
        free(page);
        free(pages);
    }
}

static void posix_memalign_alias_works(void **state) {
    (void)state;
    int (*alias)(void **, size_t, size_t);
    REQUIRE_FUNCTION(alias, "__posix_memalign");
    void *block = NULL;
    assert_int_equal(alias(&block, 128, 1000), 0);
    assert_int_equal((uintptr_t)block % 128, 0);
    free(block);
    assert_int_equal(alias(&block, 24, 1000), EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cfree_frees),
        cmocka_unit_test(free_sized_frees),
        cmocka_unit_test(free_sized_frees_in_a_thread_that_never_allocated),
        cmocka_unit_test(free_aligned_sized_frees),
        cmocka_unit_test(libc_malloc_calloc_realloc_free_share_the_heap),
        cmocka_unit_test(libc_aligned_aliases_share_the_heap),
        cmocka_unit_test(posix_memalign_alias_works),
    };
    return cmocka_run_group_tests_name("names", tests, NULL, heap_is_sound);
}
