/*
 * soak_test.c - a mixed load on eight threads with thread and fork churn: the resident size does not drift.
 *
 * suite: limit 1500 s, slow, flavours release
 * Runs two minutes times TEST_SCALE (20 minutes in test-all), sampling the resident size. After the first
 * quarter the slope of a line through the samples must be zero within its own 95 % interval, or so flat that
 * it is less than the spread of the samples over the whole run.
 */
#include "memory/rss_kit.h"
#include "support/slots.h"
#include "support/target.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define THREADS     8u
#define SLOTS       2000u
#define STEPS       200000u /* of one thread's life */
#define SAMPLE_MS   250u
#define SAMPLES_MAX 8192u
#define SECONDS     120u
#define FORK_EVERY  20u /* samples */

static const struct load mixed = {8, 64 * KIB, 32, 48, 16};
static atomic_bool is_over;

static void *live_once(void *seed) {
    static _Thread_local struct slot slots[SLOTS];
    struct rng rng = rng_seeded((uintptr_t)seed);
    for (unsigned i = 0; i < STEPS && !atomic_load(&is_over); i++) {
        slots_step(slots, SLOTS, &mixed, &rng);
    }
    slots_clear(slots, SLOTS);
    return NULL;
}

/* A place for threads: when one ends, the next begins. */
static void *live_on(void *place) {
    for (uintptr_t life = 0; !atomic_load(&is_over); life++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, live_once, (void *)((uintptr_t)place * 1000003 + life)) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    return NULL;
}

static void fork_a_child(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (unsigned i = 0; i < 1000; i++) {
            free(launder(malloc(i * 16)));
        }
        check_heap();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

struct line {
    double slope;    /* of a least squares line, per sample */
    double interval; /* half of its 95 % interval, for samples that do not depend on each other */
    double spread;   /* standard deviation of what is off the line */
};

static struct line fit(const double *values, size_t count) {
    double mean_x = (double)(count - 1) / 2, mean_y = 0, sum_xx = 0, sum_xy = 0, sum_rr = 0;
    for (size_t i = 0; i < count; i++) {
        mean_y += values[i] / (double)count;
    }
    for (size_t i = 0; i < count; i++) {
        sum_xx += ((double)i - mean_x) * ((double)i - mean_x);
        sum_xy += ((double)i - mean_x) * (values[i] - mean_y);
    }
    struct line line = {.slope = sum_xy / sum_xx};
    for (size_t i = 0; i < count; i++) {
        double off = values[i] - mean_y - line.slope * ((double)i - mean_x);
        sum_rr += off * off;
    }
    line.spread = sqrt(sum_rr / (double)(count - 2));
    line.interval = 1.96 * line.spread / sqrt(sum_xx);
    return line;
}

static void the_resident_size_does_not_drift(void **state) {
    static double samples[SAMPLES_MAX];
    pthread_t threads[THREADS];
    size_t count = 0;
    (void)state;
    uint64_t end_ms = clock_now_ms() + (uint64_t)SECONDS * 1000 * test_scale();
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, live_on, (void *)(i + 1)), 0);
    }
    while (clock_now_ms() < end_ms && count < SAMPLES_MAX) {
        usleep(SAMPLE_MS * 1000);
        samples[count++] = (double)rss_bytes() / (double)MIB;
        if (count % FORK_EVERY == 0) {
            fork_a_child();
        }
    }
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    size_t first = count / 4;
    struct line line = fit(samples + first, count - first);
    double rise = line.slope * (double)(count - first);
    print_message("%zu samples, %.1f MiB at first, %.1f at the end; the line rises by %.2f MiB (+- %.2f), "
                  "spread %.2f\n",
                  count, samples[first], samples[count - 1], rise, line.interval * (double)(count - first),
                  line.spread);
    assert_true(rise < line.interval * (double)(count - first) || rise < line.spread);
    check_heap();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_resident_size_does_not_drift),
    };
    return cmocka_run_group_tests_name("soak", tests, NULL, heap_is_sound);
}
