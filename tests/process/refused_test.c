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
#include <stdlib.h>

#define ROOM_BYTES   ((size_t)32 * MIB)
#define UNIT_BYTES   ((size_t)64 * KIB)
#define BLOCK_BYTES  1000u
#define PER_UNIT_MAX 16u
#define ALONE_MAX    10000u /* whatever the heap's size is */

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

static void never(void) {
    CHECK(!"there are no stops");
}

static int be_refused(void *unused) {
    (void)unused;
    single_step_start(never);
    limit_room(ROOM_BYTES);
    size_t units = take_all(BLOCK_BYTES) / UNIT_BYTES;
    CHECK(units > ROOM_BYTES / UNIT_BYTES / 2);
    (void)instructions_of_a_refusal(BLOCK_BYTES); /* for guests that have not been looked for */
    unsigned long small = instructions_of_a_refusal(BLOCK_BYTES);
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
