/*
 * handover_test.c - producers and consumers: what one thread allocates and another frees costs no more than
 * what is live and 4 MB, however long it goes on, however many there are of each, and whoever is quick.
 *
 * suite: limit 340 s, alone
 * Live memory is what lies in the queue, counted under its lock. After each of 40 equal parts of the run,
 * while everybody is at work, the resident size is read under that lock too. The highest is held against the
 * most that was ever live, the mean of what is beyond live against 4 MB as well; and the last quarter's mean
 * against the second's.
 */
#include "memory/rss_kit.h"
#include "support/child.h"
#include "support/target.h"

#include <pthread.h>
#include <stdio.h>

#define MB           ((size_t)1000 * 1000)
#define EXTRA_BYTES  (4 * MB)
#define HAND_BYTES   (256 * KIB) /* slack: what each producer but the first may have in hand */
#define MOMENT_BYTES (1 * MIB)   /* slack of the highest over the mean */
#define DRIFT_BYTES  (2 * MB)    /* slack: how full the queue was at last differs by as much */
#define STACK_BYTES  (256 * KIB)
#define THREAD_BYTES (128 * KIB) /* stack, thread-local data of this test, and what the C library has */
#define QUEUE_SLOTS  4096u
#define BYTES_MIN    64u
#define BYTES_MAX    1024u
#define PARTS        40u
#define ITEMS        2000000u  /* of a form: a second */
#define ITEMS_OF_ALL 24000000u /* for each TEST_SCALE where that is above 1: two minutes in test-all */
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
    size_t bytes[QUEUE_SLOTS]; /* as asked for */
    size_t live_bytes;         /* of blocks in the queue */
    size_t most_live_bytes;    /* so far */
    size_t put, taken;         /* so far */
    size_t total;
    size_t burst;
    bool is_draining;
} queue;

static void put(void *block, size_t bytes) {
    pthread_mutex_lock(&queue.lock);
    while (queue.put - queue.taken == QUEUE_SLOTS || queue.is_draining) {
        pthread_cond_wait(&queue.can_put, &queue.lock);
    }
    queue.live_bytes += bytes;
    queue.most_live_bytes =
        queue.live_bytes > queue.most_live_bytes ? queue.live_bytes : queue.most_live_bytes;
    queue.bytes[queue.put % QUEUE_SLOTS] = bytes;
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
        queue.live_bytes -= queue.bytes[queue.taken % QUEUE_SLOTS];
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
        put(block, bytes);
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

struct sample {
    size_t own_bytes; /* resident, beyond what there was before */
    size_t live_bytes;
};

static void watch(size_t before, struct sample samples[PARTS]) {
    for (unsigned part = 0; part < PARTS; part++) {
        while (items_taken() < (part + 1) * (queue.total / PARTS)) {
            usleep(500);
        }
        pthread_mutex_lock(&queue.lock);
        size_t now = anonymous_bytes();
        samples[part] =
            (struct sample){.own_bytes = now > before ? now - before : 0, .live_bytes = queue.live_bytes};
        pthread_mutex_unlock(&queue.lock);
    }
}

static size_t highest(const struct sample *samples) {
    size_t most = 0;
    for (unsigned i = 0; i < PARTS; i++) {
        most = samples[i].own_bytes > most ? samples[i].own_bytes : most;
    }
    return most;
}

/* The mean of what is beyond live. */
static size_t mean_beyond(const struct sample *samples, unsigned first, unsigned end) {
    size_t sum = 0;
    for (const struct sample *s = samples + first; s != samples + end; s++) {
        sum += s->own_bytes > s->live_bytes ? s->own_bytes - s->live_bytes : 0;
    }
    return sum / (end - first);
}

static void start(struct worker *worker, void *(*function)(void *)) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    CHECK(pthread_create(&worker->thread, &attributes, function, worker) == 0);
    pthread_attr_destroy(&attributes);
}

static size_t items_of_a_form(void) {
    if (library_is_debug()) {
        return ITEMS / 4 * test_scale();
    }
    return test_scale() > 1 ? ITEMS_OF_ALL * test_scale() : ITEMS;
}

/* In a process of its own, so that nothing is left of the form before. */
static int run_form(void *context) {
    const struct form *form = context;
    static struct sample samples[PARTS];
    struct worker producers[THREADS_MAX], consumers[THREADS_MAX];
    size_t total = items_of_a_form();
    queue.put = queue.taken = queue.live_bytes = queue.most_live_bytes = 0;
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
    watch(before, samples);
    for (unsigned i = 0; i < form->producers; i++) {
        CHECK(pthread_join(producers[i].thread, NULL) == 0);
    }
    for (unsigned i = 0; i < form->consumers; i++) {
        CHECK(pthread_join(consumers[i].thread, NULL) == 0);
    }
    size_t mean_max = EXTRA_BYTES + (form->producers - 1) * HAND_BYTES;
    size_t highest_max = queue.most_live_bytes + EXTRA_BYTES + MOMENT_BYTES +
                         (form->producers + form->consumers) * THREAD_BYTES;
    size_t early = mean_beyond(samples, PARTS / 4, PARTS / 2);
    size_t late = mean_beyond(samples, PARTS / 4 * 3, PARTS);
    size_t all = mean_beyond(samples, 0, PARTS);
    printf("%-6s KiB: most live %zu, highest %zu of %zu; beyond live %zu of %zu on average, second quarter "
           "%zu, last %zu\n",
           form->name, queue.most_live_bytes / KIB, highest(samples) / KIB, highest_max / KIB, all / KIB,
           mean_max / KIB, early / KIB, late / KIB);
    fflush(stdout);
    CHECK(highest(samples) <= highest_max);
    CHECK(all <= mean_max);
    CHECK(late <= early + DRIFT_BYTES);
    check_heap();
    return 0;
}

static void stays_within_its_bound(void **state) {
    static struct child child;
    REQUIRE_HAK();
    child =
        (struct child){.function = run_form, .context = *state, .timeout_s = test_scale() > 1 ? 1200 : 160};
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
