/*
 * walk_test.c - walks while others walk, work, and are preempted; in the child of a fork; and where guard
 * pages are not to be had.
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
#include "support/blocks.h"
#include "support/child.h"
#include "support/stepper.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK_BYTES 512u
#define BLOCKS      300u
#define LARGE_BYTES ((size_t)200000)

static void *blocks[BLOCKS];
static bool refuses_access;

/* How what lies between guard pages becomes accessible. */
int mprotect(void *address, size_t bytes, int protection) {
    if (refuses_access && protection == (PROT_READ | PROT_WRITE)) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_mprotect, address, bytes, protection);
}

static int count(void *block, size_t usable_bytes, void *found) {
    (void)usable_bytes;
    for (unsigned i = 0; i < BLOCKS; i++) {
        *(unsigned *)found += block == blocks[i];
    }
    return 0;
}

static unsigned count_blocks(void) {
    unsigned found = 0;
    CHECK(hak_heap_walk(count, &found) == 0);
    return found;
}

/* ---- slabs that somebody works on ---- */

#define UNTIL_TOLD 0u

static sem_t has_lease, may_end;

/* For so many ms, or UNTIL_TOLD. */
static void *hold_a_lease(void *hold_ms) {
    struct slab *slab = hak_slab_of_block(blocks[0]);
    (void)hak_heap_attach();
    CHECK(hak_slab_lease_any(slab));
    CHECK(sem_post(&has_lease) == 0);
    if (*(const unsigned *)hold_ms == UNTIL_TOLD) {
        CHECK(sem_wait(&may_end) == 0);
    }
    usleep(1000 * *(const unsigned *)hold_ms);
    hak_heap_handle_event(slab, hak_slab_release_any(slab, 0), NULL);
    return NULL;
}

static unsigned count_while_one_is_held(unsigned hold_ms) {
    pthread_t holder;
    CHECK(sem_init(&has_lease, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
    CHECK(pthread_create(&holder, NULL, hold_a_lease, &hold_ms) == 0);
    CHECK(sem_wait(&has_lease) == 0);
    unsigned found = count_blocks();
    CHECK(sem_post(&may_end) == 0);
    CHECK(pthread_join(holder, NULL) == 0);
    return found;
}

/* As by a thread that is preempted there. */
static void a_slab_that_is_worked_on_is_waited_for(void **state) {
    (void)state;
    blocks_take(blocks, BLOCKS, BLOCK_BYTES);
    assert_int_equal(count_while_one_is_held(100), BLOCKS);
    blocks_free(blocks, BLOCKS);
}

/* As by a thread that was cancelled there. */
static void a_slab_that_nobody_lets_go_of_is_left_out(void **state) {
    (void)state;
    blocks_take(blocks, BLOCKS, BLOCK_BYTES);
    assert_in_range(count_while_one_is_held(UNTIL_TOLD), 1, BLOCKS - 1);
    blocks_free(blocks, BLOCKS);
}

/* ---- a child that is forked while another thread walks ---- */

static sem_t is_visiting, may_go_on;

static int stop(void *block, size_t usable_bytes, void *unused) {
    unsigned found = 0;
    (void)unused;
    (void)count(block, usable_bytes, &found);
    if (found != 0) {
        CHECK(sem_post(&is_visiting) == 0);
        CHECK(sem_wait(&may_go_on) == 0);
    }
    return (int)found;
}

static void *walk_and_stop(void *unused) {
    CHECK(hak_heap_walk(stop, NULL) == 1);
    return unused;
}

static int find_all(void *unused) {
    (void)unused;
    CHECK(count_blocks() == BLOCKS);
    check_heap();
    return 0;
}

/* The walking thread had no heap before; the child has a slab that it works on. */
static void the_child_sees_the_slab_that_is_visited(void **state) {
    pthread_t walker;
    (void)state;
    CHECK(sem_init(&is_visiting, 0, 0) == 0 && sem_init(&may_go_on, 0, 0) == 0);
    blocks_take(blocks, BLOCKS, BLOCK_BYTES);
    assert_int_equal(pthread_create(&walker, NULL, walk_and_stop, NULL), 0);
    CHECK(sem_wait(&is_visiting) == 0);
    assert_function_succeeds(find_all);
    CHECK(sem_post(&may_go_on) == 0);
    assert_int_equal(pthread_join(walker, NULL), 0);
    blocks_free(blocks, BLOCKS);
}

/* ---- whose the slabs are in a child ---- */

static void take(void) {
    blocks_take(blocks, BLOCKS, BLOCK_BYTES);
}

/* A slab that has free blocks is given up, so at least those that are full stay the survivor's. */
static int find_owners(void *unused) {
    uint32_t own_id = hak_heap_attach()->id;
    unsigned own_slabs = 0;
    struct slab *slab;
    (void)unused;
    CHECK(count_blocks() == BLOCKS); /* the first slow operation: puts the heap right */
    for (size_t i = 0; (slab = hak_slab_at(i)) != NULL; i++) {
        if (hak_slab_word_is_assigned(hak_atomic_load_relaxed(&slab->word))) {
            CHECK(hak_slab_owner(slab) == own_id || hak_slab_owner(slab) == HAK_OWNER_NOBODY);
            own_slabs += hak_slab_owner(slab) == own_id;
        }
    }
    CHECK(own_slabs != 0);
    CHECK(hak_slab_owner(hak_slab_of_block(blocks[0])) == HAK_OWNER_NOBODY);
    return 0;
}

static void slabs_of_others_are_nobodys_in_a_child(void **state) {
    static void *own_blocks[BLOCKS];
    struct stepper other;
    (void)state;
    blocks_take(own_blocks, BLOCKS, BLOCK_BYTES);
    stepper_start(&other);
    stepper_do(&other, take);
    assert_function_succeeds(find_owners);
    stepper_end(&other);
    blocks_free(blocks, BLOCKS);
    blocks_free(own_blocks, BLOCKS);
}

/* ---- checked mode, out of guard pages ---- */

static int look_at_size(void *block, size_t usable_bytes, void *large) {
    CHECK(block != large || usable_bytes == LARGE_BYTES);
    return block == large;
}

static int walk_without_guard_pages(void) {
    refuses_access = true;
    void *large = hak_malloc(LARGE_BYTES);
    refuses_access = false;
    CHECK(large != NULL);
    CHECK(hak_heap_walk(look_at_size, large) == 1);
    hak_free(large);
    return 0;
}

static void a_large_block_without_guard_pages_has_its_size(void **state) {
    (void)state;
    assert_part_succeeds("checked", "HAKMEM_CHECK=1");
}

/* ---- checked mode, beside a thread that allocates and frees ---- */

#define LASTING       1200u
#define PASSING       300u
#define PASSING_BYTES ((size_t)40000)
#define STEPS_BETWEEN 100u

static void *lasting[LASTING], *passing[PASSING];
static unsigned visits[LASTING];
static struct stepper other;

static void change_some(void) {
    static unsigned next;
    for (unsigned i = 0; i < PASSING / 4; i++, next++) {
        hak_free(passing[next % PASSING]);
        passing[next % PASSING] = hak_malloc(PASSING_BYTES + next * 256);
        CHECK(passing[next % PASSING] != NULL);
    }
}

static int note_visit(void *block, size_t usable_bytes, void *seen) {
    (void)usable_bytes;
    if (++*(unsigned *)seen % STEPS_BETWEEN == 0) {
        stepper_do(&other, change_some);
    }
    for (unsigned i = 0; i < LASTING; i++) {
        visits[i] += block == lasting[i];
    }
    return 0;
}

static int walk_beside_changes(void) {
    unsigned seen = 0;
    for (unsigned i = 0; i < LASTING; i++) {
        lasting[i] = hak_malloc(PASSING_BYTES);
        if (i % (LASTING / PASSING) == 0) {
            passing[i / (LASTING / PASSING)] = hak_malloc(PASSING_BYTES);
        }
    }
    stepper_start(&other);
    CHECK(hak_heap_walk(note_visit, &seen) == 0);
    stepper_end(&other);
    for (unsigned i = 0; i < LASTING; i++) {
        CHECK(visits[i] == 1);
    }
    return 0;
}

static void what_lasts_is_visited_once(void **state) {
    (void)state;
    assert_part_succeeds("beside-changes", "HAKMEM_CHECK=1");
}

#define TEST(name) cmocka_unit_test_teardown(name, heap_is_sound)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        TEST(the_child_sees_the_slab_that_is_visited),        TEST(slabs_of_others_are_nobodys_in_a_child),
        TEST(a_slab_that_is_worked_on_is_waited_for),         TEST(a_slab_that_nobody_lets_go_of_is_left_out),
        TEST(a_large_block_without_guard_pages_has_its_size), TEST(what_lasts_is_visited_once),
    };
    static const struct part parts[] = {
        {"checked", walk_without_guard_pages},
        {"beside-changes", walk_beside_changes},
    };
    const struct part *part = part_asked_for(parts, COUNT_OF(parts), argc, argv);
    if (part != NULL) {
        return part->run();
    }
    return cmocka_run_group_tests_name("walk", tests, NULL, NULL);
}
