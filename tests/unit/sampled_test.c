/*
 * sampled_test.c - which allocations guard sampling takes, to the one: how many pass between two, how large a
 * sampled block may be and where it lies, what realloc does with it, and how many live at a time.
 *
 * Each test is a program of its own, whose only allocations of hakmem's are the test's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/bits.h"
#include "check/guarded.h"
#include "check/slots.h"
#include "hakmem.h"
#include "heap/checked.h"
#include "heap/front.h"
#include "meta/registry.h"
#include "os/os.h"
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SMALL_BYTES 50u

static bool is_out_of_memory; /* address space alone is to be had */

void *mmap(void *hint, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (is_out_of_memory && protection != PROT_NONE) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, hint, bytes, protection, flags, fd, offset);
}

static bool allocates_sampled(size_t bytes, void **block) {
    *block = hak_malloc(bytes);
    CHECK(*block != NULL);
    return hak_word_kind(hak_registry_word(*block)) == HAK_KIND_GUARDED;
}

/* The same for a block that is freed. */
static bool would_be_sampled(size_t bytes) {
    void *block;
    bool is_sampled = allocates_sampled(bytes, &block);
    hak_free(block);
    return is_sampled;
}

#define EVERY  20u
#define SAMPLE 5000u /* each interval comes some 230 times */

/* Every interval from half to one and a half times N, and no other. */
static int intervals(void) {
    unsigned times[EVERY * 2 + 1] = {0};
    for (unsigned i = 0; i < SAMPLE; i++) {
        unsigned interval = 1;
        while (!would_be_sampled(SMALL_BYTES)) {
            interval++;
            CHECK(interval <= EVERY * 2);
        }
        times[interval]++;
    }
    for (unsigned interval = 1; interval <= EVERY * 2; interval++) {
        CHECK((times[interval] != 0) == (interval >= EVERY / 2 && interval <= EVERY + EVERY / 2));
    }
    return 0;
}

#define THREADS 16u

/* The number of allocations of this thread up to its first sampled one. Keeps its heap until all have one. */
static void *count_to_first(void *all_done) {
    uintptr_t count = 1;
    while (!would_be_sampled(SMALL_BYTES)) {
        count++;
    }
    (void)pthread_barrier_wait(all_done);
    return (void *)count;
}

/* Threads that do the same at the same time do not all sample the same. By chance once in 10^24 runs. */
static int first_intervals(void) {
    pthread_barrier_t all_done;
    pthread_t threads[THREADS];
    void *counts[THREADS];
    CHECK(pthread_barrier_init(&all_done, NULL, THREADS) == 0);
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, count_to_first, &all_done) == 0);
    }
    bool differ = false;
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], &counts[i]) == 0);
        differ = differ || counts[i] != counts[0];
    }
    CHECK(differ);
    return 0;
}

/* In exact counting each allocation asks whether it is its turn, not those alone whose turn it is. */
static int intervals_of_metered(void) {
    hak_front_set_modes(hak_front_modes() | HAK_FRONT_METERED, 0);
    return intervals();
}

/* At the end of a page, as far as the largest power of two that divides the size, and is an alignment,
 * allows. */
static int at_end_of_page(void) {
    static const struct {
        size_t bytes, align;
    } cases[] = {{0, 16}, {1, 16}, {16, 16}, {50, 16}, {96, 32}, {4096, 4096}, {5 * 1024, 1024}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        void *block;
        while (!allocates_sampled(cases[i].bytes, &block)) {
            hak_free(block);
        }
        uintptr_t end = (uintptr_t)block + (cases[i].bytes == 0 ? 1 : cases[i].bytes);
        CHECK((uintptr_t)block % cases[i].align == 0);
        CHECK(hak_round_up(end, hak_os_page_bytes()) - end < cases[i].align);
        hak_free(block);
    }
    return 0;
}

/* The first that is larger leaves its turn to the one after it. */
static int largest(void) {
    CHECK(would_be_sampled(SMALL_BYTES));
    CHECK(would_be_sampled(MIB));
    CHECK(!would_be_sampled(MIB + 1));
    CHECK(would_be_sampled(SMALL_BYTES));
    return 0;
}

/* One of the same size stays; else its contents move, as far as there is room, and it is freed. */
static int reallocated(void) {
    void *block;
    CHECK(allocates_sampled(SMALL_BYTES, &block));
    memset(block, 'x', SMALL_BYTES);
    CHECK(hak_realloc(block, SMALL_BYTES) == block);
    for (size_t bytes = SMALL_BYTES + 1; bytes >= SMALL_BYTES - 1; bytes -= 2) {
        char *moved = hak_realloc(block, bytes);
        CHECK(moved != NULL && moved != block && !hak_owns(block));
        for (size_t i = 0; i < SMALL_BYTES - 1; i++) {
            CHECK(moved[i] == 'x');
        }
        CHECK(hak_slots_live() == 1);
        block = moved;
    }
    return 0;
}

#define LIVE_MAX 8192u /* README, "Guard sampling" */

/* Those without a slot count as well. */
static int most(void) {
    void *large, *small = NULL, *other;
    CHECK(allocates_sampled(MIB, &large));
    for (unsigned i = 1; i < LIVE_MAX; i++) {
        CHECK(allocates_sampled(SMALL_BYTES, &small));
    }
    CHECK(!allocates_sampled(SMALL_BYTES, &other));
    hak_free(small);
    CHECK(allocates_sampled(SMALL_BYTES, &other));
    CHECK(!allocates_sampled(SMALL_BYTES, &other));
    hak_free(large);
    CHECK(allocates_sampled(SMALL_BYTES, &other));
    CHECK(!allocates_sampled(SMALL_BYTES, &other));
    return 0;
}

/* A block between guard pages for whose record there is no memory is none, and counts as none. */
static int without_record(void) {
    is_out_of_memory = true;
    CHECK(hak_checked_alloc_guarded(MIB, hak_log2(HAK_ALIGN_BYTES)) == NULL);
    is_out_of_memory = false;
    CHECK(hak_guarded_live() == 0);
    CHECK(hak_checked_alloc_guarded(MIB, hak_log2(HAK_ALIGN_BYTES)) != NULL);
    CHECK(hak_guarded_live() == 1);
    return 0;
}

static const struct part parts[] = {
    {"intervals", intervals},
    {"intervals_of_metered", intervals_of_metered},
    {"first_intervals", first_intervals},
    {"at_end_of_page", at_end_of_page},
    {"reallocated", reallocated},
    {"largest", largest},
    {"most", most},
    {"without_record", without_record},
};

static void intervals_are_half_to_one_and_a_half_times_n(void **state) {
    (void)state;
    assert_part_succeeds("intervals", "HAKMEM_GUARD_SAMPLE=20");
    assert_part_succeeds("intervals_of_metered", "HAKMEM_GUARD_SAMPLE=20");
}

static void threads_begin_with_intervals_of_their_own(void **state) {
    (void)state;
    assert_part_succeeds("first_intervals", "HAKMEM_GUARD_SAMPLE=40");
}

static void a_sampled_block_lies_at_the_end_of_a_page(void **state) {
    (void)state;
    assert_part_succeeds("at_end_of_page", "HAKMEM_GUARD_SAMPLE=20");
}

static void realloc_moves_a_sampled_block(void **state) {
    (void)state;
    assert_part_succeeds("reallocated", "HAKMEM_GUARD_SAMPLE=1");
}

static void blocks_of_up_to_a_mebibyte_are_sampled(void **state) {
    (void)state;
    assert_part_succeeds("largest", "HAKMEM_GUARD_SAMPLE=1");
}

static void so_many_live_and_not_one_more(void **state) {
    (void)state;
    assert_part_succeeds("most", "HAKMEM_GUARD_SAMPLE=1");
}

static void what_gets_no_record_does_not_count(void **state) {
    (void)state;
    assert_part_succeeds("without_record", "HAKMEM_GUARD_SAMPLE=1000000");
}

int main(int argc, char **argv) {
    const struct part *part = part_asked_for(parts, COUNT_OF(parts), argc, argv);
    if (part != NULL) {
        return part->run();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_are_half_to_one_and_a_half_times_n),
        cmocka_unit_test(threads_begin_with_intervals_of_their_own),
        cmocka_unit_test(a_sampled_block_lies_at_the_end_of_a_page),
        cmocka_unit_test(realloc_moves_a_sampled_block),
        cmocka_unit_test(blocks_of_up_to_a_mebibyte_are_sampled),
        cmocka_unit_test(so_many_live_and_not_one_more),
        cmocka_unit_test(what_gets_no_record_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
