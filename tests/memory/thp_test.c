/*
 * thp_test.c - what HAKMEM_THP lets the kernel do, by the flags of the mappings (`nh`: no huge pages, `hg`:
 * huge pages wanted), which hold whatever the system's own setting is.
 *
 * suite: limit 60 s
 */
#include "memory/rss_kit.h"
#include "support/child.h"
#include "support/target.h"

#include <pthread.h>
#include <stdio.h>

#define BLOCK_BYTES 500u
#define MANY        ((size_t)300 * MIB / 512)
#define FEW         ((size_t)8 * MIB / 512)
#define LONG_BYTES  ((size_t)16 * KIB)
#define LONG_USED   500u
#define LONGS       ((size_t)100 * MIB / LONG_BYTES)
#define THREADS     100u
#define SIZES       20u  /* of as many classes, */
#define SIZE_BYTES  100u /* that far apart */

/* ---- what the children do ---- */

/* Bytes of the mappings that hold one of the blocks and have the flag. Blocks lie in few mappings. */
static size_t flagged_bytes(void **blocks, size_t count, const char *flag) {
    static char line[1024];
    uintptr_t from = 0, to = 0;
    size_t bytes = 0;
    bool holds_block = false;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    CHECK(smaps != NULL);
    while (fgets(line, sizeof line, smaps) != NULL) {
        unsigned long first, end;
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2) {
            from = first;
            to = end;
            holds_block = false;
            for (size_t i = 0; i < count && !holds_block; i++) {
                holds_block = (uintptr_t)blocks[i] >= from && (uintptr_t)blocks[i] < to;
            }
        } else if (holds_block && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, flag) != NULL) {
            bytes += to - from;
        }
    }
    fclose(smaps);
    return bytes;
}

static void **blocks;

/* Written to once all are there: how long the first touch of a huge page takes, here and now, decides nothing
 * then (slab/huge.h). */
static void fill(size_t count) {
    blocks = map_own(count * sizeof *blocks);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc(BLOCK_BYTES);
        CHECK(blocks[i] != NULL);
    }
    for (size_t i = 0; i < count; i++) {
        memset(blocks[i], 1, BLOCK_BYTES);
    }
}

/* Buffers of which the start alone is used. */
static void fill_starts(void **buffers) {
    for (size_t i = 0; i < LONGS; i++) {
        buffers[i] = malloc(LONG_BYTES);
        CHECK(buffers[i] != NULL);
        memset(buffers[i], 1, LONG_USED);
    }
}

static void print_flags(size_t count) {
    printf("%zu %zu %zu\n", flagged_bytes(blocks, count, " nh"), flagged_bytes(blocks, count, " hg"),
           rss_bytes());
}

/* Every second SuperSlab's worth of blocks goes but for a few: it is purged in part. */
static void fill_and_thin_out(void) {
    fill(MANY);
    size_t kept = free_blocks(blocks, MANY, 1000);
    print_flags(kept);
}

static void fill_starts_alone(void) {
    blocks = map_own(LONGS * sizeof *blocks);
    fill_starts(blocks);
    print_flags(LONGS);
}

/* The flags are those of the others. */
static void fill_starts_and_others(void) {
    void **buffers = map_own(LONGS * sizeof *buffers);
    fill(MANY / 2);
    fill_starts(buffers);
    fill(MANY);
    print_flags(MANY);
}

static pthread_barrier_t all_have_begun;

/* One block of each size: as many slabs that hold one block each. */
static void *begin_slabs(void *arg) {
    void **own = arg;
    for (size_t i = 0; i < SIZES; i++) {
        own[i] = malloc((i + 1) * SIZE_BYTES);
        CHECK(own[i] != NULL);
        memset(own[i], 1, (i + 1) * SIZE_BYTES);
    }
    pthread_barrier_wait(&all_have_begun);
    pthread_barrier_wait(&all_have_begun);
    return NULL;
}

static void begin_in_threads(void) {
    pthread_t threads[THREADS];
    blocks = map_own((size_t)THREADS * SIZES * sizeof *blocks);
    pthread_barrier_init(&all_have_begun, NULL, THREADS + 1);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, begin_slabs, &blocks[i * SIZES]) == 0);
    }
    pthread_barrier_wait(&all_have_begun);
    print_flags((size_t)THREADS * SIZES);
    pthread_barrier_wait(&all_have_begun);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static int run_mode(const char *mode) {
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0) {
        printf("the kernel has no huge pages\n");
        return CHILD_SKIP;
    }
    if (strcmp(mode, "few") == 0) {
        fill(FEW);
        print_flags(FEW);
    } else if (strcmp(mode, "many") == 0) {
        fill(MANY);
        print_flags(MANY);
    } else if (strcmp(mode, "begin") == 0) {
        begin_in_threads();
    } else if (strcmp(mode, "starts") == 0) {
        fill_starts_alone();
    } else if (strcmp(mode, "starts and others") == 0) {
        fill_starts_and_others();
    } else {
        fill_and_thin_out();
    }
    return 0;
}

/* ---- the suite ---- */

struct flags {
    size_t nohuge_bytes, huge_bytes, rss_bytes;
};

static struct flags flags_of(const char *mode, const char *option) {
    static struct child child;
    struct flags flags;
    child = (struct child){.program = own_path(), .arguments = {mode}, .environment = {option, NULL}};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.err, "");
    assert_int_equal(
        sscanf(child.out, "%zu %zu %zu", &flags.nohuge_bytes, &flags.huge_bytes, &flags.rss_bytes), 3);
    return flags;
}

static void never_means_never(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct flags flags = flags_of("many", "HAKMEM_THP=never");
    assert_int_equal(flags.huge_bytes, 0);
    assert_true(flags.nohuge_bytes >= MANY * BLOCK_BYTES);
}

static void always_means_from_the_first_on(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct flags flags = flags_of("few", "HAKMEM_THP=always");
    assert_int_equal(flags.nohuge_bytes, 0);
    assert_true(flags.huge_bytes >= FEW * BLOCK_BYTES);
}

static void a_small_heap_has_no_huge_page_by_itself(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct flags flags = flags_of("few", NULL);
    assert_int_equal(flags.huge_bytes, 0);
    assert_true(flags.nohuge_bytes >= FEW * BLOCK_BYTES);
}

static void what_auto_leaves_unused_is_bounded(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct flags flags = flags_of("many", NULL);
    print_message("no huge pages: %zu MiB, huge pages: %zu MiB, resident: %zu MiB of %zu\n",
                  flags.nohuge_bytes / MIB, flags.huge_bytes / MIB, flags.rss_bytes / MIB, MANY * 512 / MIB);
    assert_true(flags.rss_bytes < MANY * 512 / 100 * 106 + 8 * MIB);
    assert_true(flags.nohuge_bytes >= 16 * MIB); /* the first few */
}

/* A thread's slabs of many classes hold little each, and are the slabs of a process with many threads. */
static void what_slabs_have_not_handed_out_yet_is_bounded(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct flags flags = flags_of("begin", NULL);
    size_t slabs = (size_t)THREADS * SIZES;
    print_message("no huge pages: %zu MiB, huge pages: %zu MiB, resident: %zu MiB for %zu slabs\n",
                  flags.nohuge_bytes / MIB, flags.huge_bytes / MIB, flags.rss_bytes / MIB, slabs);
    assert_int_equal(flags.huge_bytes, 0);
    assert_true(flags.rss_bytes < slabs * 16 * KIB);
}

/* What is used of the buffers, in OS pages. */
static size_t starts_bytes(void) {
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    return LONGS * (page_bytes < LONG_BYTES ? page_bytes : LONG_BYTES);
}

static void what_is_never_touched_of_long_blocks_holds_no_memory(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct flags flags = flags_of("starts", NULL);
    print_message("no huge pages: %zu MiB, huge pages: %zu MiB, resident: %zu MiB of %zu\n",
                  flags.nohuge_bytes / MIB, flags.huge_bytes / MIB, flags.rss_bytes / MIB,
                  starts_bytes() / MIB);
    assert_true(flags.rss_bytes < starts_bytes() / 100 * 106 + 8 * MIB);
    assert_true(flags.huge_bytes == 0 || starts_bytes() == LONGS * LONG_BYTES);
}

static void others_have_huge_pages_beside_them(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct flags flags = flags_of("starts and others", NULL);
    size_t bytes = MANY * 512 / 2 * 3 + starts_bytes();
    print_message("no huge pages: %zu MiB, huge pages: %zu MiB, resident: %zu MiB of %zu\n",
                  flags.nohuge_bytes / MIB, flags.huge_bytes / MIB, flags.rss_bytes / MIB, bytes / MIB);
    assert_true(flags.rss_bytes < bytes / 100 * 106 + 8 * MIB);
    assert_true(flags.huge_bytes > MANY * 512 / 2);
}

static void always_means_those_of_long_blocks_too(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct flags flags = flags_of("starts", "HAKMEM_THP=always");
    assert_int_equal(flags.nohuge_bytes, 0);
    assert_true(flags.huge_bytes >= LONGS * LONG_BYTES);
}

static void what_is_purged_in_part_is_no_huge_page_any_more(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct flags flags = flags_of("thin out", "HAKMEM_THP=always");
    assert_true(flags.nohuge_bytes > flags.huge_bytes);
    assert_true(flags.rss_bytes < MANY * 512 / 8); /* and what was given back did not come back */
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_means_never),
        cmocka_unit_test(always_means_from_the_first_on),
        cmocka_unit_test(a_small_heap_has_no_huge_page_by_itself),
        cmocka_unit_test(what_auto_leaves_unused_is_bounded),
        cmocka_unit_test(what_slabs_have_not_handed_out_yet_is_bounded),
        cmocka_unit_test(what_is_never_touched_of_long_blocks_holds_no_memory),
        cmocka_unit_test(others_have_huge_pages_beside_them),
        cmocka_unit_test(always_means_those_of_long_blocks_too),
        cmocka_unit_test(what_is_purged_in_part_is_no_huge_page_any_more),
    };
    if (argc > 1) {
        return run_mode(argv[1]);
    }
    return cmocka_run_group_tests_name("thp", tests, NULL, heap_is_sound);
}
