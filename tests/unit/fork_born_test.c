/*
 * fork_born_test.c - a thread that never allocated forks, and another library's fork handler allocates while
 * hakmem's has taken the locks: the heap that is born then brings no lists along whose locks nobody took.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "heap/heap.h"
#include "slab/orphans.h"
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static HAK_TLS bool allocates_in_handler;
static unsigned sides_before, sides_behind;
static uint32_t heaps_before;

/* After hakmem's, which was registered later. */
static void prepare(void) {
    if (allocates_in_handler) {
        heaps_before = hak_heap_last_id();
        sides_before = hak_orphan_sides();
        hak_free(hak_malloc(100));
        sides_behind = hak_orphan_sides();
    }
}

/* Before hakmem's constructor. */
__attribute__((constructor(101))) static void register_first(void) {
    CHECK(pthread_atfork(prepare, NULL, NULL) == 0);
}

static void *fork_as_a_stranger(void *unused) {
    (void)unused;
    int status;
    CHECK(hak_tls.heap == NULL);
    allocates_in_handler = true;
    pid_t child = fork();
    if (child == 0) {
        check_heap();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(hak_tls.heap != NULL && hak_heap_last_id() == heaps_before + 1);
    CHECK(sides_behind == sides_before);
    return NULL;
}

static sem_t may_end, has_heap;

static void *have_a_heap(void *unused) {
    (void)unused;
    hak_free(hak_malloc(100));
    CHECK(sem_post(&has_heap) == 0);
    CHECK(sem_wait(&may_end) == 0);
    return NULL;
}

/* Both where the heap would be the first of a new number of sides, and where it would not. */
static void a_heap_that_is_born_in_a_fork_adds_no_side(void **state) {
    (void)state;
    pthread_t holders[HAK_ORPHAN_SIDES_MAX];
    assert_int_equal(sem_init(&may_end, 0, 0), 0);
    assert_int_equal(sem_init(&has_heap, 0, 0), 0);
    hak_free(hak_malloc(100));
    for (unsigned i = 0; i < HAK_ORPHAN_SIDES_MAX; i++) {
        pthread_t stranger;
        assert_int_equal(pthread_create(&stranger, NULL, fork_as_a_stranger, NULL), 0);
        assert_int_equal(pthread_join(stranger, NULL), 0);
        /* Its heap is taken, so that the next stranger's is a new one. */
        assert_int_equal(pthread_create(&holders[i], NULL, have_a_heap, NULL), 0);
        assert_int_equal(sem_wait(&has_heap), 0);
    }
    for (unsigned i = 0; i < HAK_ORPHAN_SIDES_MAX; i++) {
        assert_int_equal(sem_post(&may_end), 0);
    }
    for (unsigned i = 0; i < HAK_ORPHAN_SIDES_MAX; i++) {
        assert_int_equal(pthread_join(holders[i], NULL), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_heap_that_is_born_in_a_fork_adds_no_side),
    };
    return cmocka_run_group_tests_name("fork_born", tests, NULL, heap_is_sound);
}
