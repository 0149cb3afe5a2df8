/*
 * fork_cut_test.c - a thread that was taking blocks out of a slab when the process forked: whichever of its
 * stores the child sees, all that is not live is free there.
 *
 * suite: limit 60 s
 */
#include "slab/header_map.h"
#include "slab/slab.h"
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>

#define BLOCK_BYTES  512u
#define LIVE_BLOCKS  3u
#define BLOCKS_BEING 4u /* taken at the fork */

static pthread_barrier_t barrier;
static void *live[LIVE_BLOCKS];

/* A cold class: the slab has given these blocks and no others. */
static void *hold_a_slab(void *unused) {
    for (unsigned i = 0; i < LIVE_BLOCKS; i++) {
        live[i] = hak_malloc(BLOCK_BYTES);
    }
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < LIVE_BLOCKS; i++) {
        hak_free(live[i]);
    }
    return unused;
}

/* A slab of which a block was lost never becomes free as a whole. */
static int free_the_whole_slab(void *unused) {
    (void)unused;
    hak_free(hak_malloc(BLOCK_BYTES * 2));
    check_heap();
    for (unsigned i = 0; i < LIVE_BLOCKS; i++) {
        hak_free(live[i]);
    }
    (void)hak_trim(0);
    check_heap();
    CHECK(hak_word_kind(hak_registry_word(live[0])) != HAK_KIND_SLAB);
    return 0;
}

/* What the child may see of it: by how much carved_blocks was raised, and the headers. */
static const struct cut {
    unsigned carved;
    uint8_t headers[BLOCKS_BEING];
} cuts[] = {
    {0, {HAK_HEADER_CACHED}},
    {1, {HAK_HEADER_NEVER}},
    {4, {HAK_HEADER_NEVER, HAK_HEADER_NEVER, HAK_HEADER_NEVER, HAK_HEADER_NEVER}},
    {0, {HAK_HEADER_CACHED_ZERO, HAK_HEADER_NEVER, HAK_HEADER_CACHED_ZERO, HAK_HEADER_NEVER}},
    {0, {HAK_HEADER_NEVER, HAK_HEADER_NEVER, HAK_HEADER_NEVER, HAK_HEADER_CACHED}},
    {4, {HAK_HEADER_NEVER, HAK_HEADER_CACHED, HAK_HEADER_NEVER, HAK_HEADER_CACHED}},
    {2, {HAK_HEADER_NEVER, HAK_HEADER_CACHED, HAK_HEADER_NEVER, HAK_HEADER_CACHED}},
    {3, {HAK_HEADER_CACHED, HAK_HEADER_CACHED, HAK_HEADER_NEVER, HAK_HEADER_NEVER}},
};

static void set_headers(struct slab *slab, const uint8_t *headers) {
    for (unsigned i = 0; i < BLOCKS_BEING; i++) {
        hak_atomic_store_relaxed(&slab->map[LIVE_BLOCKS + i], headers[i]);
    }
}

static void fork_at(struct slab *slab, const struct cut *cut) {
    static const uint8_t nothing_taken[BLOCKS_BEING] = {HAK_HEADER_NEVER};
    static struct child child;
    assert_true(hak_slab_lease_any(slab));
    assert_int_equal(slab->carved_blocks, LIVE_BLOCKS);
    slab->carved_blocks = (uint16_t)(LIVE_BLOCKS + cut->carved);
    set_headers(slab, cut->headers);
    child = (struct child){.function = free_the_whole_slab};
    child_run(&child);
    set_headers(slab, nothing_taken);
    slab->carved_blocks = LIVE_BLOCKS;
    assert_int_equal(hak_slab_release_any(slab, 0), HAK_EVENT_NONE);
    assert_child_succeeded(&child);
}

static void a_child_loses_no_block_that_was_being_taken(void **state) {
    (void)state;
    pthread_t thread;
    hak_free(hak_malloc(1)); /* this thread has a heap, too */
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, hold_a_slab, NULL), 0);
    (void)pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < COUNT_OF(cuts); i++) {
        print_message("cut %zu\n", i);
        fork_at(hak_slab_of_block(live[0]), &cuts[i]);
    }
    (void)pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_loses_no_block_that_was_being_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
