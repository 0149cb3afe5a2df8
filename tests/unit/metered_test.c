/*
 * metered_test.c - while the front is metered every operation takes the slow path, also in a thread that
 * comes later.
 */
#include "hakmem.h"
#include "heap/checked.h"
#include "heap/front.h"
#include "heap/heap.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>

#define ROUNDS 1000u

static void on_thread(void *(*run)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* A large aligned block attaches without a slow operation on a small one. */
static void *attach_and_look(void *unused) {
    hak_free(hak_aligned_alloc(1 << 16, 100000));
    CHECK(hak_tls.heap != NULL);
    CHECK(hak_tls.heap->is_metered);
    CHECK(hak_tls.low == HAK_LOW_OF_NO_HEAP);
    return unused;
}

static void a_thread_that_attaches_later_is_metered_at_once(void **state) {
    (void)state;
    hak_front_set_modes(HAK_FRONT_METERED, 0);
    on_thread(attach_and_look);
    hak_front_set_modes(0, 0);
}

static uint64_t allocations_of(unsigned class_idx) {
    struct front_counts sums;
    hak_heap_sum_counters(class_idx, &sums);
    return sums.allocations;
}

static void *allocate_and_free(void *unused) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        hak_free(hak_malloc(64));
    }
    return unused;
}

static void each_allocation_of_a_later_thread_is_counted(void **state) {
    (void)state;
    unsigned class_idx = hak_class_of(64);
    hak_front_set_modes(HAK_FRONT_METERED, 0);
    uint64_t before = allocations_of(class_idx);
    on_thread(allocate_and_free);
    assert_int_equal(allocations_of(class_idx) - before, ROUNDS);
    hak_front_set_modes(0, 0);
}

static void blocks_go_home_and_the_hit_path_returns_when_it_ends(void **state) {
    (void)state;
    (void)allocate_and_free(NULL);
    hak_front_set_modes(HAK_FRONT_METERED, 0);
    void *block = hak_malloc(64);
    assert_ptr_equal(hak_tls.top[hak_class_of(64)], HAK_NO_CACHE_TOP);
    hak_front_set_modes(0, 0);
    assert_ptr_not_equal(hak_tls.top[hak_class_of(64)], HAK_NO_CACHE_TOP);
    assert_true(hak_tls.low != HAK_LOW_OF_NO_HEAP);
    hak_free(block);
    assert_int_equal(hak_verify(NULL, 0), 0);
}

static unsigned locks;

static void count_lock(struct hak_lock *lock) {
    (void)lock;
    locks++;
}

/* Their pages are nothing that an ordinary process should touch. */
static void a_fork_takes_the_locks_of_checked_mode_only_there(void **state) {
    (void)state;
    hak_checked_for_each_lock(count_lock);
    assert_int_equal(locks, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_takes_the_locks_of_checked_mode_only_there),
        cmocka_unit_test(a_thread_that_attaches_later_is_metered_at_once),
        cmocka_unit_test(each_allocation_of_a_later_thread_is_counted),
        cmocka_unit_test(blocks_go_home_and_the_hit_path_returns_when_it_ends),
    };
    return cmocka_run_group_tests_name("metered", tests, NULL, heap_is_sound);
}
