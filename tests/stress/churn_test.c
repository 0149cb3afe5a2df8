/*
 * churn_test.c - random sizes and lifetimes on several threads at once, each with blocks of its own.
 *
 * suite: limit 240 s
 * Imitates an interpreter (small objects that die young beside a few that stay), a compiler (phases that grow
 * and then drop everything), a server that handles images (a mix up to megabytes), and workers that have one
 * buffer after the other.
 */
#include "support/names.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <string.h>

#define THREADS     4u
#define THREADS_MAX 16u
#define SLOTS_MAX   4000u

struct job {
    const struct load *load;
    size_t slots;
    unsigned steps;
    unsigned drops; /* how often everything is dropped */
    uint64_t seed;
};

static void *work(void *context) {
    const struct job *job = context;
    struct rng rng = rng_seeded(job->seed);
    size_t table_bytes = job->slots * sizeof(struct slot);
    struct slot *slots = TEST_MALLOC(table_bytes);
    CHECK(slots != NULL);
    memset(slots, 0, table_bytes);
    for (unsigned drop = 0; drop < job->drops; drop++) {
        for (unsigned step = 0; step < job->steps / job->drops; step++) {
            slots_step(slots, job->slots, job->load, &rng);
        }
        slots_check_overlap(slots, job->slots);
        slots_clear(slots, job->slots);
    }
    TEST_FREE(slots);
    return NULL;
}

static void run_on(unsigned count, const struct load *load, size_t slots, unsigned steps, unsigned drops) {
    pthread_t threads[THREADS_MAX];
    struct job jobs[THREADS_MAX];
    for (unsigned i = 0; i < count; i++) {
        jobs[i] = (struct job){load, slots, steps * test_scale() / TEST_SLOWNESS, drops, i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    check_heap();
}

static void run_on_threads(const struct load *load, size_t slots, unsigned steps, unsigned drops) {
    run_on(THREADS, load, slots, steps, drops);
}

static void interpreter_objects(void **state) {
    (void)state;
    static const struct load load = {8, 600, 16, 16, 0};
    run_on_threads(&load, SLOTS_MAX, 150000, 3);
}

static void compiler_phases(void **state) {
    (void)state;
    static const struct load load = {16, 20000, 64, 24, 4};
    run_on_threads(&load, 2000, 40000, 10);
}

static void image_server(void **state) {
    (void)state;
    static const struct load load = {64, 4 * MIB, 32, 32, 16};
    run_on_threads(&load, 24, 3000, 4);
}

static void everything_at_once(void **state) {
    (void)state;
    static const struct load load = {1, 256 * KIB, 64, 64, 32};
    run_on_threads(&load, 200, 12000, 4);
}

/* More threads than there are shards of parked runs: so what one frees, another has next. */
static void buffers_come_and_go(void **state) {
    (void)state;
    static const struct load load = {33 * KIB, 500 * KIB, 0, 8, 0};
    run_on(THREADS_MAX, &load, 2, 2000, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interpreter_objects), cmocka_unit_test(compiler_phases),
        cmocka_unit_test(image_server),        cmocka_unit_test(everything_at_once),
        cmocka_unit_test(buffers_come_and_go),
    };
    return cmocka_run_group_tests_name("churn", tests, NULL, heap_is_sound);
}
