/*
 * footprint_test.c - what hakmem costs a trivial program, against libc: resident and virtual memory, output,
 * descriptors; and a thread that does nothing.
 *
 * suite: alone
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RSS_EXTRA_KIB_MAX 307l   /* 0.3 MiB */
#define VSZ_EXTRA_KIB_MAX 24000l /* 24 MB */
#define RUNS              151u

struct footprint {
    long vsz_kib, rss_kib, next_fd;
};

static struct child child;

static struct footprint run_trivial(const char *preload) {
    static char path[4096];
    const char *folder = getenv("TEST_PLAIN");
    struct footprint footprint;
    snprintf(path, sizeof path, "%s/process/trivial", folder != NULL ? folder : ".");
    child = (struct child){.program = path, .environment = {preload}};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.err, "");
    assert_int_equal(
        sscanf(child.out, "%ld %ld %ld", &footprint.vsz_kib, &footprint.rss_kib, &footprint.next_fd), 3);
    return footprint;
}

static int by_value(const void *left, const void *right) {
    long difference = *(const long *)left - *(const long *)right;
    return difference < 0 ? -1 : difference > 0;
}

/* Medians: a page more or less is the dynamic loader's. */
static struct footprint median_footprint(const char *preload) {
    long vsz_kib[RUNS], rss_kib[RUNS];
    struct footprint footprint = {0, 0, 0};
    for (unsigned i = 0; i < RUNS; i++) {
        footprint = run_trivial(preload);
        vsz_kib[i] = footprint.vsz_kib;
        rss_kib[i] = footprint.rss_kib;
    }
    qsort(vsz_kib, RUNS, sizeof vsz_kib[0], by_value);
    qsort(rss_kib, RUNS, sizeof rss_kib[0], by_value);
    return (struct footprint){vsz_kib[RUNS / 2], rss_kib[RUNS / 2], footprint.next_fd};
}

static void a_trivial_program_stays_small(void **state) {
    (void)state;
    REQUIRE_HAK();
    if (library_is_debug()) {
        SKIP_BECAUSE("a promise of the release flavour");
    }
    static char preload[4200];
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library_path());
    struct footprint libc = median_footprint("LD_PRELOAD");
    struct footprint own = median_footprint(preload);
    print_message("libc: VSZ %ld KiB, RSS %ld KiB; hakmem: VSZ %ld KiB, RSS %ld KiB\n", libc.vsz_kib,
                  libc.rss_kib, own.vsz_kib, own.rss_kib);
    assert_true(own.rss_kib <= libc.rss_kib + RSS_EXTRA_KIB_MAX);
    assert_true(own.vsz_kib <= libc.vsz_kib + VSZ_EXTRA_KIB_MAX);
    assert_int_equal(own.next_fd, libc.next_fd);
}

/* Exact, unlike the resident size in statm, which is a sum of per-processor counters. */
static long resident_kib(void) {
    char line[256];
    long kib = -1;
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    assert_non_null(rollup);
    while (kib < 0 && fgets(line, sizeof line, rollup) != NULL) {
        (void)sscanf(line, "Rss: %ld", &kib);
    }
    fclose(rollup);
    assert_true(kib > 0);
    return kib;
}

#define THREADS            32u
#define SIZES_TOUCHED      100u
#define IDLE_THREAD_KIB    48l
#define THREAD_OF_LIBC_KIB 16l /* its stack and thread block, which are not hakmem's */

static pthread_barrier_t settled, measured;

static void *touch_sizes_then_idle(void *unused) {
    void *blocks[SIZES_TOUCHED];
    for (unsigned i = 0; i < SIZES_TOUCHED; i++) {
        blocks[i] = malloc(16 + i * 16);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, 16 + i * 16);
    }
    for (unsigned i = 0; i < SIZES_TOUCHED; i++) {
        free(blocks[i]);
    }
    pthread_barrier_wait(&settled);
    pthread_barrier_wait(&measured);
    return unused;
}

/* Per thread that touched 100 sizes up to 1600 bytes, freed all and idles. */
static void an_idle_thread_keeps_little(void **state) {
    (void)state;
    REQUIRE_HAK();
    if (library_is_debug()) {
        SKIP_BECAUSE("a promise of the release flavour");
    }
    pthread_t threads[THREADS];
    pthread_barrier_init(&settled, NULL, THREADS + 1);
    pthread_barrier_init(&measured, NULL, THREADS + 1);
    long before_kib = resident_kib();
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, touch_sizes_then_idle, NULL), 0);
    }
    pthread_barrier_wait(&settled);
    long per_thread_kib = (resident_kib() - before_kib) / (long)THREADS;
    pthread_barrier_wait(&measured);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    print_message("per idle thread: %ld KiB\n", per_thread_kib);
    assert_true(per_thread_kib <= IDLE_THREAD_KIB + THREAD_OF_LIBC_KIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trivial_program_stays_small),
        cmocka_unit_test(an_idle_thread_keeps_little),
    };
    return cmocka_run_group_tests_name("footprint", tests, NULL, heap_is_sound);
}
