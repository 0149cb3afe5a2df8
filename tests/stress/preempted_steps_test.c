/*
 * preempted_steps_test.c - after each instruction of one thread's operation another thread completes one of
 * its own: both find what they wrote in their blocks, and the heap is sound.
 *
 * suite: limit 240 s, flavours release debug
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/single_step.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define STOPS_PER_TEST 2500u /* times TEST_SCALE */
#define GIFTS          2000u
#define GIFT_BYTES     3000u /* of them one in four, the others a sixth of it */
#define OWN_SLOTS      200u

/* ---- the thread that comes between ---- */

static const struct load any_load = {16, 6 * MIB, 32, 64, 16};
static const struct load small_load = {16, 4096, 32, 32, 16};
static struct slot others[OWN_SLOTS];
static void *_Atomic gifts[GIFTS]; /* of the stepping thread, for this one to free */
static struct rng rng;

static void free_gifts(void) {
    for (unsigned i = 0; i < 3; i++) {
        free(atomic_exchange(&gifts[rng_below(&rng, GIFTS)], NULL));
    }
}

static int count_block(void *block, size_t usable_bytes, void *count) {
    (void)block;
    (void)usable_bytes;
    ++*(size_t *)count;
    return 0;
}

static void look_at_everything(void) {
    size_t count = 0;
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_heap_walk(count_block, &count) == 0);
    CHECK(hak_stats_get(&stats) == 0);
}

static void *live_shortly(void *unused) {
    free(malloc(100));
    free(malloc(GIFT_BYTES));
    return unused;
}

static void start_a_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, live_shortly, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void come_between(void) {
    size_t what = rng_below(&rng, 100);
    if (what < 40) {
        free_gifts();
    } else if (what < 75) {
        slots_step(others, COUNT_OF(others), &small_load, &rng);
    } else if (what < 90) {
        slots_step(others, COUNT_OF(others), &any_load, &rng);
    } else if (what < 94) {
        (void)malloc_trim(0);
    } else if (what < 97) {
        look_at_everything();
    } else if (what < 99) {
        check_heap();
    } else {
        start_a_thread();
    }
}

/* ---- the thread that steps ---- */

#define HELD_MAX   1000u
#define MARK_BYTES 64u

static unsigned stride;
static struct {
    unsigned char *block;
    size_t bytes;
} held[HELD_MAX];

static void hold(size_t i, unsigned char *block, size_t bytes) {
    CHECK(block != NULL);
    memset(block, (int)i, bytes < MARK_BYTES ? bytes : MARK_BYTES);
    block[bytes - 1] = (unsigned char)i;
    held[i].bytes = bytes;
    held[i].block = block;
}

static void check_held(size_t i, size_t bytes) {
    for (size_t k = 0; k < bytes && k < MARK_BYTES; k++) {
        CHECK(held[i].block[k] == (unsigned char)i);
    }
}

static void take(size_t i, size_t bytes) {
    single_step_on(stride);
    void *block = malloc(bytes);
    single_step_off();
    hold(i, block, bytes);
}

static void drop(size_t i) {
    check_held(i, held[i].bytes);
    CHECK(held[i].block[held[i].bytes - 1] == (unsigned char)i);
    single_step_on(stride);
    free(held[i].block);
    single_step_off();
    held[i].block = NULL;
}

static void resize(size_t i, size_t bytes) {
    single_step_on(stride);
    held[i].block = realloc(held[i].block, bytes);
    single_step_off();
    check_held(i, bytes < held[i].bytes ? bytes : held[i].bytes);
    hold(i, held[i].block, bytes);
}

static void give(void) {
    for (unsigned i = 0; i < GIFTS; i++) {
        if (atomic_load(&gifts[i]) == NULL) {
            size_t bytes = i % 4 == 0 ? GIFT_BYTES : GIFT_BYTES / 6;
            void *block = malloc(bytes);
            CHECK(block != NULL);
            memset(block, 0x77, bytes);
            atomic_store(&gifts[i], block);
        }
    }
}

/* Of the classes of which the other thread frees the gifts. */
static void a_cold_class(void) {
    for (size_t i = 0; i < 20; i++) {
        take(i, i % 2 == 0 ? GIFT_BYTES : GIFT_BYTES / 6);
    }
    for (size_t i = 0; i < 20; i++) {
        drop(i);
    }
}

static void a_hot_class(void) {
    for (size_t i = 0; i < HELD_MAX; i++) {
        if (i < 100) {
            take(i, 64);
        } else {
            hold(i, malloc(64), 64);
        }
    }
    for (size_t i = 0; i < HELD_MAX; i++) {
        if (i % 5 == 0) {
            drop(i);
        } else {
            check_held(i, 64);
            free(held[i].block);
        }
    }
}

static void large_blocks(void) {
    take(0, 300000);
    take(1, 2000000);
    resize(0, 900000);
    resize(0, 6000000);
    drop(1);
    take(1, 3500000);
    resize(0, 80000);
    drop(0);
    drop(1);
}

static void growing_and_shrinking(void) {
    take(0, 20);
    for (size_t bytes = 30; bytes < 60000; bytes *= 3) {
        resize(0, bytes);
    }
    for (size_t bytes = 50000; bytes > 30; bytes /= 4) {
        resize(0, bytes);
    }
    drop(0);
}

static void giving_back(void) {
    single_step_on(stride);
    (void)malloc_trim(0);
    single_step_off();
}

/* Twice: to know how long it is, and with so many stops as there is time for. */
static void preempt(void (*operations)(void)) {
    unsigned long most = (unsigned long)STOPS_PER_TEST * test_scale();
    struct single_steps steps = {0};
    if (!hak_is_there() || !single_step_is_possible()) {
        SKIP_BECAUSE("hakmem as a shared library, on x86-64");
    }
    rng = rng_seeded(7);
    single_step_start(come_between);
    for (unsigned round = 0; round < 2; round++) {
        stride = (unsigned)(steps.instructions / most + (round != 0));
        give();
        operations();
        steps = single_step_counts();
    }
    single_step_end();
    print_message("%lu instructions, %lu operations between them\n", steps.instructions, steps.stops);
    assert_int_not_equal(steps.stops, 0);
    check_heap();
}

#define PREEMPT_IN(operations)                                                                               \
    static void preempted_in_##operations(void **state) {                                                    \
        (void)state;                                                                                         \
        preempt(operations);                                                                                 \
    }

PREEMPT_IN(a_cold_class)
PREEMPT_IN(a_hot_class)
PREEMPT_IN(large_blocks)
PREEMPT_IN(growing_and_shrinking)
PREEMPT_IN(giving_back)

static int free_the_rest(void **state) {
    slots_clear(others, COUNT_OF(others));
    for (unsigned i = 0; i < GIFTS; i++) {
        free(atomic_exchange(&gifts[i], NULL));
    }
    return heap_is_sound(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(preempted_in_a_cold_class), cmocka_unit_test(preempted_in_a_hot_class),
        cmocka_unit_test(preempted_in_large_blocks), cmocka_unit_test(preempted_in_growing_and_shrinking),
        cmocka_unit_test(preempted_in_giving_back),
    };
    return cmocka_run_group_tests_name("preempted_steps", tests, NULL, free_the_rest);
}
