/*
 * fork_purge_test.c - what another thread was giving back when the process forked is free memory in the
 * child.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "large/extent.h"
#include "slab/superslab.h"
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

static size_t (*what_is_held)(void); /* the trimming thread stops at the purge of this */
static HAK_TLS bool purges_slowly;
static atomic_bool is_purging, has_forked;

int madvise(void *address, size_t bytes, int advice) {
    if (purges_slowly && advice == MADV_DONTNEED && what_is_held() != 0) {
        purges_slowly = false;
        atomic_store(&is_purging, true);
        while (!atomic_load(&has_forked)) {
            usleep(1000);
        }
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

static void *trim_slowly(void *unused) {
    (void)unused;
    purges_slowly = true;
    (void)hak_trim(0);
    return NULL;
}

/* In the last round of destructors, when the thread's heap has gone. */
static pthread_key_t trims_at_the_end;

static void trim_in_last_round(void *round) {
    uintptr_t passed = (uintptr_t)round;
    if (passed == PTHREAD_DESTRUCTOR_ITERATIONS) {
        (void)trim_slowly(NULL);
    } else {
        CHECK(pthread_setspecific(trims_at_the_end, (void *)(passed + 1)) == 0);
    }
}

static void *end_trimming(void *unused) {
    hak_free(hak_malloc(1));
    CHECK(pthread_setspecific(trims_at_the_end, (void *)1) == 0);
    return unused;
}

static size_t held_pages(void) {
    size_t pages = 0;
    for (struct hak_extent *extent = hak_extent_first(); extent != NULL; extent = extent->all_next) {
        pages += extent->held_pages;
    }
    return pages;
}

static size_t purging_units(void) {
    size_t units = 0;
    struct superslab *superslab;
    for (size_t i = 0; (superslab = hak_superslab_at(i)) != NULL; i++) {
        units += hak_popcount32(superslab->purging_units);
    }
    return units;
}

static void look_in_child(void) {
    hak_free(hak_malloc(5000));
    CHECK(held_pages() == 0);
    CHECK(purging_units() == 0);
    check_heap();
    _exit(0);
}

static void fork_while_trimming(size_t (*held)(void), void *(*trimming)(void *)) {
    pthread_t thread;
    what_is_held = held;
    atomic_store(&is_purging, false);
    atomic_store(&has_forked, false);
    assert_int_equal(pthread_create(&thread, NULL, trimming, NULL), 0);
    while (!atomic_load(&is_purging)) {
        usleep(1000);
    }
    pid_t child = fork();
    if (child == 0) {
        look_in_child();
    }
    atomic_store(&has_forked, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void page_runs_being_purged_are_free_in_the_child(void **state) {
    void *kept = hak_malloc(100000);
    void *freed = hak_malloc(300000);
    void *behind = hak_malloc(100000);
    memset(freed, 1, 300000);
    hak_free(freed);
    fork_while_trimming(held_pages, *state);
    hak_free(kept);
    hak_free(behind);
}

static void units_being_purged_are_free_in_the_child(void **state) {
    void *blocks[64];
    (void)hak_trim(0);
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hak_malloc(16000);
        memset(blocks[i], 1, 16000);
    }
    for (unsigned i = 0; i < COUNT_OF(blocks) - 1; i++) {
        hak_free(blocks[i]);
    }
    char why[8];
    assert_int_equal(hak_verify(why, sizeof why), 0);
    assert_true(hak_superslab_count().dirty_units != 0);
    fork_while_trimming(purging_units, *state);
    hak_free(blocks[COUNT_OF(blocks) - 1]);
}

int main(void) {
#define BY(thread, test)                                                                                     \
    { #test " " #thread, test, NULL, heap_is_sound, (void *)(uintptr_t)thread }
    const struct CMUnitTest tests[] = {
        BY(end_trimming, page_runs_being_purged_are_free_in_the_child),
        BY(end_trimming, units_being_purged_are_free_in_the_child),
        BY(trim_slowly, page_runs_being_purged_are_free_in_the_child),
        BY(trim_slowly, units_being_purged_are_free_in_the_child),
    };
    CHECK(pthread_key_create(&trims_at_the_end, trim_in_last_round) == 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
