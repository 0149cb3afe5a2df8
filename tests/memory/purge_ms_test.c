/*
 * purge_ms_test.c - HAKMEM_PURGE_MS: free memory beyond the floor stays that long, and goes back with the
 * first operation after it.
 *
 * suite: limit 120 s
 * A day is never over while a test runs, so what stays is exact. What goes back after a short wait is asked
 * for until it has gone: a busy machine may take its time.
 */
#include "memory/rss_kit.h"
#include "support/child.h"
#include "support/target.h"

#include <stdio.h>

#define MB          ((size_t)1000 * 1000)
#define TOTAL_BYTES (100 * MB)
#define STAYS_BYTES (90 * MB) /* slack: what caches and a last slab of each kind held */
#define GONE_BYTES  (12 * MB)
#define WITHIN_MS   20000u
#define WORK_MS     20u

struct waiting {
    const char *option;
    size_t block_bytes;
    bool is_kept;
};

static struct waiting cases[] = {
    {"HAKMEM_PURGE_MS=0", 500, false},         {"HAKMEM_PURGE_MS=86400000", 500, true},
    {"HAKMEM_PURGE_MS=100", 500, false},       {"HAKMEM_PURGE_MS=0", 65536, false},
    {"HAKMEM_PURGE_MS=86400000", 65536, true}, {"HAKMEM_PURGE_MS=100", 65536, false},
};

/* What a program does that goes on with little: more blocks of both kinds than caches hold come and go. */
static void work_a_little(void) {
    static void *few[1024];
    for (size_t i = 0; i < COUNT_OF(few); i++) {
        few[i] = launder(malloc(i % 32 != 0 ? 500 : 65536));
    }
    for (size_t i = 0; i < COUNT_OF(few); i++) {
        free(few[i]);
    }
}

static int fill_and_free(size_t block_bytes, bool is_kept) {
    size_t count = TOTAL_BYTES / block_bytes;
    void **blocks = map_own(count * sizeof *blocks);
    fill_blocks(blocks, count, block_bytes);
    shuffle(blocks, count, 42);
    (void)free_blocks(blocks, count, 0);
    munmap(blocks, count * sizeof *blocks);
    uint64_t end_ms = clock_now_ms() + (is_kept ? 0 : WITHIN_MS);
    size_t left_bytes;
    do {
        usleep(WORK_MS * 1000);
        work_a_little();
        left_bytes = rss_bytes();
    } while (left_bytes > GONE_BYTES && clock_now_ms() < end_ms);
    printf("%zu KiB left\n", left_bytes / KIB);
    check_heap();
    return is_kept ? left_bytes < STAYS_BYTES : left_bytes > GONE_BYTES;
}

static void free_memory_stays_that_long(void **state) {
    static struct child child;
    const struct waiting *waiting = *state;
    char block_bytes[32];
    REQUIRE_HAK();
    snprintf(block_bytes, sizeof block_bytes, "%zu", waiting->block_bytes);
    child = (struct child){.program = own_path(),
                           .arguments = {block_bytes, waiting->is_kept ? "kept" : "gone"},
                           .environment = {waiting->option, NULL}};
    child_run(&child);
    print_message("%s, blocks of %s bytes: %s", waiting->option, block_bytes, child.out);
    assert_child_succeeded(&child);
}

int main(int argc, char **argv) {
    if (argc == 3) {
        return fill_and_free((size_t)atol(argv[1]), strcmp(argv[2], "kept") == 0);
    }
    const struct CMUnitTest tests[] = {
        {"small_blocks_at_once", free_memory_stays_that_long, NULL, NULL, &cases[0]},
        {"small_blocks_for_a_day", free_memory_stays_that_long, NULL, NULL, &cases[1]},
        {"small_blocks_for_a_moment", free_memory_stays_that_long, NULL, NULL, &cases[2]},
        {"large_blocks_at_once", free_memory_stays_that_long, NULL, NULL, &cases[3]},
        {"large_blocks_for_a_day", free_memory_stays_that_long, NULL, NULL, &cases[4]},
        {"large_blocks_for_a_moment", free_memory_stays_that_long, NULL, NULL, &cases[5]},
    };
    return cmocka_run_group_tests_name("purge_ms", tests, NULL, heap_is_sound);
}
