/*
 * hakmem_test.c - the hak_ interface of hakmem.h: allocation, good_size, owns, walk, verify, trim, versions.
 */
#include "support/pattern.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t sizes[] = {0,     1,     16,    17,     100,    1000,    1024,    1025,    4096,
                               10000, 32768, 32769, 100000, 300000, 1 << 20, 2 << 20, 5 << 20, 30 << 20};

static void version_is_that_of_the_header(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_int_equal(hak_version(), HAK_VERSION_MAJOR * 10000 + HAK_VERSION_MINOR * 100 + HAK_VERSION_PATCH);
}

static void hak_and_libc_names_share_one_heap(void **state) {
    (void)state;
    REQUIRE_HAK();
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        free(hak_malloc(sizes[i]));
        hak_free(malloc(sizes[i]));
        char *block = hak_realloc(malloc(50), sizes[i] + 1);
        assert_non_null(block);
        assert_int_equal(hak_usable_size(block), malloc_usable_size(block));
        block = realloc(block, sizes[i] + 2);
        hak_free(block);
        char *cleared = hak_calloc(2, sizes[i]);
        assert_non_null(cleared);
        assert_true(bytes_are(cleared, 2 * sizes[i], 0));
        free(cleared);
    }
    hak_free(NULL);
    assert_int_equal(hak_usable_size(NULL), 0);
}

static void hak_functions_fail_as_documented(void **state) {
    (void)state;
    REQUIRE_HAK();
    errno = 0;
    assert_null(hak_malloc(SIZE_MAX));
    assert_int_equal(errno, ENOMEM);
    errno = 0;
    assert_null(hak_calloc(SIZE_MAX / 2, 3));
    assert_int_equal(errno, ENOMEM);
    void *block = hak_malloc(10);
    errno = 0;
    assert_null(hak_realloc(block, (size_t)PTRDIFF_MAX + 1));
    assert_int_equal(errno, ENOMEM);
    assert_null(hak_realloc(block, 0));
    assert_false(hak_owns(block));
    static const size_t not_powers[] = {0, 3, 24, 4097, SIZE_MAX};
    for (size_t i = 0; i < COUNT_OF(not_powers); i++) {
        errno = 0;
        assert_null(hak_aligned_alloc(not_powers[i], 100));
        assert_int_equal(errno, EINVAL);
    }
    for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 2) {
        block = hak_aligned_alloc(alignment, 100);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % alignment, 0);
        hak_free(block);
    }
}

static void good_size_is_the_usable_size_of_a_block(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct rng rng = rng_seeded(21);
    for (size_t i = 0; i < 75000; i++) {
        size_t bytes = i < 70000 ? i : rng_log_between(&rng, 70000, 64 * MIB);
        void *block = hak_malloc(bytes);
        assert_non_null(block);
        size_t good_bytes = hak_good_size(bytes);
        size_t more_bytes = hak_usable_size(block) - good_bytes;
        assert_true(more_bytes == 0 || (bytes >= MIB && more_bytes < bytes / 4 && more_bytes < MIB) ||
                    (bytes > 32 * KIB && more_bytes <= 3 * good_bytes && good_bytes + more_bytes <= MIB));
        hak_free(block);
    }
    assert_int_equal(hak_good_size(SIZE_MAX), SIZE_MAX);
    assert_int_equal(hak_good_size((size_t)PTRDIFF_MAX + 1), (size_t)PTRDIFF_MAX + 1);
}

/* Of the sizes that blocks have, the least that holds the bytes and is a multiple of the alignment. */
static void an_aligned_block_is_no_longer_than_need_be(void **state) {
    (void)state;
    REQUIRE_HAK();
    if (hak_good_size(17) == 17) {
        skip(); /* checked mode: blocks end where they were asked to */
    }
    for (size_t alignment = 32; alignment <= 32 * KIB; alignment *= 2) {
        for (size_t bytes = 0; bytes <= 32 * KIB; bytes += bytes < 1100 ? 1 : 333) {
            size_t least_bytes = hak_good_size(bytes);
            while (least_bytes % alignment != 0) {
                least_bytes = hak_good_size(least_bytes + 1);
            }
            void *block = hak_aligned_alloc(alignment, bytes);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_int_equal(hak_usable_size(block), least_bytes);
            hak_free(block);
        }
    }
}

static void owns_knows_live_blocks_and_nothing_else(void **state) {
    (void)state;
    REQUIRE_HAK();
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *block = hak_malloc(sizes[i]);
        size_t room = hak_usable_size(block);
        assert_true(hak_owns(block));
        assert_false(hak_owns(block + 1));
        assert_false(hak_owns(block + 8));
        assert_false(hak_owns(block + room - 1));
        if (room > 16) {
            assert_false(hak_owns(block + 16));
            assert_false(hak_owns(block + room / 2));
        }
        assert_false(hak_owns((void *)((uintptr_t)block | (uintptr_t)0x5A << 56)));
        assert_false(hak_owns((void *)((uintptr_t)block | (uintptr_t)1 << 47)));
        assert_false(hak_owns((void *)((uintptr_t)block | (uintptr_t)1 << 63)));
        hak_free(block);
        assert_false(hak_owns(block));
    }
}

static void owns_answers_for_any_pointer_value(void **state) {
    (void)state;
    REQUIRE_HAK();
    static char in_static[64];
    char on_stack[64];
    void *mapped = mmap(NULL, 4 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mapped != MAP_FAILED);
    const void *const foreign[] = {NULL,
                                   (void *)1,
                                   (void *)16,
                                   (void *)4096,
                                   in_static,
                                   on_stack,
                                   mapped,
                                   (char *)mapped + 2 * MIB,
                                   (void *)(uintptr_t)owns_answers_for_any_pointer_value,
                                   (void *)0x7fffffffffffu,
                                   (void *)0x800000000000u,
                                   (void *)0xffff800000000000u,
                                   (void *)0xffffffffff600000u,
                                   (void *)UINTPTR_MAX,
                                   (void *)(UINTPTR_MAX - 15)};
    for (size_t i = 0; i < COUNT_OF(foreign); i++) {
        assert_false(hak_owns(foreign[i]));
    }
    struct rng rng = rng_seeded(22);
    size_t owned = 0;
    for (unsigned i = 0; i < 1000000; i++) {
        owned += hak_owns((void *)(rng_next(&rng) >> rng_below(&rng, 48)));
    }
    assert_int_equal(owned, 0);
    munmap(mapped, 4 * MIB);
}

enum { WALK_BLOCKS = 3000 };

struct walk {
    void *mine[WALK_BLOCKS];
    unsigned char seen[WALK_BLOCKS];
    size_t visited, wrong_size, limit;
};
static struct walk walk; /* static: a visitor must not allocate */

static int remember_visit(void *block, size_t usable_bytes, void *context) {
    struct walk *it = context;
    for (size_t i = 0; i < WALK_BLOCKS; i++) {
        if (it->mine[i] == block) {
            it->seen[i]++;
        }
    }
    it->wrong_size += usable_bytes != hak_usable_size(block);
    return ++it->visited == it->limit ? 42 : 0;
}

static void heap_walk_visits_each_live_block_once(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct rng rng = rng_seeded(23);
    memset(&walk, 0, sizeof walk);
    for (size_t i = 0; i < WALK_BLOCKS; i++) {
        walk.mine[i] = malloc(i < COUNT_OF(sizes) ? sizes[i] : rng_log_between(&rng, 1, 50000));
        assert_non_null(walk.mine[i]);
    }
    for (size_t i = 0; i < WALK_BLOCKS; i += 3) {
        free(walk.mine[i]);
    }
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    assert_int_equal(hak_stats_get(&stats), 0);
    assert_int_equal(hak_heap_walk(remember_visit, &walk), 0);
    assert_int_equal(walk.wrong_size, 0);
    assert_int_equal(walk.visited, stats.live_blocks);
    for (size_t i = 0; i < WALK_BLOCKS; i++) {
        assert_int_equal(walk.seen[i], i % 3 != 0);
        if (i % 3 != 0) {
            free(walk.mine[i]);
        }
    }
    memset(walk.seen, 0, sizeof walk.seen);
    assert_int_equal(hak_heap_walk(remember_visit, &walk), 0);
    assert_true(bytes_are(walk.seen, sizeof walk.seen, 0));
}

static void heap_walk_ends_when_the_visitor_says_so(void **state) {
    (void)state;
    REQUIRE_HAK();
    void *blocks[20];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = malloc(100);
    }
    memset(&walk, 0, sizeof walk);
    walk.limit = 5;
    assert_int_equal(hak_heap_walk(remember_visit, &walk), 42);
    assert_int_equal(walk.visited, 5);
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        free(blocks[i]);
    }
}

static void verify_finds_a_sound_heap_sound(void **state) {
    (void)state;
    REQUIRE_HAK();
    char why[64];
    assert_int_equal(hak_verify(NULL, 0), 0);
    assert_int_equal(hak_verify(why, sizeof why), 0);
    assert_int_equal(hak_verify(why, 1), 0);
}

static void trim_gives_memory_back_and_says_so(void **state) {
    (void)state;
    REQUIRE_HAK();
    enum { COUNT = 40000 };
    struct hak_stats before = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof before};
    void **blocks = malloc(COUNT * sizeof *blocks);
    assert_non_null(blocks);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = malloc(500);
        assert_non_null(blocks[i]);
        memset(blocks[i], 1, 500);
    }
    assert_int_equal(hak_stats_get(&before), 0);
    for (size_t i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    free(blocks);
    struct hak_stats after = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof after};
    assert_true(hak_trim(0));
    assert_int_equal(hak_stats_get(&after), 0);
    assert_true(before.resident_bytes >= COUNT * (size_t)500);
    assert_true(after.resident_bytes < before.resident_bytes - 18000000);
    assert_false(hak_trim(0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_is_that_of_the_header),
        cmocka_unit_test(hak_and_libc_names_share_one_heap),
        cmocka_unit_test(hak_functions_fail_as_documented),
        cmocka_unit_test(good_size_is_the_usable_size_of_a_block),
        cmocka_unit_test(an_aligned_block_is_no_longer_than_need_be),
        cmocka_unit_test(owns_knows_live_blocks_and_nothing_else),
        cmocka_unit_test(owns_answers_for_any_pointer_value),
        cmocka_unit_test(heap_walk_visits_each_live_block_once),
        cmocka_unit_test(heap_walk_ends_when_the_visitor_says_so),
        cmocka_unit_test(verify_finds_a_sound_heap_sound),
        cmocka_unit_test(trim_gives_memory_back_and_says_so),
    };
    return cmocka_run_group_tests_name("hakmem", tests, NULL, heap_is_sound);
}
