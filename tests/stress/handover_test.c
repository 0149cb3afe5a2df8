/*
 * handover_test.c - blocks allocated by one thread and freed by another.
 *
 * suite: limit 240 s
 * Imitates message queues (one producer, one consumer; many to many), a server whose requests migrate between
 * workers (any thread replaces any thread's block, as in larson), and pools whose blocks outlive their
 * makers.
 */
#include "support/names.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define QUEUE_SLOTS 512u

/* A bounded queue under a mutex: simple, and known right to sanitizers. */
struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct slot slots[QUEUE_SLOTS];
    size_t head, count;
    unsigned producers; /* that still produce */
};

static void queue_start(struct queue *queue, unsigned producers) {
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->changed, NULL);
    queue->head = queue->count = 0;
    queue->producers = producers;
}

static void queue_put(struct queue *queue, const struct slot *slot) {
    pthread_mutex_lock(&queue->mutex);
    while (queue->count == QUEUE_SLOTS) {
        pthread_cond_wait(&queue->changed, &queue->mutex);
    }
    queue->slots[(queue->head + queue->count++) % QUEUE_SLOTS] = *slot;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

/* False when the queue is empty and every producer is done. */
static bool queue_take(struct queue *queue, struct slot *slot) {
    pthread_mutex_lock(&queue->mutex);
    while (queue->count == 0 && queue->producers != 0) {
        pthread_cond_wait(&queue->changed, &queue->mutex);
    }
    bool is_taken = queue->count != 0;
    if (is_taken) {
        *slot = queue->slots[queue->head];
        queue->head = (queue->head + 1) % QUEUE_SLOTS;
        queue->count--;
    }
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    return is_taken;
}

static struct queue queue;
static _Atomic uint64_t next_seed;
static const struct load messages = {16, 4000, 32, 0, 8};
static unsigned messages_per_producer;

static void *produce(void *unused) {
    (void)unused;
    struct rng rng = rng_seeded(atomic_fetch_add(&next_seed, 1));
    for (unsigned i = 0; i < messages_per_producer; i++) {
        struct slot slot = {0};
        CHECK(slot_fill(&slot, &messages, &rng));
        queue_put(&queue, &slot);
    }
    pthread_mutex_lock(&queue.mutex);
    queue.producers--;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.mutex);
    return NULL;
}

static void *consume(void *unused) {
    (void)unused;
    struct slot slot;
    while (queue_take(&queue, &slot)) {
        slot_clear(&slot);
    }
    return NULL;
}

static void run_queue(unsigned producers, unsigned consumers) {
    pthread_t threads[16];
    messages_per_producer = 60000 * test_scale() / producers / TEST_SLOWNESS;
    queue_start(&queue, producers);
    for (unsigned i = 0; i < producers + consumers; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, i < producers ? produce : consume, NULL), 0);
    }
    for (unsigned i = 0; i < producers + consumers; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(queue.count, 0);
    check_heap();
}

static void one_producer_one_consumer(void **state) {
    (void)state;
    run_queue(1, 1);
}

static void one_producer_four_consumers(void **state) {
    (void)state;
    run_queue(1, 4);
}

static void four_producers_one_consumer(void **state) {
    (void)state;
    run_queue(4, 1);
}

static void four_producers_four_consumers(void **state) {
    (void)state;
    run_queue(4, 4);
}

#define SHARED_SLOTS 2000u
#define LOCKS        64u

static struct slot shared[SHARED_SLOTS];
static pthread_mutex_t shared_locks[LOCKS];
static const struct load requests = {8, 2500, 16, 24, 0};
static unsigned steps_per_worker;

/* Each step works on a slot of anybody's; the lock covers the slot, not the allocator. */
static void *replace_any(void *unused) {
    (void)unused;
    struct rng rng = rng_seeded(atomic_fetch_add(&next_seed, 1));
    for (unsigned i = 0; i < steps_per_worker; i++) {
        size_t index = rng_below(&rng, SHARED_SLOTS);
        pthread_mutex_lock(&shared_locks[index % LOCKS]);
        slots_step(&shared[index], 1, &requests, &rng);
        pthread_mutex_unlock(&shared_locks[index % LOCKS]);
    }
    return NULL;
}

static void workers_replace_each_others_blocks(void **state) {
    (void)state;
    enum { WORKERS = 4, GENERATIONS = 8 };
    for (unsigned i = 0; i < LOCKS; i++) {
        pthread_mutex_init(&shared_locks[i], NULL);
    }
    steps_per_worker = 12000 * test_scale() / TEST_SLOWNESS;
    for (unsigned generation = 0; generation < GENERATIONS; generation++) {
        pthread_t threads[WORKERS];
        for (unsigned i = 0; i < WORKERS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, replace_any, NULL), 0);
        }
        for (unsigned i = 0; i < WORKERS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        }
        check_heap();
    }
    slots_check_overlap(shared, SHARED_SLOTS);
    slots_clear(shared, SHARED_SLOTS);
    check_heap();
}

#define LEGACY_SLOTS 3000u

static void *leave_a_legacy(void *slots) {
    static const struct load load = {8, 40000, 16, 0, 4};
    struct rng rng = rng_seeded(atomic_fetch_add(&next_seed, 1));
    for (unsigned i = 0; i < LEGACY_SLOTS; i++) {
        CHECK(slot_fill((struct slot *)slots + i, &load, &rng));
    }
    return NULL;
}

static void *clear_a_legacy(void *slots) {
    slots_clear(slots, LEGACY_SLOTS);
    return NULL;
}

/* Every block is freed after its maker's exit, by a thread that never allocated, or by main. */
static void blocks_outlive_their_threads(void **state) {
    (void)state;
    static struct slot legacies[2][LEGACY_SLOTS];
    for (unsigned round = 0; round < 3 * test_scale(); round++) {
        pthread_t makers[2], heir;
        for (unsigned i = 0; i < 2; i++) {
            memset(legacies[i], 0, sizeof legacies[i]);
            assert_int_equal(pthread_create(&makers[i], NULL, leave_a_legacy, legacies[i]), 0);
        }
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(pthread_join(makers[i], NULL), 0);
        }
        check_heap();
        assert_int_equal(pthread_create(&heir, NULL, clear_a_legacy, legacies[0]), 0);
        slots_clear(legacies[1], LEGACY_SLOTS);
        assert_int_equal(pthread_join(heir, NULL), 0);
        check_heap();
    }
}

static void nap(unsigned ms) {
    struct timespec duration = {.tv_nsec = ms * 1000 * 1000};
    (void)nanosleep(&duration, NULL);
}

#define SLEEP_MS 15u /* longer than slabs wait for their owner */
#define SLEEPS   3u
#define PAUSE_MS 5u
#define PAUSES   10u

/* Replaces most of what the thread that made it, asleep meanwhile, left in these slots. */
static void *take_over(void *context) {
    static const struct load load = {8, 2500, 16, 0, 4};
    struct slot *slots = context;
    struct rng rng = rng_seeded(atomic_fetch_add(&next_seed, 1));
    for (size_t i = 0; i < LEGACY_SLOTS; i++) {
        if (i % 8 != 0) {
            slot_clear(&slots[i]);
        }
    }
    for (size_t i = 0; i < LEGACY_SLOTS; i++) {
        if (i % (LEGACY_SLOTS / PAUSES) == 0) {
            nap(PAUSE_MS);
        }
        if (i % 8 != 0) {
            CHECK(slot_fill(&slots[i], &load, &rng));
        }
    }
    return NULL;
}

/* Slabs of a sleeper are handed on, at any moment of its waking up and working too. */
static void sleepers_slabs_are_handed_on(void **state) {
    (void)state;
    enum { HEIRS = 3 };
    static struct slot legacies[HEIRS + 1][LEGACY_SLOTS];
    for (unsigned round = 0; round < 4 * test_scale(); round++) {
        pthread_t heirs[HEIRS];
        for (unsigned i = 0; i < HEIRS; i++) {
            (void)leave_a_legacy(legacies[i]);
            assert_int_equal(pthread_create(&heirs[i], NULL, take_over, legacies[i]), 0);
        }
        for (unsigned i = 0; i < SLEEPS; i++) {
            nap(SLEEP_MS);
            (void)leave_a_legacy(legacies[HEIRS]);
            slots_clear(legacies[HEIRS], LEGACY_SLOTS);
        }
        for (unsigned i = 0; i < HEIRS; i++) {
            assert_int_equal(pthread_join(heirs[i], NULL), 0);
            slots_check_overlap(legacies[i], LEGACY_SLOTS);
            slots_clear(legacies[i], LEGACY_SLOTS);
        }
        check_heap();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_producer_one_consumer),          cmocka_unit_test(one_producer_four_consumers),
        cmocka_unit_test(four_producers_one_consumer),        cmocka_unit_test(four_producers_four_consumers),
        cmocka_unit_test(workers_replace_each_others_blocks), cmocka_unit_test(blocks_outlive_their_threads),
        cmocka_unit_test(sleepers_slabs_are_handed_on),
    };
    return cmocka_run_group_tests_name("handover", tests, NULL, heap_is_sound);
}
