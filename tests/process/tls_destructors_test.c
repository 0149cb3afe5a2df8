/*
 * tls_destructors_test.c - libraries with thread-local objects come and go while threads allocate.
 *
 * suite: limit 700 s
 * Threads load a C++ library, let its thread_local object take blocks, close the library and end: the
 * object's destructor then frees and allocates, late in the thread's life, and the loader unmaps the library
 * behind it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/slots.h"
#include "support/soak.h"
#include "support/target.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4u

static char library[512];

static void *load_and_keep(void *seed) {
    static const struct load load = {8, 40000, 32, 48, 16};
    struct slot slots[40] = {{0}};
    struct rng rng = rng_seeded((uintptr_t)seed);
    size_t (*keep)(size_t bytes);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle != NULL);
    void *symbol = dlsym(handle, "plugin_keep");
    CHECK(symbol != NULL);
    memcpy(&keep, &symbol, sizeof keep);
    for (unsigned i = 0; i < 60; i++) {
        slots_step(slots, COUNT_OF(slots), &load, &rng);
        CHECK(keep(rng_log_between(&rng, 8, 70000)) == i + 1);
    }
    slots_clear(slots, COUNT_OF(slots));
    CHECK(dlclose(handle) == 0);
    return NULL;
}

static void run_generation(unsigned long seed) {
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, load_and_keep, (void *)(seed + i)) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static size_t live_bytes(void) {
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    return stats.live_bytes;
}

static void what_thread_locals_kept_is_freed(void **state) {
    (void)state;
    REQUIRE_HAK();
    const char *plain = getenv("TEST_PLAIN");
    assert_non_null(plain);
    snprintf(library, sizeof library, "%s/plugins/tls_destructor.so", plain);
    run_generation(0);
    size_t before = live_bytes(), generations = 0;
    for (time_t end = soak_end(); soak_goes_on(end); generations++) {
        run_generation(generations * THREADS);
    }
    check_heap();
    assert_true(generations > 2);
    assert_true(live_bytes() <= before + 64 * KIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_thread_locals_kept_is_freed)};
    return cmocka_run_group_tests_name("tls destructors", tests, NULL, heap_is_sound);
}
