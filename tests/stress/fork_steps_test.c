/*
 * fork_steps_test.c - a fork after each instruction of another thread's operation: the child finds a sound
 * heap, every block that was live, none besides but the one in flight, and can free them all.
 *
 * suite: limit 240 s, flavours release debug
 * Imitates subprocess.Popen in a threaded program, a million times.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/single_step.h"
#include "support/target.h"
#include "support/test.h"

#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELD_MAX        2000u
#define SEEN_MAX        10000u
#define MARK_BYTES      64u
#define FORKS_PER_TEST  300u /* times TEST_SCALE */
#define CHILD_LIMIT_S   60u
#define LIBC_BLOCKS_MAX 4u /* what libc allocates for a thread */

struct held {
    unsigned char *block; /* NULL: none, or in flight */
    size_t bytes;
};

static struct held held[HELD_MAX];
static unsigned in_flight_max; /* blocks that may be live or not */
static size_t others;          /* blocks that were live before */

/* ---- in the child ---- */

static unsigned char *seen[SEEN_MAX];
static size_t seen_count;

static int note_seen(void *block, size_t usable_bytes, void *unused) {
    (void)usable_bytes;
    (void)unused;
    CHECK(seen_count < SEEN_MAX);
    seen[seen_count++] = block;
    return 0;
}

static void walk(void) {
    seen_count = 0;
    CHECK(hak_heap_walk(note_seen, NULL) == 0);
}

static int by_address(const void *left, const void *right) {
    uintptr_t a = *(const uintptr_t *)left, b = *(const uintptr_t *)right;
    return (a > b) - (a < b);
}

static unsigned char mark_of(size_t i) {
    return (unsigned char)(i + 1);
}

static bool is_whole(const struct held *one, unsigned char mark) {
    for (size_t i = 0; i < one->bytes && i < MARK_BYTES; i++) {
        if (one->block[i] != mark) {
            return false;
        }
    }
    return true;
}

/* Overwrites what it gets: a block of somebody else's would show. */
static void allocate_and_free(void) {
    static const size_t sizes[] = {16, 64, 500, 3000, 5000, 40000, 300000};
    static void *blocks[COUNT_OF(sizes)][20];
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        for (unsigned i = 0; i < COUNT_OF(blocks[0]); i++) {
            blocks[s][i] = malloc(sizes[s]);
            CHECK(blocks[s][i] != NULL);
            memset(blocks[s][i], 0xEE, sizes[s] < 4096 ? sizes[s] : 4096);
        }
    }
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        for (unsigned i = 0; i < COUNT_OF(blocks[0]); i++) {
            free(blocks[s][i]);
        }
    }
}

static void check_live_blocks(void) {
    size_t count = 0;
    walk();
    qsort(seen, seen_count, sizeof seen[0], by_address);
    for (size_t i = 0; i < HELD_MAX; i++) {
        if (held[i].block != NULL) {
            count++;
            CHECK(is_whole(&held[i], mark_of(i)));
            CHECK(bsearch(&held[i].block, seen, seen_count, sizeof seen[0], by_address) != NULL);
        }
    }
    CHECK(seen_count >= others + count && seen_count <= others + count + in_flight_max);
}

/* libc's own blocks, too: the child ends without it. */
static void free_everything(void) {
    for (size_t i = 0; i < seen_count; i++) {
        free(seen[i]);
    }
    (void)malloc_trim(0);
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    CHECK(stats.live_blocks == 0);
    for (unsigned c = 0; c < HAK_STATS_CLASSES; c++) {
        CHECK(stats.classes[c].slabs == 0);
    }
}

static void live_as_child(void) {
    allocate_and_free();
    check_heap();
    check_live_blocks();
    free_everything();
    check_heap();
    _exit(0);
}

/* ---- the thread that forks ---- */

static void fork_now(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(CHILD_LIMIT_S);
        live_as_child();
    }
    single_step_hold();
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) {
        fprintf(stderr, "the child of a fork before the instruction at 0x%zx ended with wait status 0x%x\n",
                (size_t)single_step_where(), (unsigned)status);
    }
    CHECK(status == 0);
}

/* ---- the thread that steps ---- */

static unsigned stride;

static void hold(size_t i, void *block, size_t bytes) {
    CHECK(block != NULL);
    memset(block, mark_of(i), bytes < MARK_BYTES ? bytes : MARK_BYTES);
    held[i].bytes = bytes;
    held[i].block = block;
}

static void *let_go(size_t i) {
    void *block = held[i].block;
    held[i].block = NULL;
    return block;
}

static void take(size_t i, size_t bytes) {
    single_step_on(stride);
    void *block = malloc(bytes);
    single_step_off();
    hold(i, block, bytes);
}

static void take_unseen(size_t i, size_t bytes) {
    hold(i, malloc(bytes), bytes);
}

static void resize(size_t i, size_t bytes) {
    void *old = let_go(i);
    single_step_on(stride);
    void *block = realloc(old, bytes);
    single_step_off();
    hold(i, block, bytes);
}

static void drop(size_t i) {
    void *block = let_go(i);
    single_step_on(stride);
    free(block);
    single_step_off();
}

static void drop_unseen(size_t i) {
    free(let_go(i));
}

static void drop_all_unseen(void) {
    for (size_t i = 0; i < HELD_MAX; i++) {
        drop_unseen(i);
    }
}

/* Of no other thread's class: a new slab, then the slab at hand. */
static void a_cold_class(void) {
    for (size_t i = 0; i < 3; i++) {
        take(i, 3000);
    }
    for (size_t i = 0; i < 3; i++) {
        drop(i);
    }
}

/* Fills an empty cache and empties a full one. */
static void a_hot_class(void) {
    for (size_t i = 0; i < 800; i++) {
        take_unseen(i, 64);
    }
    for (size_t i = 800; i < 900; i++) {
        take(i, 64);
    }
    for (size_t i = 0; i < 200; i++) {
        drop(i);
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
    for (size_t i = 0; i < HELD_MAX; i++) {
        take_unseen(i, 500);
    }
    for (size_t i = 0; i < HELD_MAX; i++) {
        if (i % 40 != 0) {
            drop_unseen(i);
        }
    }
    single_step_on(stride);
    (void)malloc_trim(0);
    single_step_off();
}

static pthread_key_t last_key;

/* Round after round of destructors: hakmem's own is called in each, the last one gives the heap back. */
static void pass_a_round(void *round) {
    uintptr_t passed = (uintptr_t)round;
    if (passed == PTHREAD_DESTRUCTOR_ITERATIONS) {
        single_step_off();
    } else {
        CHECK(pthread_setspecific(last_key, (void *)(passed + 1)) == 0);
    }
}

static void *live_and_die(void *unused) {
    CHECK(pthread_setspecific(last_key, (void *)1) == 0);
    single_step_on(stride);
    void *volatile small = malloc(100);
    void *volatile large = calloc(1, 70000);
    free(small);
    free(large);
    return unused;
}

static void a_thread(void) {
    pthread_t thread;
    in_flight_max = 2 + LIBC_BLOCKS_MAX;
    CHECK(pthread_create(&thread, NULL, live_and_die, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Twice: to know how long it is, and with so many stops as there is time for. */
static void fork_in(void (*operations)(void)) {
    unsigned long most = (unsigned long)FORKS_PER_TEST * test_scale();
    struct single_steps steps = {0};
    if (!hak_is_there() || !single_step_is_possible()) {
        SKIP_BECAUSE("hakmem as a shared library, on x86-64");
    }
    single_step_start(fork_now);
    for (unsigned round = 0; round < 2; round++) {
        stride = (unsigned)(steps.instructions / most + (round != 0));
        in_flight_max = 2; /* an old block and the new one */
        walk();
        others = seen_count;
        operations();
        drop_all_unseen();
        steps = single_step_counts();
    }
    single_step_end();
    print_message("%lu instructions, %lu forks\n", steps.instructions, steps.stops);
    assert_int_not_equal(steps.stops, 0);
    check_heap();
}

#define FORK_IN(operations)                                                                                  \
    static void fork_in_##operations(void **state) {                                                         \
        (void)state;                                                                                         \
        fork_in(operations);                                                                                 \
    }

FORK_IN(a_cold_class)
FORK_IN(a_hot_class)
FORK_IN(large_blocks)
FORK_IN(growing_and_shrinking)
FORK_IN(giving_back)
FORK_IN(a_thread)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fork_in_a_cold_class), cmocka_unit_test(fork_in_a_hot_class),
        cmocka_unit_test(fork_in_large_blocks), cmocka_unit_test(fork_in_growing_and_shrinking),
        cmocka_unit_test(fork_in_giving_back),  cmocka_unit_test(fork_in_a_thread),
    };
    CHECK(pthread_key_create(&last_key, pass_a_round) == 0);
    return cmocka_run_group_tests_name("fork_steps", tests, NULL, heap_is_sound);
}
