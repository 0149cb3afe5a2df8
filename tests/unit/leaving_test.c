/*
 * leaving_test.c - a thread ends, and a signal handler that allocates comes while its heap is taken apart: it
 * gets its blocks one by one, as all that run after the heap went do, and what it leaves behind is sound. The
 * handler comes where the thread gives memory back, since it then holds no lock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "heap/heap.h"
#include "slab/purge.h"
#include "support/blocks.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES  512u
#define BLOCKS 4000u
#define TAKEN  64u /* by the handler, at a time */

static HAK_TLS bool is_leaving;
static unsigned handled;

static void handle(int number) {
    static void *taken[TAKEN];
    (void)number;
    is_leaving = false; /* once: its frees give memory back too */
    CHECK(hak_tls.heap == NULL);
    blocks_take(taken, TAKEN, BYTES);
    for (unsigned i = 0; i < TAKEN; i++) {
        for (unsigned j = 0; j < i; j++) {
            CHECK(taken[i] != taken[j]);
        }
    }
    blocks_free(taken, TAKEN);
    handled++;
}

int madvise(void *address, size_t bytes, int advice) {
    if (is_leaving && bytes >= HAK_UNIT_BYTES) { /* of slabs: a page of the heap itself goes under its lock */
        CHECK(raise(SIGUSR1) == 0);
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

static void *take_and_leave(void *unused) {
    static void *blocks[BLOCKS];
    blocks_take(blocks, BLOCKS, BYTES);
    blocks_free(blocks, BLOCKS);
    hak_purge_set_floor(0);
    is_leaving = true;
    return unused;
}

static void a_handler_allocates_while_the_thread_ends(void **state) {
    (void)state;
    struct sigaction action = {.sa_handler = handle};
    pthread_t thread;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    hak_purge_set_floor(SIZE_MAX / 2);
    assert_int_equal(pthread_create(&thread, NULL, take_and_leave, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(handled != 0);
    check_heap();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_handler_allocates_while_the_thread_ends)};
    return cmocka_run_group_tests_name("leaving", tests, NULL, heap_is_sound);
}
