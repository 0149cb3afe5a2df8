/*
 * pace_test.c - how much time goes by between two sampled blocks: the time that one took, many times over.
 */
#include "check/slots.h"
#include "conf/options.h"
#include "hakmem.h"
#include "heap/pace.h"
#include "os/os.h"
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* Later than any clock here; each test starts at another one. */
#define FAR_NS UINT64_C(1000000000000000000)
#define GAP_NS UINT64_C(500)

static void the_next_block_comes_a_gap_later(void **state) {
    (void)state;
    uint64_t now_ns = FAR_NS;
    assert_true(hak_pace_take(now_ns, GAP_NS));
    assert_false(hak_pace_take(now_ns, GAP_NS));
    assert_false(hak_pace_take(now_ns + GAP_NS - 1, GAP_NS));
    assert_true(hak_pace_take(now_ns + GAP_NS, GAP_NS));
}

static void time_that_was_spent_puts_the_next_block_off(void **state) {
    (void)state;
    uint64_t now_ns = 2 * FAR_NS;
    assert_true(hak_pace_take(now_ns, GAP_NS));
    hak_pace_spend(now_ns + 10, 10, 7); /* before the next is due: from then on */
    assert_false(hak_pace_take(now_ns + GAP_NS + 69, GAP_NS));
    assert_true(hak_pace_take(now_ns + GAP_NS + 70, GAP_NS));
    hak_pace_spend(now_ns + 5000, 10, 7); /* when it was due already: from now on */
    assert_false(hak_pace_take(now_ns + 5069, GAP_NS));
    assert_true(hak_pace_take(now_ns + 5070, GAP_NS));
}

static void a_thread_that_did_not_run_spent_nothing_meanwhile(void **state) {
    (void)state;
    uint64_t now_ns = 3 * FAR_NS;
    hak_pace_spend(now_ns, 1000000000, 3);
    assert_false(hak_pace_take(now_ns + 3 * HAK_PACE_SPENT_NS_MAX - 1, GAP_NS));
    assert_true(hak_pace_take(now_ns + 3 * HAK_PACE_SPENT_NS_MAX, GAP_NS));
}

static void no_time_spent_puts_nothing_off(void **state) {
    (void)state;
    uint64_t now_ns = 4 * FAR_NS;
    assert_true(hak_pace_take(now_ns, GAP_NS));
    hak_pace_spend(now_ns + 1, 0, 7);
    assert_false(hak_pace_take(now_ns + GAP_NS - 1, GAP_NS));
    assert_true(hak_pace_take(now_ns + GAP_NS, GAP_NS));
}

#define THREADS 4u
#define ROUNDS  2000u

static _Atomic unsigned takers[ROUNDS];

static void *take_in_each_round(void *unused) {
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (hak_pace_take(5 * FAR_NS + i * GAP_NS, GAP_NS)) {
            atomic_fetch_add_explicit(&takers[i], 1, memory_order_relaxed);
        }
    }
    return unused;
}

static void run_on_threads(void *(*run)(void *)) {
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, run, NULL) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void of_many_threads_one_is_told(void **state) {
    (void)state;
    run_on_threads(take_in_each_round);
    for (unsigned i = 0; i < ROUNDS; i++) {
        assert_in_range(atomic_load(&takers[i]), 0, 1); /* a thread that is ahead leaves rounds to nobody */
    }
    assert_int_equal(atomic_load(&takers[ROUNDS - 1]), 1);
}

#define SPENDINGS 200000u /* of each thread: so many that some come between */

static void *spend_often(void *unused) {
    for (unsigned i = 0; i < SPENDINGS; i++) {
        hak_pace_spend(6 * FAR_NS, 1, 2);
    }
    return unused;
}

static void what_many_threads_spend_is_added_up(void **state) {
    (void)state;
    assert_true(hak_pace_take(6 * FAR_NS, 0));
    run_on_threads(spend_often);
    assert_false(hak_pace_take(6 * FAR_NS + 2 * THREADS * SPENDINGS - 1, GAP_NS));
    assert_true(hak_pace_take(6 * FAR_NS + 2 * THREADS * SPENDINGS, GAP_NS));
}

/* ---- what sampling spends ---- */

#define EVERY         20000u
#define SAMPLED_BYTES 50u /* of no class, so a sampled block's usable size alone is that */
#define WAIT_NS       (HAK_PACE_SPENT_NS_MAX * (EVERY / 16))

static _Atomic bool may_start;

static void wait_for_start(void) {
    while (!atomic_load(&may_start)) {
        sched_yield();
    }
}

static void *allocate_until_sampled(void *unused) {
    (void)unused;
    wait_for_start();
    for (;;) {
        void *block = hak_malloc(SAMPLED_BYTES);
        CHECK(block != NULL);
        if (hak_usable_size(block) == SAMPLED_BYTES) {
            return block;
        }
        hak_free(block);
    }
}

static void *free_it(void *block) {
    wait_for_start();
    hak_free(block);
    return NULL;
}

/*
 * Holds a thread up that opens or shuts a slot: longer than is ever counted, wherever it is run. When that is
 * over, or at due_ns if that is later, as much time has to go by as it is worth.
 */
static void *run_held_up(void *(*run)(void *), void *argument, uint64_t due_ns) {
    pthread_t thread;
    void *result;
    atomic_store(&may_start, false);
    CHECK(pthread_create(&thread, NULL, run, argument) == 0); /* allocates: no lock held */
    hak_lock_acquire(&hak_slots_lock);
    atomic_store(&may_start, true);
    while (atomic_load(&hak_slots_lock.state) != 2) {
        sched_yield();
    }
    uint64_t released_ns = hak_os_now_ns() + HAK_PACE_SPENT_NS_MAX;
    while (hak_os_now_ns() < released_ns) {
    }
    hak_lock_release(&hak_slots_lock);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(!hak_pace_take((due_ns > released_ns ? due_ns : released_ns) + WAIT_NS - 1, 0));
    return result;
}

static int sample_held_up(void) {
    CHECK(hak_options.guard_sample == EVERY);
    void *block = run_held_up(allocate_until_sampled, NULL, 0);
    uint64_t due_ns = hak_os_now_ns() + FAR_NS;
    CHECK(hak_pace_take(due_ns, 0));
    run_held_up(free_it, block, due_ns);
    CHECK(hak_pace_take(due_ns + WAIT_NS, 0)); /* and no longer than that */
    return 0;
}

#define BLOCKS 4u

/* No more than it took; that is mostly less than what is counted at most. */
static int sample_undisturbed(void) {
    void *blocks[BLOCKS];
    atomic_store(&may_start, true);
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = allocate_until_sampled(NULL);
    }
    uint64_t due_ns = hak_os_now_ns() + FAR_NS;
    CHECK(hak_pace_take(due_ns, 0));
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint64_t start_ns = hak_os_now_ns();
        hak_free(blocks[i]);
        due_ns += (hak_os_now_ns() - start_ns) * (EVERY / 16);
        CHECK(hak_pace_take(due_ns, 0));
    }
    return 0;
}

#define SETTING "HAKMEM_GUARD_SAMPLE=20000" /* EVERY */

static void allocating_and_freeing_a_sampled_block_counts(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("held_up", SETTING);
}

static void what_it_took_counts(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("undisturbed", SETTING);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "held_up") == 0) {
        return sample_held_up();
    }
    if (argc == 2 && strcmp(argv[1], "undisturbed") == 0) {
        return sample_undisturbed();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_block_comes_a_gap_later),
        cmocka_unit_test(time_that_was_spent_puts_the_next_block_off),
        cmocka_unit_test(a_thread_that_did_not_run_spent_nothing_meanwhile),
        cmocka_unit_test(no_time_spent_puts_nothing_off),
        cmocka_unit_test(of_many_threads_one_is_told),
        cmocka_unit_test(what_many_threads_spend_is_added_up),
        cmocka_unit_test(allocating_and_freeing_a_sampled_block_counts),
        cmocka_unit_test(what_it_took_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
