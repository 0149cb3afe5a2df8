/*
 * slab_lease_test.c - what a thread does while another one has a lease or is between a free and its count;
 * which blocks the holder of a lease gets that takes them one by one; how entries of caches move.
 *
 * suite: limit 120 s
 */
#include "hakmem.h"
#include "heap/supply.h"
#include "slab/blocks.h"
#include "slab/purge.h"
#include "slab/superslab.h"
#include "support/classes.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HANGING_S 60u

/* Whoever exits or trims takes up its slabs with remote frees, but does not wait for one that is purged. */
static void a_lease_held_elsewhere_is_not_waited_for(void **state) {
    (void)state;
    struct heap *heap = hak_heap_attach();
    struct block_ref ref;
    enum hak_slab_event event;
    struct slab *slab = hak_superslab_take_units(1, 0);
    assert_int_equal(hak_slab_assign(slab, CLASS_OF_4096, heap->id), 0);
    assert_int_equal(hak_blocks_take(slab, &ref, 1), 1);
    assert_int_equal(hak_slab_release(slab, 1, HAK_PLACE_NOWHERE, heap->id), HAK_EVENT_LIST);
    assert_true(hak_slab_list_push(&heap->remote, slab, heap->id, &event));
    assert_int_equal(event, HAK_EVENT_NONE);
    assert_true(hak_slab_lease_any(slab));
    alarm(HANGING_S);
    hak_supply_drain_remote(heap);
    alarm(0);
    assert_int_equal(hak_slab_release_any(slab, 0), HAK_EVENT_NONE);
    assert_false(hak_slab_list_looks_empty(&heap->remote));
    hak_supply_drain_remote(heap);
    assert_true(hak_slab_list_looks_empty(&heap->remote));
    (void)hak_blocks_return(&ref, 1, heap->id, hak_heap_handle_event, heap);
}

#define OF_A_SLAB  128u
#define STILL_USED 100u

static void take_one_by_one(struct slab *slab, struct block_ref *refs, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(hak_blocks_take(slab, &refs[i], 1), 1);
        assert_true(i == 0 || refs[i].block > refs[i - 1].block);
    }
}

/* A class that is cold takes its blocks one by one: each above the last, as long as there are any. */
static void blocks_taken_one_by_one_rise(void **state) {
    (void)state;
    struct heap *heap = hak_heap_attach();
    struct block_ref refs[OF_A_SLAB], again[OF_A_SLAB];
    struct slab *slab = hak_superslab_take_units(1, 0);
    hak_purge_set_floor(GIB);
    assert_int_equal(hak_slab_assign(slab, CLASS_OF_512, heap->id), 0);
    take_one_by_one(slab, refs, OF_A_SLAB);
    assert_int_equal(hak_blocks_take(slab, again, 1), 0);
    assert_int_equal(hak_slab_release(slab, OF_A_SLAB, HAK_PLACE_WARM, heap->id), HAK_EVENT_NONE);
    (void)hak_blocks_return(refs, STILL_USED, heap->id, hak_heap_handle_event, heap);
    assert_true(hak_slab_lease_warm(slab, CLASS_OF_512, heap->id));
    take_one_by_one(slab, again, STILL_USED / 2);
    assert_ptr_equal(again[0].block, refs[0].block);
    /* What is freed behind comes when nothing is left ahead. */
    assert_int_equal(hak_slab_release(slab, STILL_USED / 2, HAK_PLACE_WARM, heap->id), HAK_EVENT_NONE);
    (void)hak_blocks_return(&again[STILL_USED / 2 - 1], 1, heap->id, hak_heap_handle_event, heap);
    assert_true(hak_slab_lease_warm(slab, CLASS_OF_512, heap->id));
    take_one_by_one(slab, &again[STILL_USED / 2], STILL_USED / 2);
    assert_ptr_equal(again[STILL_USED / 2].block, refs[STILL_USED / 2].block);
    assert_int_equal(hak_blocks_take(slab, &again[STILL_USED / 2 - 1], 1), 1);
    assert_ptr_equal(again[STILL_USED / 2 - 1].block, refs[STILL_USED / 2 - 1].block);
    assert_int_equal(hak_blocks_take(slab, again + STILL_USED, 1), 0);
    assert_int_equal(hak_slab_release(slab, STILL_USED / 2 + 1, HAK_PLACE_WARM, heap->id), HAK_EVENT_NONE);
    (void)hak_blocks_return(again, STILL_USED, heap->id, hak_heap_handle_event, heap);
    (void)hak_blocks_return(&refs[STILL_USED], OF_A_SLAB - STILL_USED, heap->id, hak_heap_handle_event, heap);
}

static atomic_uint clock_ahead_ms;

/* hakmem's clock. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += atomic_load(&clock_ahead_ms) / 1000;
    return result;
}

/* hak_blocks_return() of a thread that is preempted half-way. */
static void *free_with_a_pause(void *block) {
    struct slab *slab = hak_slab_of_block(block);
    size_t block_idx = ((uintptr_t)block - slab->base) / 4096;
    /* release: pairs with the loads of hak_verify() in the other thread */
    hak_atomic_store_release(&slab->map[block_idx], HAK_HEADER_FREE);
    usleep(150000);
    atomic_fetch_add(&clock_ahead_ms, 3600 * 1000); /* as when the whole machine stood still */
    usleep(150000);
    hak_heap_handle_event(slab, hak_slab_count_free(slab, 1, 0), NULL);
    return NULL;
}

static void verify_has_patience_with_a_preempted_thread(void **state) {
    (void)state;
    char why[200];
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_with_a_pause, hak_malloc(4096)), 0);
    usleep(50000);
    int result = hak_verify(why, sizeof why);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(why, "");
    assert_int_equal(result, 0);
}

#define ENTRIES 100u

/* As many entries as an array of a cache may have to move, by any distance, down or to another array. */
static void entries_move_as_they_are(void **state) {
    (void)state;
    static struct block_ref from[ENTRIES], to[ENTRIES];
    for (unsigned distance = 0; distance <= ENTRIES; distance++) {
        for (unsigned count = 0; count <= ENTRIES - distance; count++) {
            for (unsigned i = 0; i < ENTRIES; i++) {
                from[i] = (struct block_ref){.block = &from[i], .header = (hak_header *)&to[i]};
                to[i] = (struct block_ref){0};
            }
            hak_block_refs_move(&to[distance], from, count);
            hak_block_refs_move(from, &from[distance], count);
            for (unsigned i = 0; i < ENTRIES; i++) {
                unsigned now = i < count ? i + distance : i;
                assert_ptr_equal(from[i].block, &from[now]);
                assert_ptr_equal(from[i].header, &to[now]);
                bool is_moved = i >= distance && i < distance + count;
                assert_ptr_equal(to[i].block, is_moved ? &from[i - distance] : NULL);
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_lease_held_elsewhere_is_not_waited_for, heap_is_sound),
        cmocka_unit_test_teardown(blocks_taken_one_by_one_rise, heap_is_sound),
        cmocka_unit_test(entries_move_as_they_are),
        cmocka_unit_test_teardown(verify_has_patience_with_a_preempted_thread, heap_is_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
