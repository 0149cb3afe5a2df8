/*
 * heaps_test.c - what is left of threads that have ended: some of their heaps keep their pages for those who
 * come next, the others give them back, and are as good as new when their turn comes.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "heap/heap.h"
#include "meta/classes.h"
#include "os/os.h"
#include "support/blocks.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEPT    32u /* heaps that nobody has, with their pages */
#define BEYOND  16u
#define THREADS (KEPT + BEYOND)
#define BLOCKS  40u /* of each class but one: it becomes hot */

#define UNUSED_CLASS (HAK_CLASS_COUNT / 2) /* its state lies in a page that goes back */

/* ---- the system ---- */

static bool is_refusing; /* madvise fails, as over locked pages */
static struct heap *watched;
static unsigned purges_of_watched;

int madvise(void *address, size_t bytes, int advice) {
    uintptr_t first = (uintptr_t)watched, end = first + sizeof *watched;
    if (watched != NULL && advice == MADV_DONTNEED && (uintptr_t)address < end &&
        (uintptr_t)address + bytes > first) {
        CHECK((uintptr_t)address >= (uintptr_t)watched->classes && (uintptr_t)address + bytes <= end);
        purges_of_watched++;
        if (is_refusing) {
            errno = EINVAL;
            return -1;
        }
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

/* ---- threads that are all there at once, and end one after the other ---- */

static struct worker {
    pthread_t thread;
    struct heap *heap;
    sem_t may_end;
} workers[THREADS];
static sem_t is_settled;

/* Twice, so that the cache gives out what it took back. */
static void use_class(unsigned class_idx) {
    size_t bytes = hak_class_block_bytes[class_idx];
    void *blocks[BLOCKS];
    for (unsigned round = 0; round < 2; round++) {
        blocks_take(blocks, BLOCKS, bytes);
        for (unsigned i = 0; i < BLOCKS; i++) {
            ((char *)blocks[i])[0] = ((char *)blocks[i])[bytes - 1] = (char)i;
        }
        for (unsigned i = 0; i < BLOCKS; i++) {
            CHECK(((char *)blocks[i])[0] == (char)i && ((char *)blocks[i])[bytes - 1] == (char)i);
        }
        blocks_free(blocks, BLOCKS);
    }
    CHECK(hak_heap_attach()->classes[class_idx].is_used);
}

/* Counted in a class that the thread has not used: a block that was freed for another heap's may be. */
static void count_one(void) {
    struct class_state *state = &hak_heap_attach()->classes[UNUSED_CLASS];
    CHECK(!state->is_used);
    HAK_COUNT(&state->counters, remote_frees, 1);
}

static uint64_t counted(void) {
    struct front_counts sums;
    hak_heap_sum_counters(UNUSED_CLASS, &sums);
    return sums.remote_frees;
}

static void *work_then_end(void *arg) {
    struct worker *worker = arg;
    worker->heap = hak_heap_attach();
    count_one();
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        if (c != UNUSED_CLASS) {
            use_class(c);
        }
    }
    (void)hak_trim(0); /* of this thread's caches, so that no more than a heap each is there */
    sem_post(&is_settled);
    sem_wait(&worker->may_end);
    return NULL;
}

static void start_all(void) {
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(sem_init(&workers[i].may_end, 0, 0) == 0);
        CHECK(pthread_create(&workers[i].thread, NULL, work_then_end, &workers[i]) == 0);
        sem_wait(&is_settled);
    }
}

static void end_one(struct worker *worker) {
    watched = worker->heap;
    purges_of_watched = 0;
    sem_post(&worker->may_end);
    CHECK(pthread_join(worker->thread, NULL) == 0);
    watched = NULL;
}

static bool is_in(const struct heap *heap, struct heap *const *heaps, unsigned count) {
    unsigned i = 0;
    while (i < count && heaps[i] != heap) {
        i++;
    }
    return i < count;
}

/* Of the pages that lie among its classes' states alone. */
static bool is_zero_between(const struct heap *heap) {
    const char *at = (const char *)hak_round_up((uintptr_t)heap->classes, hak_os_page_bytes());
    const char *end =
        (const char *)hak_round_down((uintptr_t)(heap->classes + HAK_CLASS_COUNT), hak_os_page_bytes());
    CHECK(at < end);
    while (at < end && *at == 0) {
        at++;
    }
    return at == end;
}

static bool has_pages(struct heap *heap) {
    uintptr_t page = hak_round_up((uintptr_t)heap->classes, hak_os_page_bytes());
    size_t resident_bytes;
    CHECK(hak_os_resident((void *)page, hak_os_page_bytes(), &resident_bytes) == 0);
    return resident_bytes != 0;
}

/* ---- tests: what fails ends the program, since threads wait ---- */

static struct heap *kept[KEPT], *emptied[BEYOND];

/* The first that end keep theirs, and who comes next gets one of these while there are some. */
static void heaps_beyond_some_give_their_pages_back(void **state) {
    uint64_t counted_before = counted();
    is_refusing = *state != NULL;
    start_all();
    for (unsigned i = 0; i < KEPT; i++) {
        end_one(&workers[i]);
        kept[i] = workers[i].heap;
        CHECK(purges_of_watched == 0);
        CHECK(has_pages(kept[i]));
    }
    for (unsigned i = 0; i < BEYOND; i++) {
        end_one(&workers[KEPT + i]);
        emptied[i] = workers[KEPT + i].heap;
        CHECK(purges_of_watched == 1);
        CHECK(has_pages(emptied[i]) == is_refusing);
        CHECK(is_refusing || is_zero_between(emptied[i]));
    }
    check_heap();
    CHECK(counted() == counted_before + THREADS);
    uint32_t heaps = hak_heap_last_id();
    start_all();
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(i < KEPT ? is_in(workers[i].heap, kept, KEPT) : is_in(workers[i].heap, emptied, BEYOND));
    }
    CHECK(hak_heap_last_id() == heaps);
    check_heap();
    for (unsigned i = 0; i < THREADS; i++) {
        end_one(&workers[i]);
        CHECK(purges_of_watched == (i < KEPT ? 0 : 1));
    }
    is_refusing = false;
    check_heap();
}

/* Threads that come and go, a few at a time, make no calls for that. */
static void few_threads_at_a_time_keep_their_pages(void **state) {
    (void)state;
    for (unsigned i = 0; i < 3 * KEPT; i++) {
        struct worker *worker = &workers[0];
        CHECK(sem_init(&worker->may_end, 0, 0) == 0);
        CHECK(pthread_create(&worker->thread, NULL, work_then_end, worker) == 0);
        sem_wait(&is_settled);
        end_one(worker);
        CHECK(purges_of_watched == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"few_threads_at_a_time_keep_their_pages (fresh)", few_threads_at_a_time_keep_their_pages, NULL, NULL,
         NULL},
        cmocka_unit_test(heaps_beyond_some_give_their_pages_back),
        cmocka_unit_test(few_threads_at_a_time_keep_their_pages),
        {"heaps_beyond_some_keep_what_is_refused", heaps_beyond_some_give_their_pages_back, NULL, NULL,
         (void *)1},
        cmocka_unit_test(heaps_beyond_some_give_their_pages_back),
    };
    CHECK(sem_init(&is_settled, 0, 0) == 0);
    return cmocka_run_group_tests(tests, NULL, heap_is_sound);
}
