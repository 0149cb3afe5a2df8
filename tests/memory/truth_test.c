/*
 * truth_test.c - what hakmem says about its memory is what the kernel says, and all its voices say the same,
 * within 2 %: hak_stats_get(), mallinfo2(), malloc_info(), HAKMEM_STATS and smaps.
 *
 * suite: limit 60 s
 * One heap with live, cached, free and purged memory of every kind, in a process that has nothing else of
 * that size.
 */
#include "memory/rss_kit.h"
#include "support/child.h"
#include "support/target.h"

#include <malloc.h>
#include <stdio.h>

#define SMALL_BLOCKS  200000u
#define LARGE_BLOCKS  200u
#define MAPPED_BLOCKS 6u
#define TINY_BLOCKS   2000000u
#define TOLERANCE     50u /* one in fifty: 2 % */

static void **blocks;
#define BLOCKS (SMALL_BLOCKS + LARGE_BLOCKS + MAPPED_BLOCKS)

static void build_heap(void) {
    struct rng rng = rng_seeded(5);
    blocks = map_own(BLOCKS * sizeof *blocks);
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t bytes = i < SMALL_BLOCKS                  ? rng_log_between(&rng, 16, 4096)
                       : i < SMALL_BLOCKS + LARGE_BLOCKS ? rng_log_between(&rng, 40 * KIB, 900 * KIB)
                                                         : rng_log_between(&rng, 2 * MIB, 9 * MIB);
        blocks[i] = malloc(bytes);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, bytes);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (rng_below(&rng, 3) != 0) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    }
}

static void take_down(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
    munmap(blocks, BLOCKS * sizeof *blocks);
}

static size_t live_bytes(void) {
    size_t sum = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        sum += blocks[i] != NULL ? malloc_usable_size(blocks[i]) : 0;
    }
    return sum;
}

static void agree(const char *what, size_t one, size_t other) {
    size_t larger = one > other ? one : other;
    size_t smaller = one > other ? other : one;
    print_message("%-28s %12zu %12zu\n", what, one, other);
    assert_true(larger - smaller <= larger / TOLERANCE);
}

/* Size and Rss of the mappings without a file and a name: hakmem's, the bss of libraries, and thread stacks.
 */
static void sum_unnamed(size_t *size_bytes, size_t *resident_bytes) {
    static char text[1024 * KIB];
    size_t used = 0;
    ssize_t got;
    int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    while ((got = read(fd, text + used, sizeof text - 1 - used)) > 0) {
        used += (size_t)got;
    }
    close(fd);
    CHECK(used < sizeof text - 1);
    text[used] = '\0';
    bool is_unnamed = false;
    *size_bytes = *resident_bytes = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        size_t kib;
        unsigned long inode;
        int name_at = 0;
        if (sscanf(line, "%*x-%*x %*s %*x %*s %lu %n", &inode, &name_at) == 1 && name_at != 0) {
            is_unnamed = inode == 0 && line[name_at] == '\0';
        } else if (is_unnamed && sscanf(line, "Size: %zu", &kib) == 1) {
            *size_bytes += kib * KIB;
        } else if (is_unnamed && sscanf(line, "Rss: %zu", &kib) == 1) {
            *resident_bytes += kib * KIB;
        }
    }
}

/* About a heap that `build` makes, with a table of `own_bytes` of this test's. */
static void the_kernel_agrees_about(void (*build)(void), size_t own_bytes) {
    size_t size_before, resident_before, size_after, resident_after;
    struct hak_stats before = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof before};
    struct hak_stats after = before;
    assert_int_equal(hak_stats_get(&before), 0);
    sum_unnamed(&size_before, &resident_before);
    build();
    assert_int_equal(hak_stats_get(&after), 0);
    sum_unnamed(&size_after, &resident_after);
    agree("mapped: stats, Size", after.mapped_bytes - before.mapped_bytes,
          size_after - size_before - own_bytes);
    agree("resident: stats, Rss", after.resident_bytes - before.resident_bytes,
          resident_after - resident_before - own_bytes);
}

static void the_kernel_agrees(void **state) {
    (void)state;
    REQUIRE_HAK();
    the_kernel_agrees_about(build_heap, BLOCKS * sizeof *blocks);
    take_down();
}

/* A header byte each: metadata are a sixteenth here, and leaving them out would be seen. */
static void build_tiny_heap(void) {
    blocks = map_own(TINY_BLOCKS * sizeof *blocks);
    for (size_t i = 0; i < TINY_BLOCKS; i++) {
        blocks[i] = malloc(16);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, 16);
    }
}

static void the_kernel_agrees_about_the_smallest_blocks(void **state) {
    (void)state;
    REQUIRE_HAK();
    the_kernel_agrees_about(build_tiny_heap, TINY_BLOCKS * sizeof *blocks);
    for (size_t i = 0; i < TINY_BLOCKS; i++) {
        free(blocks[i]);
    }
    munmap(blocks, TINY_BLOCKS * sizeof *blocks);
}

static void statistics_and_mallinfo_agree(void **state) {
    (void)state;
    REQUIRE_HAK();
    build_heap();
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    assert_int_equal(hak_stats_get(&stats), 0);
    struct mallinfo2 info = mallinfo2();
    agree("live: blocks, stats", live_bytes(), stats.live_bytes);
    agree("live: stats, mallinfo2", stats.live_bytes, info.uordblks + info.hblkhd);
    agree("mapped: stats, mallinfo2", stats.mapped_bytes, info.arena + info.hblkhd + stats.metadata_bytes);
    agree("cached: stats, mallinfo2", stats.cached_bytes, info.fsmblks);
    take_down();
}

/* The last number called `name` of an element that begins like `element`, in the XML text. */
static size_t last_in_xml(const char *text, const char *element, const char *name) {
    size_t value = 0;
    for (const char *at = strstr(text, element); at != NULL; at = strstr(at + 1, element)) {
        const char *attribute = strstr(at, name);
        CHECK(attribute != NULL);
        value = strtoull(attribute + strlen(name), NULL, 10);
    }
    return value;
}

static void malloc_info_and_mallinfo_agree(void **state) {
    (void)state;
    REQUIRE_HAK();
    static char text[64 * KIB];
    build_heap();
    FILE *stream = fmemopen(text, sizeof text, "w");
    assert_non_null(stream);
    struct mallinfo2 info = mallinfo2();
    assert_int_equal(malloc_info(0, stream), 0);
    fclose(stream);
    agree("mapped: malloc_info, mallinfo2", last_in_xml(text, "<system type=\"current\"", "size=\""),
          info.arena + info.hblkhd);
    agree("mappings: malloc_info, mallinfo2", last_in_xml(text, "<total type=\"mmap\"", "size=\""),
          info.hblkhd);
    agree("cached: malloc_info, mallinfo2", last_in_xml(text, "<total type=\"fast\"", "size=\""),
          info.fsmblks);
    agree("free: malloc_info, mallinfo2", last_in_xml(text, "<total type=\"rest\"", "size=\"") + info.fsmblks,
          info.fordblks);
    take_down();
}

/* In the child: the heap stays as it is until the table is printed at exit; its figures go to stdout. */
static int leave_a_heap(void *unused) {
    (void)unused;
    build_heap();
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    printf("live %zu mapped %zu resident %zu metadata %zu\n", stats.live_bytes, stats.mapped_bytes,
           stats.resident_bytes, stats.metadata_bytes);
    fflush(stdout);
    return 0;
}

static size_t row_of(const char *table, const char *label) {
    const char *row = strstr(table, label);
    CHECK(row != NULL);
    return strtoull(row + strlen(label), NULL, 10);
}

static void the_table_at_exit_agrees(void **state) {
    (void)state;
    REQUIRE_HAK();
    static struct child child;
    static char preload[4200];
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library_path());
    child = (struct child){.program = "/proc/self/exe",
                           .arguments = {"leave-a-heap"},
                           .environment = {preload, "HAKMEM_STATS=1"}};
    child_run(&child);
    assert_child_succeeded(&child);
    size_t live, mapped, resident, metadata;
    assert_int_equal(sscanf(child.out, "live %zu mapped %zu resident %zu metadata %zu", &live, &mapped,
                            &resident, &metadata),
                     4);
    agree("live: stats, table", live, row_of(child.err, "\nlive"));
    agree("mapped: stats, table", mapped, row_of(child.err, "\nmapped"));
    agree("resident: stats, table", resident, row_of(child.err, "\nresident"));
    agree("metadata: stats, table", metadata, row_of(child.err, "\nmetadata"));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_agrees_about_the_smallest_blocks), /* first: its metadata are new */
        cmocka_unit_test(the_kernel_agrees),
        cmocka_unit_test(statistics_and_mallinfo_agree),
        cmocka_unit_test(malloc_info_and_mallinfo_agree),
        cmocka_unit_test(the_table_at_exit_agrees),
    };
    if (argc == 2 && strcmp(argv[1], "leave-a-heap") == 0) {
        return leave_a_heap(NULL);
    }
    return cmocka_run_group_tests_name("truth", tests, NULL, heap_is_sound);
}
