/*
 * sweep_order_test.c - a block that is swept up before its free is counted comes with all that was done to
 * it.
 *
 * suite: limit 60 s, flavours tsan
 * The header byte alone orders the two threads here, as when the freeing one is preempted before it counts;
 * ThreadSanitizer says so if it does not.
 */
#include "support/test.h"

#ifdef TEST_HAK_NAMES /* needs the archive: the suite's binary for LD_PRELOAD is empty and never run */
#include "heap/heap.h"
#include "slab/blocks.h"
#include "slab/superslab.h"
#include "support/classes.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 11u

static struct slab *slab;
static struct block_ref refs[BLOCKS]; /* in falling order of address: the last is block 0 */

static void write_block(struct block_ref ref, int value) {
    memset(ref.block, value, 4096);
}

static void *sweep_up(void *unused) {
    struct block_ref swept[BLOCKS];
    (void)unused;
    usleep(300000); /* not a synchronisation: the other thread is long done */
    CHECK(hak_slab_lease_any(slab));
    unsigned taken = hak_blocks_take(slab, swept, BLOCKS - 1);
    CHECK(taken == BLOCKS - 1);
    for (unsigned i = 0; i < taken; i++) {
        write_block(swept[i], 2);
    }
    hak_heap_handle_event(slab, hak_slab_release(slab, taken, HAK_PLACE_NOWHERE, 0), NULL);
    return NULL;
}

static void a_header_byte_orders_a_block_s_owners(void **state) {
    (void)state;
    pthread_t thread;
    (void)hak_heap_attach();
    slab = hak_superslab_take_units(1, 0);
    assert_int_equal(hak_slab_assign(slab, CLASS_OF_4096, 0), 0);
    assert_int_equal(hak_blocks_take(slab, refs, BLOCKS), BLOCKS);
    assert_int_equal(hak_slab_release(slab, BLOCKS, HAK_PLACE_NOWHERE, 0), HAK_EVENT_LIST);
    assert_int_equal(hak_slab_release(slab, 0, HAK_PLACE_WARM, 0), HAK_EVENT_NONE);
    /* One counted free makes the sweep look at all. */
    assert_int_equal(hak_blocks_return(&refs[BLOCKS - 1], 1, 0, hak_heap_handle_event, NULL).foreign, 0);
    assert_int_equal(pthread_create(&thread, NULL, sweep_up, NULL), 0);
    for (unsigned i = 1; i < BLOCKS - 1; i++) {
        write_block(refs[i], 1);
        /* release: pairs with the acquire in hak_headers_equal() */
        hak_atomic_store_release(refs[i].header, HAK_HEADER_FREE);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    hak_heap_handle_event(slab, hak_slab_count_free(slab, BLOCKS - 2, 0), NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_header_byte_orders_a_block_s_owners)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
    return 1;
}
#endif
