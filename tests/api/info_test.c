/*
 * info_test.c - mallinfo, mallinfo2, malloc_info, malloc_stats and mallopt: they tell the truth and add up.
 *
 * Cases that change a setting run in a child, so that the others do not see it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define BLOCKS 2000

static struct child child;
static void *blocks[BLOCKS];

/* Allocates BLOCKS blocks and returns the sum of their usable sizes. */
static size_t fill(size_t bytes) {
    size_t room = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(bytes);
        assert_non_null(blocks[i]);
        room += malloc_usable_size(blocks[i]);
    }
    return room;
}

static void empty(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
}

/* ---- mallinfo --------------------------------------------------------------------------------------- */

static void assert_adds_up(const struct mallinfo2 *info) {
    assert_int_equal(info->arena, info->uordblks + info->fordblks);
    assert_true(info->fsmblks <= info->fordblks);
    assert_true(info->keepcost <= info->fordblks);
    assert_int_equal(info->usmblks, 0);
}

static void mallinfo2_adds_up(void **state) {
    (void)state;
    struct mallinfo2 info = mallinfo2();
    assert_adds_up(&info);
    (void)fill(700);
    info = mallinfo2();
    assert_adds_up(&info);
    empty();
    info = mallinfo2();
    assert_adds_up(&info);
}

static void mallinfo2_is_what_is_mapped(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    (void)fill(5000);
    void *mapping = malloc(20 * MIB);
    struct mallinfo2 info = mallinfo2();
    assert_int_equal(hak_stats_get(&stats), 0);
    assert_int_equal(info.arena + info.hblkhd + stats.metadata_bytes, stats.mapped_bytes);
    assert_int_equal(info.uordblks + info.hblkhd, stats.live_bytes);
    assert_int_equal(info.fsmblks, stats.cached_bytes);
    free(mapping);
    empty();
}

static void mallinfo2_counts_live_bytes(void **state) {
    (void)state;
    REQUIRE_HAK();
    static const size_t sizes[] = {1, 100, 1024, 5000, 32768, 100000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct mallinfo2 before = mallinfo2();
        size_t room = fill(sizes[i]);
        struct mallinfo2 full = mallinfo2();
        if (library_is_debug()) { /* there, a block's usable size is not its class's */
            assert_true(full.uordblks - before.uordblks >= room);
        } else {
            assert_int_equal(full.uordblks - before.uordblks, room);
        }
        empty();
        struct mallinfo2 after = mallinfo2();
        assert_int_equal(after.uordblks, before.uordblks);
    }
}

static void mappings_are_counted_apart(void **state) {
    (void)state;
    struct mallinfo2 before = mallinfo2();
    void *block = malloc(40 * MIB);
    assert_non_null(block);
    struct mallinfo2 full = mallinfo2();
    assert_int_equal(full.hblks, before.hblks + 1);
    assert_in_range(full.hblkhd - before.hblkhd, 40 * MIB, 41 * MIB);
    assert_int_equal(full.uordblks, before.uordblks);
    free(block);
    struct mallinfo2 after = mallinfo2();
    assert_int_equal(after.hblks, before.hblks);
    assert_int_equal(after.hblkhd, before.hblkhd);
}

static void mallinfo_is_mallinfo2_with_less_room(void **state) {
    (void)state;
    struct mallinfo narrow = mallinfo();
    struct mallinfo2 wide = mallinfo2();
    assert_int_equal(narrow.arena, wide.arena);
    assert_int_equal(narrow.ordblks, wide.ordblks);
    assert_int_equal(narrow.uordblks, wide.uordblks);
    assert_int_equal(narrow.fordblks, wide.fordblks);
    assert_int_equal(narrow.fsmblks, wide.fsmblks);
    assert_int_equal(narrow.keepcost, wide.keepcost);
    REQUIRE_HAK();
    void *huge = malloc(3 * GIB);
    if (huge == NULL) {
        SKIP_BECAUSE("no 3 GiB of address space");
    }
    assert_int_equal(mallinfo().hblkhd, INT_MAX);
    assert_true(mallinfo2().hblkhd >= 3 * GIB);
    free(huge);
    (void)malloc_trim(0); /* or it goes back piece by piece, while the next test adds up */
}

/* ---- malloc_info ------------------------------------------------------------------------------------ */

static char xml[64 * KIB];

static void write_xml(void) {
    FILE *stream = fmemopen(xml, sizeof xml, "w");
    assert_non_null(stream);
    assert_int_equal(malloc_info(0, stream), 0);
    assert_int_equal(fclose(stream), 0);
}

/* The value of the attribute in the element that starts with `start`, looked for from `from` on. */
static size_t attribute(const char *from, const char *start, const char *name) {
    char pattern[32];
    const char *element = strstr(from, start);
    assert_non_null(element);
    snprintf(pattern, sizeof pattern, " %s=\"", name);
    const char *value = strstr(element, pattern);
    assert_non_null(value);
    assert_true(value < strchr(element, '>'));
    return strtoull(value + strlen(pattern), NULL, 10);
}

static void malloc_info_refuses_options(void **state) {
    (void)state;
    assert_int_equal(malloc_info(1, stdout), EINVAL);
    assert_int_equal(malloc_info(-1, stdout), EINVAL);
}

static void malloc_info_has_the_shape_of_glibc(void **state) {
    (void)state;
    static const char *const in_order[] = {
        "<malloc version=\"1\">\n",
        "<heap nr=\"0\">\n",
        "<sizes>\n",
        "</sizes>\n",
        "<total type=\"fast\" ",
        "<total type=\"rest\" ",
        "<system type=\"current\"",
        "<system type=\"max\"",
        "<aspace type=\"total\"",
        "<aspace type=\"mprotect\"",
        "</heap>\n",
        "<total type=\"fast\" ",
        "<total type=\"rest\" ",
        "<total type=\"mmap\" ",
        "<system type=\"current\"",
        "<system type=\"max\"",
        "<aspace type=\"total\"",
        "<aspace type=\"mprotect\"",
        "</malloc>\n",
    };
    (void)fill(300);
    write_xml();
    const char *position = xml;
    for (size_t i = 0; i < COUNT_OF(in_order); i++) {
        position = strstr(position, in_order[i]);
        assert_non_null(position);
        position += strlen(in_order[i]);
    }
    assert_string_equal(position, "");
    empty();
}

static void malloc_info_adds_up(void **state) {
    (void)state;
    REQUIRE_HAK();
    (void)fill(300);
    for (unsigned i = 0; i < BLOCKS; i += 2) {
        free(blocks[i]);
        blocks[i] = NULL;
    }
    void *mapping = malloc(10 * MIB);
    write_xml();
    struct mallinfo2 info = mallinfo2();
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    assert_int_equal(hak_stats_get(&stats), 0);
    const char *end = strstr(xml, "</heap>");
    size_t listed_blocks = 0;
    for (const char *size = strstr(xml, "<size "); size != NULL; size = strstr(size + 1, "<size ")) {
        size_t count = attribute(size, "<size ", "count");
        assert_int_equal(attribute(size, "<size ", "total"), count * attribute(size, "<size ", "to"));
        assert_true(attribute(size, "<size ", "from") <= attribute(size, "<size ", "to"));
        listed_blocks += count;
    }
    assert_true(listed_blocks >= BLOCKS / 2);
    assert_int_equal(attribute(end, "<total type=\"mmap\"", "count"), info.hblks);
    assert_int_equal(attribute(end, "<total type=\"mmap\"", "size"), info.hblkhd);
    assert_int_equal(attribute(end, "<aspace type=\"total\"", "size"), info.arena);
    assert_int_equal(attribute(end, "<system type=\"current\"", "size"), info.arena + info.hblkhd);
    assert_true(attribute(end, "<system type=\"max\"", "size") >= stats.mapped_bytes);
    free(mapping);
    empty();
}

static void malloc_info_says_when_it_cannot_write(void **state) {
    (void)state;
    REQUIRE_HAK();
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    setvbuf(full, NULL, _IONBF, 0);
    assert_int_equal(malloc_info(0, full), -1);
    (void)fclose(full);
}

/* ---- malloc_stats ----------------------------------------------------------------------------------- */

static int print_stats(void *context) {
    (void)context;
    (void)fill(1000);
    malloc_stats();
    struct mallinfo2 info = mallinfo2();
    printf("%zu %zu %zu\n", info.arena, info.uordblks, info.hblkhd);
    (void)fflush(stdout);
    return 0;
}

static void malloc_stats_says_the_same_as_mallinfo2(void **state) {
    (void)state;
    size_t system_bytes, used_bytes, all_system_bytes, all_used_bytes;
    size_t arena, uordblks, hblkhd;
    child = (struct child){.function = print_stats};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_int_equal(sscanf(child.out, "%zu %zu %zu", &arena, &uordblks, &hblkhd), 3);
    assert_int_equal(sscanf(child.err,
                            "Arena 0:\nsystem bytes = %zu\nin use bytes = %zu\nTotal (incl. mmap):\n"
                            "system bytes = %zu\nin use bytes = %zu\n",
                            &system_bytes, &used_bytes, &all_system_bytes, &all_used_bytes),
                     4);
    assert_int_equal(all_system_bytes - system_bytes, hblkhd);
    assert_int_equal(all_used_bytes - used_bytes, hblkhd);
    if (hak_is_there()) { /* glibc's printf has allocated a buffer between the two */
        assert_int_equal(system_bytes, arena);
        assert_in_range(used_bytes, BLOCKS * 1000, uordblks);
    }
}

/* ---- mallopt ---------------------------------------------------------------------------------------- */

static void mallopt_refuses_what_has_no_meaning_here(void **state) {
    (void)state;
    REQUIRE_HAK();
    static const int parameters[] = {M_MXFAST,       M_NLBLKS, M_GRAIN, M_KEEP,  M_TOP_PAD, M_MMAP_MAX,
                                     M_CHECK_ACTION, 0,        12345,   INT_MIN, INT_MAX};
    for (size_t i = 0; i < COUNT_OF(parameters); i++) {
        assert_int_equal(mallopt(parameters[i], 64), 0);
    }
    assert_int_equal(mallopt(M_MMAP_THRESHOLD, 32 * (int)MIB + 1), 0);
    assert_int_equal(mallopt(M_MMAP_THRESHOLD, -1), 0);
}

static void mallopt_accepts_arenas(void **state) {
    (void)state;
    assert_int_equal(mallopt(M_ARENA_MAX, 4), 1);
    assert_int_equal(mallopt(M_ARENA_TEST, 4), 1);
}

static int change_map_threshold(void *context) {
    (void)context;
    CHECK(mallopt(M_MMAP_THRESHOLD, 64 * (int)KIB) == 1);
    size_t mappings = mallinfo2().hblks;
    void *block = launder(malloc(200 * KIB));
    CHECK(mallinfo2().hblks == mappings + 1);
    free(block);
    CHECK(mallopt(M_MMAP_THRESHOLD, 32 * (int)MIB) == 1);
    mappings = mallinfo2().hblks;
    block = launder(malloc(1536 * KIB));
    CHECK(mallinfo2().hblks == mappings);
    free(block);
    return 0;
}

static void mmap_threshold_is_honoured(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(change_map_threshold);
}

/* Fills 48 MiB with 500-byte blocks, frees all of it, and returns by how much the arena has grown. */
static size_t bytes_kept_after_a_peak(void) {
    enum { COUNT = 48 * 1024 * 1024 / 512 };
    static void *peak[COUNT];
    malloc_trim(0);
    size_t before_bytes = mallinfo2().arena;
    for (unsigned i = 0; i < COUNT; i++) {
        peak[i] = malloc(500);
        CHECK(peak[i] != NULL);
        memset(peak[i], 1, 500);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        free(peak[i]);
    }
    size_t after_bytes = mallinfo2().arena;
    return after_bytes > before_bytes ? after_bytes - before_bytes : 0;
}

static int keep_everything(void *context) {
    (void)context;
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1);
    CHECK(bytes_kept_after_a_peak() >= 40 * MIB);
    return 0;
}

static int keep_next_to_nothing(void *context) {
    (void)context;
    CHECK(mallopt(M_TRIM_THRESHOLD, 64 * (int)KIB) == 1);
    CHECK(bytes_kept_after_a_peak() <= 4 * MIB);
    return 0;
}

static void trim_threshold_is_honoured(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(keep_everything);
    assert_function_succeeds(keep_next_to_nothing);
}

static bool is_filled(const unsigned char *block, size_t bytes, unsigned char value) {
    for (size_t i = 0; i < bytes; i++) {
        if (block[i] != value) {
            return false;
        }
    }
    return true;
}

static int perturb(void *context) {
    static const size_t sizes[] = {24, 100, 1000, 5000, 100000};
    (void)context;
    CHECK(mallopt(M_PERTURB, 0xA5) == 1);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        for (unsigned round = 0; round < 100; round++) {
            unsigned char *block = malloc(sizes[i]);
            CHECK(is_filled(block, sizes[i], 0x5A));
            free(block);
            block = calloc(1, sizes[i]);
            CHECK(is_filled(block, sizes[i], 0));
            unsigned char *freed = launder(block);
            free(block);
            /* The ends of a free block are the allocator's own in some (glibc's lists, purged pages). */
            CHECK(sizes[i] > 5000 || is_filled(freed + 16, sizes[i] - 24, 0xA5));
        }
    }
    for (size_t align = 16; align <= 2 * MIB; align *= 2) {
        unsigned char *aligned = memalign(align, 5000);
        CHECK(is_filled(aligned, 5000, 0x5A));
        free(aligned);
    }
    CHECK(mallopt(M_PERTURB, 0) == 1);
    unsigned char *block = calloc(1, 5000);
    unsigned char *freed = launder(block);
    free(block);
    CHECK(freed[2500] == 0);
    return 0;
}

static int free_twice(void *bytes) {
    CHECK(mallopt(M_PERTURB, 0xA5) == 1);
    void *block = launder(malloc((size_t)(uintptr_t)bytes));
    free(block);
    free(launder(block));
    return 0;
}

static void a_double_free_is_named_while_perturbing(void **state) {
    static const size_t sizes[] = {100, 100000, 3 * MIB};
    (void)state;
    REQUIRE_HAK();
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        static struct child child;
        child = (struct child){.function = free_twice, .context = (void *)sizes[i]};
        child_run(&child);
        assert_int_equal(child_signal(&child), SIGABRT);
        assert_non_null(strstr(child.err, "hakmem: free(): double free of 0x"));
    }
}

static void perturbing_fills_new_and_freed_blocks(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(perturb);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mallinfo2_adds_up),
        cmocka_unit_test(mallinfo2_is_what_is_mapped),
        cmocka_unit_test(mallinfo2_counts_live_bytes),
        cmocka_unit_test(mappings_are_counted_apart),
        cmocka_unit_test(mallinfo_is_mallinfo2_with_less_room),
        cmocka_unit_test(malloc_info_refuses_options),
        cmocka_unit_test(malloc_info_has_the_shape_of_glibc),
        cmocka_unit_test(malloc_info_adds_up),
        cmocka_unit_test(malloc_info_says_when_it_cannot_write),
        cmocka_unit_test(malloc_stats_says_the_same_as_mallinfo2),
        cmocka_unit_test(mallopt_refuses_what_has_no_meaning_here),
        cmocka_unit_test(mallopt_accepts_arenas),
        cmocka_unit_test(mmap_threshold_is_honoured),
        cmocka_unit_test(trim_threshold_is_honoured),
        cmocka_unit_test(a_double_free_is_named_while_perturbing),
        cmocka_unit_test(perturbing_fills_new_and_freed_blocks),
    };
    return cmocka_run_group_tests_name("info", tests, NULL, heap_is_sound);
}
