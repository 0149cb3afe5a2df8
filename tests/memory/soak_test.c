/*
 * soak_test.c - a mixed load on eight threads with thread and fork churn: the resident size does not drift.
 *
 * suite: limit 1800 s, slow, flavours release
 * Runs two minutes times TEST_SCALE (20 minutes in test-all), sampling the resident size. Threads live for a
 * second or so, so that their heaps have come and gone many times when the first quarter is over; what
 * follows is the test. Samples that are near in time are not independent, so they are averaged in batches,
 * and a line is laid through the batches. It must rise by no more than chance explains, or by so little that
 * it does not matter.
 */
#include "memory/rss_kit.h"
#include "support/slots.h"
#include "support/target.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define THREADS     8u
#define SLOTS       500u
#define STEPS       10000u /* of one thread's life */
#define SAMPLE_MS   250u
#define SAMPLES_MAX 8192u
#define SECONDS     120u
#define FORK_EVERY  20u /* samples */
#define BATCHES     20u
#define T_QUANTILE                                                                                           \
    3.61 /* of Student's distribution with 18 degrees of freedom, one chance in a thousand above it */
#define FLAT_SHARE 0.01 /* of the mean: a rise that does not matter */

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

/* A least squares line through the means of batches; in the unit of the values, over the whole of them. */
struct line {
    double mean;
    double rise;
    double interval; /* what the rise may be by chance */
};

static void average(const double *values, size_t count, double means[BATCHES]) {
    for (size_t batch = 0; batch < BATCHES; batch++) {
        size_t first = count * batch / BATCHES, end = count * (batch + 1) / BATCHES;
        means[batch] = 0;
        for (size_t i = first; i < end; i++) {
            means[batch] += values[i] / (double)(end - first);
        }
    }
}

static struct line fit(const double *values, size_t count) {
    double means[BATCHES], sum_xx = 0, sum_xy = 0, sum_rr = 0, middle = (BATCHES - 1) / 2.0;
    struct line line = {0};
    average(values, count, means);
    for (size_t i = 0; i < BATCHES; i++) {
        line.mean += means[i] / BATCHES;
        sum_xx += ((double)i - middle) * ((double)i - middle);
    }
    for (size_t i = 0; i < BATCHES; i++) {
        sum_xy += ((double)i - middle) * (means[i] - line.mean);
    }
    double slope = sum_xy / sum_xx;
    for (size_t i = 0; i < BATCHES; i++) {
        double off = means[i] - line.mean - slope * ((double)i - middle);
        sum_rr += off * off;
    }
    line.rise = slope * BATCHES;
    line.interval = T_QUANTILE * sqrt(sum_rr / (BATCHES - 2) / sum_xx) * BATCHES;
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
    print_message(
        "%zu samples, %.1f MiB at first, %.1f at the end, mean %.1f; the line rises by %.2f MiB (+- %.2f)\n",
        count, samples[first], samples[count - 1], line.mean, line.rise, line.interval);
    assert_true(line.rise < line.interval || line.rise < line.mean * FLAT_SHARE);
    check_heap();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_resident_size_does_not_drift),
    };
    return cmocka_run_group_tests_name("soak", tests, NULL, heap_is_sound);
}
