/*
 * guest_test.c - blocks in the holes of slabs of other classes, made and freed by several threads at once.
 *
 * suite: limit 240 s
 * Imitates a compiler or a server on a pool of threads whose sizes change from phase to phase: one in ten
 * blocks of each phase stays, the next size goes into the holes, and some blocks are freed by threads that
 * did not allocate them.
 */
#include "support/names.h"
#include "support/pattern.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS        4u
#define OWN_SLOTS      60000u /* of a thread */
#define SLOTS          (THREADS * OWN_SLOTS)
#define KEPT_ONE_OF    10u
#define FOREIGN_ONE_OF 32u /* steps that are made in another thread's slots */
#define BYTES_MAX      2048u

/* What a block begins with; the pattern of its seed lies behind. */
struct content {
    size_t bytes;
    uint64_t seed;
};

static _Atomic(struct content *) slots[SLOTS];
static atomic_ulong out_of_line; /* blocks where none of a slab of their class could lie */
static pthread_barrier_t barrier;

/* Sizes that are a power of two show guests: in a slab of their class each lies at a multiple of its size. */
static const size_t phase_bytes[] = {48, 256, 80, 512, 32, 128, 640, 1024, 24, 64};
static unsigned phases;

static void end_block(struct content *block) {
    if (block != NULL) {
        CHECK(block->bytes <= BYTES_MAX);
        CHECK(pattern_holds(block + 1, block->bytes - sizeof *block, block->seed));
        TEST_FREE(block);
    }
}

static struct content *new_block(size_t bytes, struct rng *rng, unsigned long *guests) {
    struct content *block = TEST_MALLOC(bytes);
    CHECK(block != NULL);
    size_t usable_bytes = TEST_USABLE_SIZE(block);
    CHECK(usable_bytes >= bytes && usable_bytes <= BYTES_MAX);
    bool is_power = (usable_bytes & (usable_bytes - 1)) == 0;
    *guests += is_power && (uintptr_t)block % usable_bytes != 0;
    *block = (struct content){.bytes = bytes, .seed = rng_next(rng)};
    pattern_fill(block + 1, bytes - sizeof *block, block->seed);
    return block;
}

/* Grows or shrinks it a little: in place, or to another block of another class. */
static struct content *resized(struct content *block, size_t bytes) {
    size_t kept_bytes = bytes < block->bytes ? bytes : block->bytes;
    block = TEST_REALLOC(block, bytes);
    CHECK(block != NULL && pattern_holds(block + 1, kept_bytes - sizeof *block, block->seed));
    block->bytes = bytes;
    pattern_fill(block + 1, bytes - sizeof *block, block->seed);
    return block;
}

static size_t any_slot(unsigned thread, struct rng *rng) {
    bool is_foreign = rng_below(rng, FOREIGN_ONE_OF) == 0;
    return is_foreign ? rng_below(rng, SLOTS) : thread * OWN_SLOTS + rng_below(rng, OWN_SLOTS);
}

static void run_phase(unsigned thread, size_t bytes, struct rng *rng, unsigned long *guests) {
    for (unsigned i = 0; i < OWN_SLOTS; i++) {
        struct content *block = new_block(bytes, rng, guests);
        if (rng_below(rng, 16) == 0) {
            block = resized(block, bytes + rng_below(rng, bytes));
        }
        end_block(atomic_exchange(&slots[any_slot(thread, rng)], block));
    }
}

static void thin_out(unsigned thread, struct rng *rng) {
    for (unsigned i = 0; i < OWN_SLOTS; i++) {
        if (rng_below(rng, KEPT_ONE_OF) != 0) {
            end_block(atomic_exchange(&slots[thread * OWN_SLOTS + i], NULL));
        }
    }
}

static void *work(void *number) {
    unsigned thread = (unsigned)(uintptr_t)number;
    struct rng rng = rng_seeded(thread);
    unsigned long guests = 0;
    for (unsigned phase = 0; phase < phases; phase++) {
        run_phase(thread, phase_bytes[phase % COUNT_OF(phase_bytes)], &rng, &guests);
        (void)pthread_barrier_wait(&barrier);
        thin_out(thread, &rng);
    }
    atomic_fetch_add(&out_of_line, guests);
    return NULL;
}

static void sizes_change_while_others_free(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    phases = (unsigned)COUNT_OF(phase_bytes) * test_scale() / (TEST_SLOWNESS == 1 ? 1 : 2);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS + 1), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i), 0);
    }
    for (unsigned phase = 0; phase < phases; phase++) {
        (void)pthread_barrier_wait(&barrier);
        check_heap(); /* while blocks are freed, guests among them */
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
    print_message("%lu guests seen\n", atomic_load(&out_of_line));
    assert_true(!hak_is_there() || atomic_load(&out_of_line) > 100);
    check_heap();
    for (unsigned i = 0; i < SLOTS; i++) {
        end_block(atomic_exchange(&slots[i], NULL));
    }
    TEST_TRIM();
    check_heap();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_change_while_others_free),
    };
    return cmocka_run_group_tests_name("guest", tests, NULL, heap_is_sound);
}
