/*
 * metadata_test.c - what hakmem keeps about blocks is small beside them: a header byte each, and little more.
 * When they have gone most of it goes back as well.
 *
 * suite: limit 60 s
 * Where metadata are measured while blocks live these are never written to, and hakmem writes to none, so
 * what becomes resident is metadata. Each heap is in a process of its own, so that nothing that another one
 * freed serves it.
 */
#include "memory/rss_kit.h"
#include "support/child.h"
#include "support/target.h"

#include <malloc.h>
#include <stdio.h>

#define LIVE_BYTES ((size_t)64 * MIB)

#define FREED_BYTES    ((size_t)100 * 1000 * 1000)
#define SMALLEST_BYTES 16u
#define LEFT_BYTES     (2 * MIB)   /* a MiB of slabs may stay, an eighth of it of header maps, and records */
#define TRIMMED_BYTES  (768 * KIB) /* less the former two */
#define WITHIN_MS      2000u
#define POLL_MS        20u

struct heap_shape {
    size_t bytes_min, bytes_max; /* of a block, small ones as frequent as large ones */
    unsigned percent_max;        /* metadata, of what is live */
};

static struct heap_shape smallest = {16, 16, 7};
static struct heap_shape ordinary = {16, 4096, 2};

/* Pages of files, which are code that has run, are no metadata. */
static size_t anonymous_bytes(void) {
    return proc_bytes("/proc/self/smaps_rollup", "Anonymous:");
}

static int fill(void *context) {
    const struct heap_shape *shape = context;
    struct rng rng = rng_seeded(3);
    size_t live_bytes = 0;
    free(launder(malloc(shape->bytes_max))); /* what a process has once is not counted */
    size_t before_bytes = anonymous_bytes();
    while (live_bytes < LIVE_BYTES) {
        void *block = launder(malloc(rng_log_between(&rng, shape->bytes_min, shape->bytes_max)));
        CHECK(block != NULL);
        live_bytes += malloc_usable_size(block);
    }
    size_t own_bytes = anonymous_bytes() - before_bytes;
    printf("%zu to %zu bytes: %zu KiB for %zu KiB of blocks\n", shape->bytes_min, shape->bytes_max,
           own_bytes / KIB, live_bytes / KIB);
    fflush(stdout);
    CHECK(own_bytes > live_bytes / 1000); /* or it is not looked at */
    CHECK(own_bytes * 100 <= live_bytes * shape->percent_max);
    return 0;
}

static void metadata_are_few(void **state) {
    static struct child child;
    REQUIRE_HAK();
    child = (struct child){.function = fill, .context = *state};
    child_run(&child);
    print_message("%s", child.out);
    assert_child_succeeded(&child);
}

/* The smallest blocks have the most headers. Whoever frees the last one sleeps then. */
static int free_the_smallest(void *unused) {
    (void)unused;
    size_t count = FREED_BYTES / SMALLEST_BYTES;
    free(launder(malloc(SMALLEST_BYTES)));
    size_t before_bytes = anonymous_bytes();
    void **blocks = map_own(count * sizeof *blocks);
    fill_blocks(blocks, count, SMALLEST_BYTES);
    shuffle(blocks, count, 7);
    size_t filled_bytes = anonymous_bytes();
    CHECK(free_blocks(blocks, count, 0) == 0);
    CHECK(munmap(blocks, count * sizeof *blocks) == 0);
    uint64_t start_ms = clock_now_ms();
    while (anonymous_bytes() > before_bytes + LEFT_BYTES && clock_now_ms() - start_ms < WITHIN_MS) {
        usleep(POLL_MS * 1000);
    }
    size_t left_bytes = anonymous_bytes() - before_bytes;
    (void)malloc_trim(0);
    size_t trimmed_bytes = anonymous_bytes() - before_bytes;
    printf("freed %zu KiB: %zu KiB stay, %zu after malloc_trim\n", FREED_BYTES / KIB, left_bytes / KIB,
           trimmed_bytes / KIB);
    fflush(stdout);
    CHECK(filled_bytes - before_bytes > FREED_BYTES);
    CHECK(left_bytes <= LEFT_BYTES);
    CHECK(trimmed_bytes <= TRIMMED_BYTES && trimmed_bytes < left_bytes);
    return 0;
}

static void what_is_freed_leaves_few(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(free_the_smallest);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"of_the_smallest_blocks", metadata_are_few, NULL, NULL, &smallest},
        {"of_blocks_as_programs_have_them", metadata_are_few, NULL, NULL, &ordinary},
        cmocka_unit_test(what_is_freed_leaves_few),
    };
    return cmocka_run_group_tests_name("metadata", tests, NULL, heap_is_sound);
}
