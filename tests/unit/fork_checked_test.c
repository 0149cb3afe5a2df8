/*
 * fork_checked_test.c - checked mode, and a thread that was freeing a block when another one walked the heap,
 * or when the process forked: the block is no live one any more, and no memory is lost to the child.
 *
 * suite: limit 60 s
 */
#include "check/records.h"
#include "header_kit.h"
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>

#define BLOCK_BYTES 500u

static pthread_barrier_t barrier;
static void *cut_block, *live_block;

static void *hold_blocks(void *unused) {
    cut_block = hak_malloc(BLOCK_BYTES);
    live_block = hak_malloc(BLOCK_BYTES);
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    hak_free(cut_block);
    hak_free(live_block);
    return unused;
}

struct seen {
    size_t blocks;
    size_t cut, live; /* how often these two were visited */
};

/* Asks what ends the program where the block is none. */
static int see(void *block, size_t usable_bytes, void *context) {
    struct seen *seen = context;
    CHECK(hak_owns(block));
    CHECK(hak_usable_size(block) == usable_bytes);
    seen->blocks++;
    seen->cut += block == cut_block;
    seen->live += block == live_block;
    return 0;
}

static void walk_past_the_cut_block(void) {
    struct seen seen = {0};
    CHECK(hak_heap_walk(see, &seen) == 0);
    CHECK(seen.cut == 0 && seen.live == 1);
}

static int look_in_the_child(void *unused) {
    (void)unused;
    walk_past_the_cut_block();
    CHECK(!hak_owns(cut_block));
    struct seen seen = {0};
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_heap_walk(see, &seen) == 0 && hak_stats_get(&stats) == 0);
    CHECK(stats.live_blocks == seen.blocks);
    CHECK(header_value(header_of(cut_block)) == HAK_HEADER_FREE);
    check_heap();
    hak_free(live_block);
    return 0;
}

/* Whichever of its stores the child sees: the record says FREEING, the header LIVE or already CACHED. */
static int run_cut(void) {
    static struct child child;
    struct hak_record record;
    pthread_t thread;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, hold_blocks, NULL) == 0);
    (void)pthread_barrier_wait(&barrier);
    CHECK(hak_record_live_to_freeing(cut_block, NULL, 0, &record));
    walk_past_the_cut_block();
    unsigned live = header_value(header_of(cut_block));
    const unsigned headers[] = {live, HAK_HEADER_CACHED};
    for (unsigned i = 0; i < COUNT_OF(headers); i++) {
        hak_atomic_store_relaxed(header_of(cut_block), (uint8_t)headers[i]);
        child = (struct child){.function = look_in_the_child};
        child_run(&child);
        if (!child_succeeded(&child)) {
            child_report(&child);
            return 1;
        }
    }
    hak_atomic_store_relaxed(header_of(cut_block), (uint8_t)live);
    hak_record_freeing_to_live(cut_block, BLOCK_BYTES);
    (void)pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0);
    check_heap();
    return 0;
}

static void a_block_that_is_being_freed_is_not_live(void **state) {
    (void)state;
    assert_part_succeeds("cut", "HAKMEM_CHECK=1");
}

int main(int argc, char **argv) {
    static const struct part parts[] = {{"cut", run_cut}};
    const struct part *part = part_asked_for(parts, COUNT_OF(parts), argc, argv);
    if (part != NULL) {
        return part->run();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_block_that_is_being_freed_is_not_live, heap_is_sound),
    };
    return cmocka_run_group_tests_name("fork_checked", tests, NULL, NULL);
}
