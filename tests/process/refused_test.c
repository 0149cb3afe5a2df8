/*
 * refused_test.c - what a malloc costs that is refused although all is given back that can be: it comes by
 * every slab, but has business with few. Counts instructions.
 *
 * suite: limit 60 s, flavours release
 */
#include "support/child.h"
#include "support/limits.h"
#include "support/single_step.h"
#include "support/target.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#define ROOM_BYTES   ((size_t)32 * MIB)
#define UNIT_BYTES   ((size_t)64 * KIB)
#define BLOCK_BYTES  1000u
#define LEFT_BYTES   100u
#define PER_UNIT_MAX 16u
#define ALONE_MAX    10000u /* whatever the heap's size is */
#define REFUSALS     8u     /* more than the searches in vain before some are skipped */

/* Blocks of the size until there are no more; how many bytes. */
static size_t take_all(size_t block_bytes) {
    size_t bytes = 0;
    while (launder(malloc(block_bytes)) != NULL) {
        bytes += block_bytes;
    }
    CHECK(errno == ENOMEM);
    return bytes;
}

static unsigned long instructions_of_a_refusal(size_t block_bytes) {
    (void)single_step_counts();
    single_step_on(0);
    void *block = launder(malloc(block_bytes));
    single_step_off();
    CHECK(block == NULL);
    return single_step_counts().instructions;
}

/* Of several: what a thread has left makes some of them search for room for guests, which is not there. */
static unsigned long fewest_instructions(size_t block_bytes, unsigned refusals) {
    unsigned long fewest = ULONG_MAX;
    for (unsigned i = 0; i < refusals; i++) {
        unsigned long instructions = instructions_of_a_refusal(block_bytes);
        fewest = instructions < fewest ? instructions : fewest;
    }
    return fewest;
}

static void never(void) {
    CHECK(!"there are no stops");
}

static void *leave_a_block(void *unused) {
    (void)launder(malloc(LEFT_BYTES));
    return unused;
}

static int be_refused(void *unused) {
    (void)unused;
    single_step_start(never);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, leave_a_block, NULL) == 0 && pthread_join(thread, NULL) == 0);
    limit_room(ROOM_BYTES);
    size_t units = take_all(BLOCK_BYTES) / UNIT_BYTES;
    CHECK(units > ROOM_BYTES / UNIT_BYTES / 2);
    unsigned long small = fewest_instructions(BLOCK_BYTES, REFUSALS);
    unsigned long large = instructions_of_a_refusal(ROOM_BYTES);
    print_message("%lu and %lu instructions, %zu units\n", small, large, units);
    single_step_end();
    CHECK(small < ALONE_MAX + units * PER_UNIT_MAX);
    CHECK(large < ALONE_MAX + units * PER_UNIT_MAX);
    return 0;
}

static void a_refusal_hardly_looks_at_slabs_in_full_use(void **state) {
    (void)state;
    REQUIRE_HAK();
    if (!single_step_is_possible()) {
        SKIP_BECAUSE("no single steps here");
    }
    assert_function_succeeds(be_refused);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refusal_hardly_looks_at_slabs_in_full_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
