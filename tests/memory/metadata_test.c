/*
 * metadata_test.c - what hakmem keeps about blocks is small beside them: a header byte each, and little more.
 *
 * suite: limit 60 s
 * The blocks are never written to, and hakmem writes to none, so what becomes resident is metadata. Each heap
 * is in a process of its own, so that nothing that another one freed serves it.
 */
#include "memory/rss_kit.h"
#include "support/child.h"
#include "support/target.h"

#include <malloc.h>
#include <stdio.h>

#define LIVE_BYTES ((size_t)64 * MIB)

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

int main(void) {
    const struct CMUnitTest tests[] = {
        {"of_the_smallest_blocks", metadata_are_few, NULL, NULL, &smallest},
        {"of_blocks_as_programs_have_them", metadata_are_few, NULL, NULL, &ordinary},
    };
    return cmocka_run_group_tests_name("metadata", tests, NULL, heap_is_sound);
}
