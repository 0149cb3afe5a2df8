/*
 * handover_test.c - producers and consumers: what one thread allocates and another frees costs no more than
 * what is live, 4 MB, and 4 MB for each further producer (slabs of each class), however long it goes on and
 * whoever is quick.
 *
 * suite: limit 170 s, alone
 * Live memory is bounded by the queue. The resident size is looked at after each of 40 equal parts of the
 * run, while everybody is at work: all must be within the bound, and the last quarter no higher than the
 * second one.
 */
#include "memory/rss_kit.h"
#include "support/child.h"
#include "support/target.h"

#include <pthread.h>
#include <stdio.h>

#define MB           ((size_t)1000 * 1000)
#define EXTRA_BYTES  (4 * MB)
#define PER_PRODUCER (4 * MB) /* beyond the first: 17 classes of slabs, and what is cached of them */
#define DRIFT_BYTES  (2 * MB) /* slack: caches and slabs that happen to be in hand */
#define STACK_BYTES  (256 * KIB)
#define THREAD_BYTES (128 * KIB) /* stack, thread-local data of this test, and what the C library has */
#define QUEUE_SLOTS  4096u
#define BYTES_MIN    64u
#define BYTES_MAX    1024u
#define BYTES_MEAN   347u /* of a log-uniform size in between */
#define PARTS        40u
#define ITEMS        2000000u
#define THREADS_MAX  4u

struct form {
    const char *name;
    unsigned producers, consumers;
    unsigned burst; /* items that a producer makes before consumers may start on them; 1: none waits */
};

/* A ring under one lock: simple, and by its waits it makes producers and consumers take turns in many ways.
 */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t can_put, can_take;
    void *blocks[QUEUE_SLOTS];
    size_t put, taken; /* so far */
    size_t total;
    size_t burst;
    bool is_draining;
} queue;

static void put(void *block) {
    pthread_mutex_lock(&queue.lock);
    while (queue.put - queue.taken == QUEUE_SLOTS || queue.is_draining) {
        pthread_cond_wait(&queue.can_put, &queue.lock);
    }
    queue.blocks[queue.put++ % QUEUE_SLOTS] = block;
    if (queue.burst > 1 && queue.put - queue.taken == queue.burst) {
        queue.is_draining = true;
    }
    pthread_cond_signal(&queue.can_take);
    pthread_mutex_unlock(&queue.lock);
}

static bool may_take(void) {
    return queue.put != queue.taken && (queue.burst <= 1 || queue.is_draining || queue.put == queue.total);
}

/* NULL when all has been taken. */
static void *take(void) {
    void *block = NULL;
    pthread_mutex_lock(&queue.lock);
    while (queue.taken != queue.total && !may_take()) {
        pthread_cond_wait(&queue.can_take, &queue.lock);
    }
    if (queue.taken != queue.total) {
        block = queue.blocks[queue.taken++ % QUEUE_SLOTS];
    }
    if (queue.is_draining && queue.put == queue.taken) {
        queue.is_draining = false;
        pthread_cond_broadcast(&queue.can_put);
    }
    pthread_cond_signal(&queue.can_put);
    if (queue.taken == queue.total || queue.is_draining) {
        pthread_cond_broadcast(&queue.can_take);
    }
    pthread_mutex_unlock(&queue.lock);
    return block;
}

struct worker {
    pthread_t thread;
    size_t items;
    uint64_t seed;
};

static void *produce(void *context) {
    struct worker *worker = context;
    struct rng rng = rng_seeded(worker->seed);
    for (size_t i = 0; i < worker->items; i++) {
        size_t bytes = rng_log_between(&rng, BYTES_MIN, BYTES_MAX);
        void *block = malloc(bytes);
        CHECK(block != NULL);
        memset(block, 1, bytes);
        put(block);
    }
    return NULL;
}

static void *consume(void *unused) {
    void *block;
    while ((block = take()) != NULL) {
        free(block);
    }
    return unused;
}

static size_t items_taken(void) {
    pthread_mutex_lock(&queue.lock);
    size_t taken = queue.taken;
    pthread_mutex_unlock(&queue.lock);
    return taken;
}

/* What is resident of anonymous memory: how many pages of the C library have been looked at does not matter
 * here. */
static size_t anonymous_bytes(void) {
    return proc_bytes("/proc/self/smaps_rollup", "Anonymous:");
}

/* That after each part of the run. */
static void watch(size_t rss[PARTS]) {
    for (unsigned part = 0; part < PARTS; part++) {
        while (items_taken() < (part + 1) * (queue.total / PARTS)) {
            usleep(500);
        }
        rss[part] = anonymous_bytes();
    }
}

static size_t highest(const size_t *values, unsigned first, unsigned end) {
    size_t most = 0;
    for (unsigned i = first; i < end; i++) {
        most = values[i] > most ? values[i] : most;
    }
    return most;
}

static void start(struct worker *worker, void *(*function)(void *)) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    CHECK(pthread_create(&worker->thread, &attributes, function, worker) == 0);
    pthread_attr_destroy(&attributes);
}

/* In a process of its own, so that nothing is left of the form before. */
static int run_form(void *context) {
    const struct form *form = context;
    static size_t rss[PARTS];
    struct worker producers[THREADS_MAX], consumers[THREADS_MAX];
    size_t total = ITEMS / (library_is_debug() ? 4 : 1) * test_scale();
    queue.put = queue.taken = 0;
    queue.total = total / form->producers * form->producers;
    queue.burst = form->burst;
    queue.is_draining = false;
    (void)anonymous_bytes(); /* its own pages are there from now on */
    size_t before = anonymous_bytes();
    for (unsigned i = 0; i < form->consumers; i++) {
        start(&consumers[i], consume);
    }
    for (unsigned i = 0; i < form->producers; i++) {
        producers[i].items = queue.total / form->producers;
        producers[i].seed = i + 1;
        start(&producers[i], produce);
    }
    watch(rss);
    for (unsigned i = 0; i < form->producers; i++) {
        CHECK(pthread_join(producers[i].thread, NULL) == 0);
    }
    for (unsigned i = 0; i < form->consumers; i++) {
        CHECK(pthread_join(consumers[i].thread, NULL) == 0);
    }
    size_t bound_bytes = before + QUEUE_SLOTS * BYTES_MEAN + EXTRA_BYTES +
                         (form->producers - 1) * PER_PRODUCER +
                         (form->producers + form->consumers) * THREAD_BYTES;
    size_t early = highest(rss, PARTS / 4, PARTS / 2);
    size_t late = highest(rss, PARTS / 4 * 3, PARTS);
    printf("%-8s before %zu KiB, bound %zu, highest %zu; second quarter %zu, last %zu\n", form->name,
           before / KIB, bound_bytes / KIB, highest(rss, 0, PARTS) / KIB, early / KIB, late / KIB);
    fflush(stdout);
    CHECK(highest(rss, 0, PARTS) <= bound_bytes);
    CHECK(late <= early + DRIFT_BYTES);
    check_heap();
    return 0;
}

static void stays_within_its_bound(void **state) {
    static struct child child;
    REQUIRE_HAK();
    child = (struct child){.function = run_form, .context = *state, .timeout_s = 160};
    child_run(&child);
    print_message("%s", child.out);
    assert_child_succeeded(&child);
}

static struct form one_to_one = {"1:1", 1, 1, 1};
static struct form one_to_many = {"1:N", 1, THREADS_MAX, 1};
static struct form many_to_one = {"N:1", THREADS_MAX, 1, 1};
static struct form bursty = {"bursty", 2, 2, QUEUE_SLOTS};

int main(void) {
    pthread_mutex_init(&queue.lock, NULL);
    pthread_cond_init(&queue.can_put, NULL);
    pthread_cond_init(&queue.can_take, NULL);
    const struct CMUnitTest tests[] = {
        {"one_producer_one_consumer", stays_within_its_bound, NULL, NULL, &one_to_one},
        {"one_producer_many_consumers", stays_within_its_bound, NULL, NULL, &one_to_many},
        {"many_producers_one_consumer", stays_within_its_bound, NULL, NULL, &many_to_one},
        {"bursts", stays_within_its_bound, NULL, NULL, &bursty},
    };
    return cmocka_run_group_tests_name("handover", tests, NULL, heap_is_sound);
}
