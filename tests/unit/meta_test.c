/*
 * meta_test.c - the meta floor: size classes, metadata arenas, the registry and its exact division.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "heap/front.h"
#include "heap/requests.h"
#include "meta/arena.h"
#include "meta/classes.h"
#include "meta/registry.h"
#include "support/test.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void every_size_gets_the_smallest_class_that_holds_it(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes <= HAK_MID_MAX_BYTES; bytes++) {
        unsigned c = hak_class_of(bytes);
        assert_in_range(c, 0, HAK_CLASS_COUNT - 1);
        assert_true(hak_class_block_bytes[c] >= bytes);
        assert_true(c == 0 || hak_class_block_bytes[c - 1] < bytes);
    }
}

/* Looked for one by one. */
static size_t smallest_aligned_class(size_t align, size_t bytes) {
    unsigned c = 0;
    while (hak_class_block_bytes[c] < bytes || hak_class_block_bytes[c] % align != 0) {
        c++;
    }
    return hak_class_block_bytes[c];
}

static void an_aligned_request_gets_the_smallest_class_that_is_aligned(void **state) {
    (void)state;
    for (size_t align = HAK_ALIGN_BYTES; align <= HAK_MID_MAX_BYTES; align *= 2) {
        for (size_t bytes = 1; bytes <= HAK_MID_MAX_BYTES; bytes++) {
            size_t class_bytes = hak_request_class_bytes(align, bytes);
            assert_true(class_bytes == smallest_aligned_class(align, bytes));
        }
        assert_true(hak_request_class_bytes(align, HAK_MID_MAX_BYTES + 1) == 0);
        assert_true(hak_request_class_bytes(align, 0) == hak_request_class_bytes(align, 1));
    }
    assert_true(hak_request_class_bytes(2 * HAK_MID_MAX_BYTES, 1) == 0);
}

#define SMALLEST_PAGE_BYTES 4096u

/* Whole OS pages at the end of a slab are never touched: they waste no memory. */
static void classes_waste_little(void **state) {
    (void)state;
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        size_t slab_bytes = hak_class_units[c] * HAK_UNIT_BYTES;
        size_t left_bytes = slab_bytes - hak_class_capacity(c) * hak_class_block_bytes[c];
        assert_true(left_bytes % SMALLEST_PAGE_BYTES * 1000 < slab_bytes * 25);
        assert_int_equal(hak_class_block_bytes[c] % HAK_ALIGN_BYTES, 0);
    }
}

/* Whether the division says of the offset in its slab what is so. */
static bool is_divided(unsigned class_idx, size_t offset, uint64_t reciprocal) {
    unsigned __int128 product = (unsigned __int128)offset * reciprocal;
    bool is_exact = (uint64_t)product >> HAK_EXACT_SHIFT == 0;
    size_t block_bytes = hak_class_block_bytes[class_idx];
    return is_exact == (offset % block_bytes == 0) &&
           (!is_exact || (uint64_t)(product >> 64) == offset / block_bytes);
}

/* For each class and every offset in its slab: inexact between blocks, and the right number at their starts.
 */
static void division_is_exact_for_every_offset(void **state) {
    (void)state;
    hak_registry_init();
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        for (unsigned unit = 0; unit < hak_class_units[c]; unit++) {
            const struct hak_registry_row *row = hak_word_row(hak_word_for_slab(c, unit, NULL, 0));
            assert_int_equal(row->class_idx, c);
            assert_int_equal(row->offset_bias, unit * HAK_UNIT_BYTES);
            for (size_t offset = 0; offset < HAK_UNIT_BYTES; offset++) {
                if (!is_divided(c, offset + row->offset_bias, hak_registry.reciprocal[c])) {
                    fail_msg("class %u, offset %zu", c, offset + row->offset_bias);
                }
            }
        }
    }
}

/* Free reads the upper half of the reciprocal together with what lies before it. */
static void division_in_a_first_unit_is_exact_whatever_the_lower_half(void **state) {
    (void)state;
    const uint64_t lowers[] = {0, UINT32_MAX};
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        uint64_t upper = (uint64_t)hak_reciprocal_upper(hak_class_reciprocal(c)) << 32;
        for (size_t offset = 0; offset < HAK_UNIT_BYTES; offset++) {
            for (unsigned i = 0; i < sizeof lowers / sizeof lowers[0]; i++) {
                if (!is_divided(c, offset, upper | lowers[i])) {
                    fail_msg("class %u, offset %zu, lower half %#jx", c, offset, (uintmax_t)lowers[i]);
                }
            }
        }
    }
}

static void words_keep_address_kind_and_number(void **state) {
    (void)state;
    const void *record = (const void *)(uintptr_t)0x7123456789C0;
    hak_word word = hak_word_for_record(HAK_KIND_MAPPED, record);
    assert_int_equal(hak_word_kind(word), HAK_KIND_MAPPED);
    assert_ptr_equal(hak_word_address(word), record);
    word = hak_word_for_number(HAK_KIND_LARGE_FREED, ((uint64_t)1 << 48) - 1);
    assert_int_equal(hak_word_kind(word), HAK_KIND_LARGE_FREED);
    assert_int_equal(hak_word_number(word), ((uint64_t)1 << 48) - 1);
    assert_int_equal(hak_word_kind(0), HAK_KIND_NONE);
}

static void any_pointer_value_may_be_looked_up(void **state) {
    (void)state;
    const uintptr_t wild[] = {0,
                              1,
                              0xFFFF,
                              0x10000,
                              UINT32_MAX,
                              0x7FFFFFFF,
                              UINTPTR_MAX,
                              (uintptr_t)1 << 47,
                              (uintptr_t)1 << 48,
                              0x8000000000000000u};
    for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
        assert_int_equal(hak_registry_word((const void *)wild[i]), 0);
    }
    for (unsigned shift = 0; shift < 64; shift++) {
        assert_int_equal(hak_registry_word((const void *)((uintptr_t)3 << shift)), 0);
    }
}

/* Addresses that nothing of ours is at: two granules of 4 GiB, the second not the home. */
static void stored_words_are_found_in_any_leaf(void **state) {
    (void)state;
    for (uintptr_t base = (uintptr_t)0x100 << 32; base <= (uintptr_t)0x103 << 32;
         base += (uintptr_t)1 << 32) {
        const char *start = (const char *)(base + ((uintptr_t)1 << 32) - 2 * HAK_UNIT_BYTES);
        assert_int_equal(hak_registry_prepare(start, 4 * HAK_UNIT_BYTES), 0);
        hak_registry_fill(start, 4, hak_word_for_number(HAK_KIND_LARGE_FREED, base >> 32));
        for (unsigned unit = 0; unit < 4; unit++) {
            const char *p = start + unit * HAK_UNIT_BYTES;
            assert_int_equal(hak_word_number(hak_registry_word(p)), base >> 32);
            assert_int_equal(hak_word_number(hak_registry_word(p + HAK_UNIT_BYTES - 1)), base >> 32);
        }
        assert_int_equal(hak_registry_word(start - 1), 0);
        assert_int_equal(hak_registry_word(start + 4 * HAK_UNIT_BYTES), 0);
        hak_registry_fill(start, 4, 0);
    }
}

/* Two units side by side, of two classes: each has its own. */
static void check_reciprocals_at(const char *units, unsigned class_idx) {
    unsigned other_idx = (class_idx + 1) % HAK_CLASS_COUNT;
    hak_registry_store(units, hak_word_for_slab(class_idx, 0, NULL, 1));
    hak_registry_store(units + HAK_UNIT_BYTES, hak_word_for_slab(other_idx, 0, NULL, 1));
    struct hak_at first = hak_registry_at(&hak_registry, units);
    struct hak_at second = hak_registry_at(&hak_registry, units + HAK_UNIT_BYTES);
    assert_int_equal(first.word, hak_word_for_slab(class_idx, 0, NULL, 1));
    assert_int_equal(first.reciprocal >> 32, hak_reciprocal_upper(hak_class_reciprocal(class_idx)));
    assert_int_equal(second.reciprocal >> 32, hak_reciprocal_upper(hak_class_reciprocal(other_idx)));
    hak_registry_fill(units, 2, 0);
}

/* Abroad and at home, in the first and the last units of a leaf too. */
static void a_slabs_reciprocal_lies_beside_its_word(void **state) {
    (void)state;
    hak_free(hak_malloc(100));
    /* relaxed: one thread */
    uintptr_t home = 0 - hak_atomic_load_relaxed(&hak_registry_minus_home);
    const uintptr_t leaves[] = {(uintptr_t)0x104 << 32, home};
    const size_t numbers[] = {0, HAK_LEAF_UNITS / 2, HAK_LEAF_UNITS - 2};
    for (unsigned i = 0; i < 6; i++) {
        const char *units = (const char *)leaves[i / 3] + numbers[i % 3] * HAK_UNIT_BYTES;
        assert_int_equal(hak_registry_prepare(units, 2 * HAK_UNIT_BYTES), 0);
        bool is_free = hak_registry_word(units) == 0 && hak_registry_word(units + HAK_UNIT_BYTES) == 0;
        for (unsigned c = 0; c < HAK_CLASS_COUNT && is_free; c++) {
            check_reciprocals_at(units, c);
        }
    }
}

/* Where nearly all blocks are, looked up without a load that waits for the pointer. */
static void the_first_leaf_is_home(void **state) {
    (void)state;
    char *block = hak_malloc(100);
    /* relaxed: one thread */
    uintptr_t offset = (uintptr_t)block + hak_atomic_load_relaxed(&hak_registry_minus_home);
    assert_in_range(offset >> HAK_UNIT_SHIFT, 0, HAK_LEAF_UNITS - 1);
    hak_free(block);
}

static int sum_up(void *start, size_t bytes, void *sum_bytes) {
    assert_non_null(start);
    *(size_t *)sum_bytes += bytes;
    return 0;
}

static int count_one(void *start, size_t bytes, void *count) {
    (void)start;
    (void)bytes;
    ++*(unsigned *)count;
    return 1;
}

/* The home ends there: the first unit of the next leaf is not looked up in it. */
static void the_unit_behind_the_home_is_in_the_next_leaf(void **state) {
    (void)state;
    hak_free(hak_malloc(100));
    /* relaxed: one thread */
    uintptr_t behind = ((uintptr_t)1 << HAK_LEAF_SHIFT) - hak_atomic_load_relaxed(&hak_registry_minus_home);
    if (!hak_registry_covers((const void *)behind)) {
        skip();
    }
    assert_int_equal(hak_registry_prepare((const void *)behind, HAK_UNIT_BYTES), 0);
    hak_registry_store((const void *)behind, hak_word_for_number(HAK_KIND_LARGE_FREED, 1234));
    assert_int_equal(hak_word_number(hak_registry_word((const void *)behind)), 1234);
    hak_registry_store((const void *)behind, 0);
}

static void all_leaves_but_the_home_are_mapped_memory(void **state) {
    size_t visited_bytes = 0;
    unsigned visits = 0;
    (void)state;
    assert_int_equal(hak_registry_prepare((const void *)((uintptr_t)0x105 << 32), HAK_UNIT_BYTES), 0);
    assert_int_equal(hak_registry_prepare((const void *)((uintptr_t)0x107 << 32), HAK_UNIT_BYTES), 0);
    hak_registry_visit_mapped(sum_up, &visited_bytes);
    assert_in_range(visited_bytes, 2 * HAK_LEAF_UNITS * sizeof(hak_word), hak_registry_mapped_bytes());
    hak_registry_visit_mapped(count_one, &visits);
    assert_int_equal(visits, 1);
}

static void metadata_is_zeroed_aligned_and_disjoint(void **state) {
    (void)state;
    enum { COUNT = 400 };
    static unsigned char *memory[COUNT];
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            size_t bytes = 1 + (size_t)i * 37 % 5000;
            memory[i] = hak_meta_alloc(bytes);
            assert_non_null(memory[i]);
            assert_int_equal((uintptr_t)memory[i] % HAK_CACHE_LINE_BYTES, 0);
            for (size_t k = 0; k < bytes; k++) {
                assert_int_equal(memory[i][k], 0);
            }
            memset(memory[i], (int)(i | 1), bytes);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            size_t bytes = 1 + (size_t)i * 37 % 5000;
            assert_int_equal(memory[i][0], (unsigned char)(i | 1));
            assert_int_equal(memory[i][bytes - 1], (unsigned char)(i | 1));
            hak_meta_free(memory[i], bytes);
        }
    }
}

/* A cache that grows in steps, as long as its thread lives; the next thread has one like it. */
static void grow_and_end(size_t first_bytes, size_t most_bytes) {
    size_t bytes = first_bytes;
    void *array = hak_meta_alloc(bytes);
    while (bytes < most_bytes) {
        size_t larger_bytes = bytes * 2 < most_bytes ? bytes * 2 : most_bytes;
        void *larger = hak_meta_alloc(larger_bytes);
        assert_non_null(larger);
        hak_meta_free(array, bytes);
        array = larger;
        bytes = larger_bytes;
    }
    hak_meta_free(array, bytes);
}

static void what_comes_and_goes_serves_again(void **state) {
    (void)state;
    static const size_t most_bytes[] = {8192, 16384, 32768, 65536, 43712, 21888, 10944, 5504, 5184};
    size_t first_mapped_bytes = 0; /* once what earlier tests left has been cut up */
    for (unsigned round = 0; round < 200; round++) {
        for (size_t i = 0; i < COUNT_OF(most_bytes); i++) {
            grow_and_end(512, most_bytes[i * 4 % COUNT_OF(most_bytes)]);
        }
        first_mapped_bytes = round == 10 ? hak_meta_mapped_bytes() : first_mapped_bytes;
    }
    assert_int_equal(hak_meta_mapped_bytes(), first_mapped_bytes);
}

/* Of what was large all can be had in small pieces, before more is mapped. */
static void large_pieces_are_split_before_more_is_mapped(void **state) {
    (void)state;
    enum { LARGE = 40, LINES = 1024, SMALL = LARGE * LINES };
    static void *large[LARGE], *small[SMALL];
    for (unsigned i = 0; i < LARGE; i++) {
        large[i] = hak_meta_alloc(HAK_META_BYTES_MAX);
        assert_non_null(large[i]);
    }
    for (unsigned i = 0; i < LARGE; i++) {
        hak_meta_free(large[i], HAK_META_BYTES_MAX);
    }
    size_t mapped_bytes = hak_meta_mapped_bytes();
    for (unsigned i = 0; i < SMALL; i++) {
        small[i] = hak_meta_alloc(HAK_META_BYTES_MAX / LINES);
        assert_non_null(small[i]);
    }
    assert_int_equal(hak_meta_mapped_bytes(), mapped_bytes);
    for (unsigned i = 0; i < SMALL; i++) {
        hak_meta_free(small[i], HAK_META_BYTES_MAX / LINES);
    }
}

/* Another thread's allocation, that comes when this one has found nothing left and is at the kernel. */
static bool is_overtaken;
static bool is_refused; /* what this one asks the kernel for then */
static void *taken_by_other;

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (is_overtaken) {
        is_overtaken = false;
        taken_by_other = hak_meta_alloc(HAK_META_BYTES_MAX);
        if (is_refused) {
            is_refused = false;
            errno = ENOMEM;
            return MAP_FAILED;
        }
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

/* Both then bring memory, of which one is enough. */
static void two_threads_may_bring_memory_at_once(void **state) {
    (void)state;
    enum { OF_ONE_CHUNK = 15 };
    const size_t chunk_bytes = (size_t)1024 * 1024, guarded_bytes = chunk_bytes + 2 * hak_os_page_bytes();
    void *first = NULL;
    size_t before_bytes = 0, before_visited_bytes = 0, visited_bytes = 0;
    is_overtaken = true;
    while (is_overtaken) {
        before_bytes = hak_meta_mapped_bytes();
        before_visited_bytes = 0;
        hak_meta_visit_mapped(sum_up, &before_visited_bytes);
        first = hak_meta_alloc(HAK_META_BYTES_MAX);
        assert_non_null(first);
    }
    assert_non_null(taken_by_other);
    assert_int_equal(hak_meta_mapped_bytes(), before_bytes + guarded_bytes);
    hak_meta_visit_mapped(sum_up, &visited_bytes);
    assert_int_equal(visited_bytes, before_visited_bytes + chunk_bytes);
    for (unsigned i = 2; i < OF_ONE_CHUNK; i++) {
        assert_non_null(hak_meta_alloc(HAK_META_BYTES_MAX));
    }
    assert_int_equal(hak_meta_mapped_bytes(), before_bytes + guarded_bytes);
    hak_meta_free(first, HAK_META_BYTES_MAX);
    hak_meta_free(taken_by_other, HAK_META_BYTES_MAX);
}

static void memory_that_another_thread_brought_serves_who_got_none(void **state) {
    (void)state;
    is_overtaken = is_refused = true;
    while (is_overtaken) {
        assert_non_null(hak_meta_alloc(HAK_META_BYTES_MAX));
    }
    assert_false(is_refused);
    hak_meta_free(taken_by_other, HAK_META_BYTES_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_gets_the_smallest_class_that_holds_it),
        cmocka_unit_test(an_aligned_request_gets_the_smallest_class_that_is_aligned),
        cmocka_unit_test(classes_waste_little),
        cmocka_unit_test(division_is_exact_for_every_offset),
        cmocka_unit_test(division_in_a_first_unit_is_exact_whatever_the_lower_half),
        cmocka_unit_test(words_keep_address_kind_and_number),
        cmocka_unit_test(any_pointer_value_may_be_looked_up),
        cmocka_unit_test(stored_words_are_found_in_any_leaf),
        cmocka_unit_test(a_slabs_reciprocal_lies_beside_its_word),
        cmocka_unit_test(the_first_leaf_is_home),
        cmocka_unit_test(the_unit_behind_the_home_is_in_the_next_leaf),
        cmocka_unit_test(all_leaves_but_the_home_are_mapped_memory),
        cmocka_unit_test(metadata_is_zeroed_aligned_and_disjoint),
        cmocka_unit_test(what_comes_and_goes_serves_again),
        cmocka_unit_test(large_pieces_are_split_before_more_is_mapped),
        cmocka_unit_test(two_threads_may_bring_memory_at_once),
        cmocka_unit_test(memory_that_another_thread_brought_serves_who_got_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
