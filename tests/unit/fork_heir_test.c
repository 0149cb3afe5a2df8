/*
 * fork_heir_test.c - a thread that has the heap of one which is ending, and gives back memory in its last
 * destructor, forks: what that one was giving back is free in the child, though no other heap was ever there.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "heap/heap.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS      4096u
#define BLOCK_BYTES 2048u
#define KEEP_EVERY  8u

static void *blocks[BLOCKS];
static HAK_TLS bool purges_slowly;
static atomic_bool is_purging, has_forked;

int madvise(void *address, size_t bytes, int advice) {
    if (purges_slowly && advice == MADV_DONTNEED) {
        purges_slowly = false;
        atomic_store(&is_purging, true);
        while (!atomic_load(&has_forked)) {
            usleep(1000);
        }
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

static pthread_key_t trims_at_the_end;

static void trim_in_last_round(void *round) {
    uintptr_t passed = (uintptr_t)round;
    if (passed != PTHREAD_DESTRUCTOR_ITERATIONS) {
        CHECK(pthread_setspecific(trims_at_the_end, (void *)(passed + 1)) == 0);
        return;
    }
    CHECK(hak_tls.heap == NULL); /* it has gone */
    purges_slowly = true;
    (void)hak_trim(0);
}

/* A slab whose lease nobody gives back is never free. */
static void check_no_lease_is_held(void) {
    struct slab *slab;
    for (size_t i = 0; (slab = hak_slab_at(i)) != NULL; i++) {
        uint64_t word = hak_atomic_load_relaxed(&slab->word); /* relaxed: the child has one thread */
        CHECK(!hak_slab_word_is_assigned(word) || !hak_slab_word_is_leased(word));
    }
}

static void look_in_child(void) {
    for (unsigned i = 0; i < BLOCKS; i += KEEP_EVERY) {
        hak_free(blocks[i]);
    }
    (void)hak_trim(0);
    check_no_lease_is_held();
    check_heap();
    _exit(0);
}

static void *fork_with_its_heap(void *first) {
    int status;
    while (!atomic_load(&is_purging)) {
        usleep(1000);
    }
    CHECK(hak_heap_attach() == first && hak_heap_last_id() == 1);
    pid_t child = fork();
    if (child == 0) {
        look_in_child();
    }
    atomic_store(&has_forked, true);
    CHECK(waitpid(child, &status, 0) == child);
    _exit(status == 0 ? 0 : 1);
}

static void end_while_another_forks(void) {
    pthread_t thread;
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = hak_malloc(BLOCK_BYTES);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, BLOCK_BYTES);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (i % KEEP_EVERY != 0) {
            hak_free(blocks[i]);
        }
    }
    CHECK(pthread_create(&thread, NULL, fork_with_its_heap, hak_heap_attach()) == 0);
    CHECK(pthread_key_create(&trims_at_the_end, trim_in_last_round) == 0);
    CHECK(pthread_setspecific(trims_at_the_end, (void *)1) == 0);
    pthread_exit(NULL);
}

static void no_slab_stays_leased(void **state) {
    (void)state;
    assert_part_succeeds("child", NULL);
}

/* So that the child of a fork knows that somebody may have had a lease. */
static void *ask_for_a_hint(void *block) {
    (void)hak_defrag_hint(block);
    CHECK(hak_tls.heap != NULL);
    return NULL;
}

static void *make_large_smaller(void *block) {
    *(void **)block = hak_realloc(*(void **)block, 50000);
    CHECK(hak_tls.heap != NULL);
    return NULL;
}

static void whoever_may_hold_a_lease_has_a_heap(void **state) {
    (void)state;
    pthread_t thread;
    void *block = hak_malloc(BLOCK_BYTES), *large = hak_malloc(1000000);
    assert_int_equal(pthread_create(&thread, NULL, ask_for_a_hint, block), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, make_large_smaller, &large), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    hak_free(block);
    hak_free(large);
}

int main(int argc, char **argv) {
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_slab_stays_leased),
        cmocka_unit_test(whoever_may_hold_a_lease_has_a_heap),
    };
    if (argc > 1) {
        end_while_another_forks();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
