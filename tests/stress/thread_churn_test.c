/*
 * thread_churn_test.c - threads by the thousand, created and gone, with thread-local data that frees late.
 *
 * suite: limit 240 s
 * Imitates a server with one thread per connection, and libraries whose per-thread state is freed by
 * pthread_key destructors, some of which allocate again and re-arm themselves.
 */
#include "support/names.h"
#include "support/pattern.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define BATCH 16u

static _Atomic uint64_t next_seed;
static const struct load requests = {8, 20000, 32, 32, 8};

static void start_batch(pthread_t *threads, void *(*body)(void *), void *argument) {
    for (unsigned i = 0; i < BATCH; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, body, argument), 0);
    }
}

static void join_batch(pthread_t *threads) {
    for (unsigned i = 0; i < BATCH; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static void run_batches(unsigned batches, void *(*body)(void *), void *argument) {
    pthread_t threads[BATCH];
    for (unsigned batch = 0; batch < batches; batch++) {
        start_batch(threads, body, argument);
        join_batch(threads);
        if (batch % 50 == 0) {
            check_heap();
        }
    }
    check_heap();
}

static void *serve_a_connection(void *unused) {
    (void)unused;
    struct slot slots[16] = {{0}};
    struct rng rng = rng_seeded(atomic_fetch_add(&next_seed, 1));
    for (unsigned i = 0; i < 100; i++) {
        slots_step(slots, COUNT_OF(slots), &requests, &rng);
    }
    slots_clear(slots, COUNT_OF(slots));
    return NULL;
}

static void a_thread_per_connection(void **state) {
    (void)state;
    run_batches(150 * test_scale() / TEST_SLOWNESS, serve_a_connection, NULL);
}

static void *touch_once(void *unused) {
    (void)unused;
    TEST_FREE(TEST_MALLOC(40));
    return NULL;
}

/* What threads leave behind must be used again: thousands of them may not grow the heap without end. */
static void threads_that_come_and_go_leave_no_memory_behind(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct hak_stats early = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof early}, late = early;
    run_batches(20, serve_a_connection, NULL);
    assert_int_equal(hak_stats_get(&early), 0);
    run_batches(160 / TEST_SLOWNESS, touch_once, NULL);
    run_batches(64 / TEST_SLOWNESS, serve_a_connection, NULL);
    assert_int_equal(hak_stats_get(&late), 0);
    assert_true(late.mapped_bytes <= early.mapped_bytes + 16 * MIB);
    /* Metadata grows by arenas of a MiB and their guard pages: one of each of the two kinds is no leak. */
    assert_true(late.metadata_bytes <= early.metadata_bytes + 3 * MIB);
    assert_int_equal(late.heaps, early.heaps);
}

/* ThreadSanitizer's own destructor takes the thread's state away in the last round. */
#ifdef TEST_UNDER_TSAN
#define ROUNDS (PTHREAD_DESTRUCTOR_ITERATIONS - 2)
#else
#define ROUNDS PTHREAD_DESTRUCTOR_ITERATIONS
#endif

static pthread_key_t plain_key, rearming_key;
static _Atomic unsigned destroyed;

static void free_state(void *block) {
    TEST_FREE(block);
    atomic_fetch_add(&destroyed, 1);
}

/* Frees its value and arms itself again with a new block, as often as the system lets it but once. */
static void free_state_and_rearm(void *value) {
    unsigned char *block = value;
    unsigned round = block[0];
    CHECK(bytes_are(block, 100 + round, block[0]));
    TEST_FREE(block);
    if (round + 1 < ROUNDS) {
        block = TEST_MALLOC(100 + round + 1);
        CHECK(block != NULL);
        memset(block, (int)round + 1, 100 + round + 1);
        CHECK(pthread_setspecific(rearming_key, block) == 0);
    } else {
        /* The last chance: allocate and free without arming. */
        TEST_FREE(TEST_CALLOC(3, 1000));
        atomic_fetch_add(&destroyed, 1);
    }
}

static void *live_with_keys(void *unused) {
    (void)unused;
    struct slot slots[4] = {{0}};
    struct rng rng = rng_seeded(atomic_fetch_add(&next_seed, 1));
    unsigned char *block = TEST_MALLOC(100);
    CHECK(block != NULL);
    memset(block, 0, 100);
    CHECK(pthread_setspecific(rearming_key, block) == 0);
    CHECK(pthread_setspecific(plain_key, TEST_MALLOC(5000)) == 0);
    for (unsigned i = 0; i < 30; i++) {
        slots_step(slots, COUNT_OF(slots), &requests, &rng);
    }
    slots_clear(slots, COUNT_OF(slots));
    return NULL;
}

static void key_destructors_free_allocate_and_rearm(void **state) {
    (void)state;
    unsigned batches = 40 * test_scale() / TEST_SLOWNESS;
    assert_int_equal(pthread_key_create(&plain_key, free_state), 0);
    assert_int_equal(pthread_key_create(&rearming_key, free_state_and_rearm), 0);
    atomic_store(&destroyed, 0);
    run_batches(batches, live_with_keys, NULL);
    assert_int_equal(atomic_load(&destroyed), batches * BATCH * 2);
    pthread_key_delete(plain_key);
    pthread_key_delete(rearming_key);
}

/* Only the destructor touches the allocator: the thread's heap begins while the thread ends. */
static void *arm_only(void *block) {
    CHECK(pthread_setspecific(plain_key, block) == 0);
    return NULL;
}

static void a_heap_may_begin_in_a_key_destructor(void **state) {
    (void)state;
    assert_int_equal(pthread_key_create(&plain_key, free_state), 0);
    for (unsigned i = 0; i < 200; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, arm_only, TEST_MALLOC(i * 50 + 1)), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    pthread_key_delete(plain_key);
    check_heap();
}

static void *detached(void *counter) {
    (void)serve_a_connection(NULL);
    atomic_fetch_add((_Atomic unsigned *)counter, 1);
    return NULL;
}

static void detached_threads_come_and_go(void **state) {
    (void)state;
    static _Atomic unsigned finished;
    unsigned count = 500 * test_scale() / TEST_SLOWNESS;
    atomic_store(&finished, 0);
    for (unsigned i = 0; i < count; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, detached, (void *)&finished), 0);
        assert_int_equal(pthread_detach(thread), 0);
        while (i + 1 - atomic_load(&finished) > BATCH) {
            (void)serve_a_connection(NULL);
        }
    }
    while (atomic_load(&finished) < count) {
        (void)serve_a_connection(NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_per_connection),
        cmocka_unit_test(threads_that_come_and_go_leave_no_memory_behind),
        cmocka_unit_test(key_destructors_free_allocate_and_rearm),
        cmocka_unit_test(a_heap_may_begin_in_a_key_destructor),
        cmocka_unit_test(detached_threads_come_and_go),
    };
    return cmocka_run_group_tests_name("thread churn", tests, NULL, heap_is_sound);
}
