/*
 * questions_test.c - hak_owns() and hak_defrag_hint() about pointers of every kind, live blocks' among them,
 * from threads that allocate and free meanwhile.
 *
 * suite: limit 120 s
 * What a collector that scans the stack conservatively does, or a debugger: it has a word and asks whose it
 * is.
 */
#include "support/names.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <stdlib.h>

#define THREADS       4u
#define SLOTS         40u
#define STEPS         4000u
#define NEAR_BYTES    70000u /* how far from a block's start is asked about */
#define NAMED_MAX     32768u /* bytes of the longest blocks that hak_defrag_hint() names */
#define ADDRESS_SPACE 47u    /* bits of it that a program has */

static const struct load mixed = {1, 4 * MIB, 32, 48, 16};

/* Somewhere: at, in or near a block of the set, on the stack, in the program, or any value at all. */
static const void *any_pointer(const struct slot *slots, struct rng *rng) {
    static const char constant[] = "of the program";
    const char *block = (const char *)slots[rng_below(rng, SLOTS)].block;
    switch (rng_below(rng, 6)) {
    case 0:
        return block;
    case 1:
        return (const void *)((uintptr_t)block + rng_below(rng, NEAR_BYTES));
    case 2:
        return (const void *)((uintptr_t)block - rng_below(rng, NEAR_BYTES));
    case 3:
        return (const char *)launder(rng) + rng_below(rng, sizeof *rng);
    case 4:
        return constant + rng_below(rng, sizeof constant);
    default:
        return (const void *)(uintptr_t)(rng_next(rng) >> rng_below(rng, 64 - ADDRESS_SPACE + 1));
    }
}

static bool starts_block(const struct slot *slots, const void *pointer) {
    for (unsigned i = 0; i < SLOTS; i++) {
        if (slots[i].block != NULL && slots[i].block == pointer) {
            return true;
        }
    }
    return false;
}

static void ask(const struct slot *slots, const void *pointer, bool is_alone) {
    bool is_own = starts_block(slots, pointer);
    bool is_owned = hak_owns(pointer);
    CHECK(is_alone ? is_owned == is_own : is_owned || !is_own); /* it may be another thread's */
    bool is_named = hak_defrag_hint(pointer);
    CHECK(!is_named || !is_alone || is_own);
    CHECK(!is_named || !is_own || hak_usable_size(pointer) <= NAMED_MAX);
}

static void ask_about_all(bool is_alone, uint64_t seed) {
    struct slot slots[SLOTS] = {0};
    struct rng rng = rng_seeded(seed);
    for (unsigned i = 0; i < STEPS * test_scale() / TEST_SLOWNESS; i++) {
        slots_step(slots, SLOTS, &mixed, &rng);
        ask(slots, any_pointer(slots, &rng), is_alone);
    }
    slots_clear(slots, SLOTS);
}

static void every_value_has_an_answer(void **state) {
    (void)state;
    REQUIRE_HAK();
    ask_about_all(true, 1);
}

static void *ask_beside_others(void *seed) {
    ask_about_all(false, (uintptr_t)seed);
    return NULL;
}

static void threads_may_ask_about_each_others_blocks(void **state) {
    (void)state;
    REQUIRE_HAK();
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask_beside_others, (void *)(i + 2)), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_value_has_an_answer, heap_is_sound),
        cmocka_unit_test_teardown(threads_may_ask_about_each_others_blocks, heap_is_sound),
    };
    return cmocka_run_group_tests_name("questions", tests, NULL, heap_is_sound);
}
