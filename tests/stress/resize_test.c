/*
 * resize_test.c - realloc mixes: growing strings, vectors that double, buffers that shrink, from many
 * threads.
 *
 * suite: limit 240 s
 * Imitates string builders and std::vector-like tables in interpreters, and readers that grow a file buffer
 * to megabytes and then cut it to size; blocks also change threads between two resizes.
 */
#include "support/names.h"
#include "support/pattern.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4u

static void run_threads(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, body, (void *)i), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    check_heap();
}

/* Grows by `step` until `limit`, checking that every byte came along. */
static void build(size_t (*next)(size_t), size_t limit, uint64_t seed) {
    size_t bytes = 1;
    unsigned char *block = TEST_MALLOC(bytes);
    CHECK(block != NULL);
    pattern_fill(block, bytes, seed);
    while (bytes < limit) {
        size_t wanted = next(bytes);
        block = TEST_REALLOC(block, wanted);
        CHECK(block != NULL);
        CHECK(pattern_holds(block, bytes, seed));
        bytes = wanted;
        pattern_fill(block, bytes, seed);
    }
    block = TEST_REALLOC(block, bytes / 3 + 1);
    CHECK(block != NULL);
    CHECK(pattern_holds(block, bytes / 3 + 1, seed));
    TEST_FREE(block);
}

static size_t append_a_line(size_t bytes) {
    return bytes + 40 + bytes % 50;
}

static size_t double_it(size_t bytes) {
    return bytes * 2;
}

static size_t grow_by_half(size_t bytes) {
    return bytes + bytes / 2 + 8;
}

static size_t read_64_kib_more(size_t bytes) {
    return bytes + 64 * KIB;
}

static void *string_builder(void *seed) {
    for (unsigned i = 0; i < 40 * test_scale() / TEST_SLOWNESS; i++) {
        build(append_a_line, 6000, (uintptr_t)seed + i);
    }
    return NULL;
}

static void *vectors(void *seed) {
    for (unsigned i = 0; i < 16 * test_scale() / TEST_SLOWNESS; i++) {
        build(double_it, 2 * MIB, (uintptr_t)seed + i);
        build(grow_by_half, MIB, (uintptr_t)seed + i);
    }
    return NULL;
}

static void *file_reader(void *seed) {
    for (unsigned i = 0; i < 8 * test_scale() / TEST_SLOWNESS; i++) {
        build(read_64_kib_more, 2 * MIB, (uintptr_t)seed + i);
    }
    return NULL;
}

static void strings_grow_line_by_line(void **state) {
    (void)state;
    run_threads(string_builder);
}

static void vectors_double(void **state) {
    (void)state;
    run_threads(vectors);
}

static void file_buffers_grow_and_are_cut(void **state) {
    (void)state;
    run_threads(file_reader);
}

#define TABLE_SLOTS 256u
static struct slot table[TABLE_SLOTS];
static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Takes a random slot out of the table, resizes it as its own, puts it back: blocks resized by all threads.
 */
static void *resize_anybodys(void *seed) {
    static const struct load load = {1, 100000, 0, 0, 0};
    struct rng rng = rng_seeded((uintptr_t)seed);
    for (unsigned i = 0; i < 6000 * test_scale() / TEST_SLOWNESS; i++) {
        size_t index = rng_below(&rng, TABLE_SLOTS);
        pthread_mutex_lock(&table_mutex);
        struct slot slot = table[index];
        table[index].block = NULL;
        pthread_mutex_unlock(&table_mutex);
        if (slot.block == NULL) {
            CHECK(slot_fill(&slot, &load, &rng));
        } else {
            CHECK(slot_resize(&slot, &load, &rng));
        }
        pthread_mutex_lock(&table_mutex);
        struct slot displaced = table[index];
        table[index] = slot;
        pthread_mutex_unlock(&table_mutex);
        slot_clear(&displaced);
    }
    return NULL;
}

static void blocks_are_resized_by_all_threads(void **state) {
    (void)state;
    run_threads(resize_anybodys);
    slots_check_overlap(table, TABLE_SLOTS);
    slots_clear(table, TABLE_SLOTS);
    check_heap();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_grow_line_by_line),
        cmocka_unit_test(vectors_double),
        cmocka_unit_test(file_buffers_grow_and_are_cut),
        cmocka_unit_test(blocks_are_resized_by_all_threads),
    };
    return cmocka_run_group_tests_name("resize", tests, NULL, heap_is_sound);
}
