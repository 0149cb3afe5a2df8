/*
 * survivors_test.c - a store nine in ten of whose values were deleted at random takes larger ones: what it
 * holds then is near what the pages with live blocks force. Imitates redis when what it is used for changes.
 * And a compiler, whose passes have sizes of their own: the next one's blocks find room between those that
 * stay.
 *
 * suite: limit 60 s
 */
#include "memory/rss_kit.h"
#include "support/target.h"

#define OLD_BYTES   440u
#define OLD_BLOCKS  120000u
#define NEW_BYTES   800u
#define NEW_BLOCKS  16000u
#define KEPT_OF_100 10u

/* The program, metadata, what caches hold, and free memory that may stay. */
#define SLACK_BYTES (5 * MIB)

/* Frees all but some, chosen at random, which come first then; how many. */
static size_t thin_out(void **old, unsigned count, struct rng *rng) {
    size_t kept = 0;
    for (unsigned i = 0; i < count; i++) {
        if (rng_below(rng, 100) < KEPT_OF_100) {
            old[kept++] = old[i];
        } else {
            free(old[i]);
        }
    }
    return kept;
}

static void what_survivors_do_not_lie_on_goes_back(void **state) {
    (void)state;
    struct rng rng = rng_seeded(5);
    void **old = map_own(OLD_BLOCKS * sizeof *old);
    void **new = map_own(NEW_BLOCKS * sizeof *new);
    fill_blocks(old, OLD_BLOCKS, OLD_BYTES);
    size_t full_bytes = rss_bytes();
    size_t kept = thin_out(old, OLD_BLOCKS, &rng);
    fill_blocks(new, NEW_BLOCKS, NEW_BYTES);
    size_t held_bytes = rss_bytes();
    for (unsigned i = 0; i < NEW_BLOCKS; i++) {
        assert_int_equal(*(char *)new[i], 1);
    }
    for (size_t i = 0; i < kept; i++) {
        assert_int_equal(((char *)old[i])[OLD_BYTES - 1], 1);
    }
    size_t forced = forced_bytes(old, kept, OLD_BYTES) + forced_bytes(new, NEW_BLOCKS, NEW_BYTES);
    print_message("%zu KiB when full, then %zu, of which pages with live blocks force %zu\n",
                  full_bytes / KIB, held_bytes / KIB, forced / KIB);
    assert_true(held_bytes <= forced + forced / 10 + SLACK_BYTES);
}

#define PASS_BYTES  48u
#define PASS_BLOCKS 1000000u
#define NEXT_BYTES  170u
#define NEXT_BLOCKS 140000u

/* Hardly a page is free, but four blocks in a row are, in two places of three: 34 of 48 MB. */
static void the_next_sizes_lie_between_survivors(void **state) {
    (void)state;
    struct rng rng = rng_seeded(6);
    void **old = map_own(PASS_BLOCKS * sizeof *old);
    void **new = map_own(NEXT_BLOCKS * sizeof *new);
    fill_blocks(old, PASS_BLOCKS, PASS_BYTES);
    size_t full_bytes = rss_bytes();
    size_t kept = thin_out(old, PASS_BLOCKS, &rng);
    fill_blocks(new, NEXT_BLOCKS, NEXT_BYTES);
    size_t held_bytes = rss_bytes();
    print_message("%zu KiB when full, then %zu with %zu more\n", full_bytes / KIB, held_bytes / KIB,
                  NEXT_BLOCKS * (size_t)NEXT_BYTES / KIB);
    assert_true(held_bytes <= full_bytes + SLACK_BYTES);
    for (size_t i = 0; i < kept; i++) {
        assert_int_equal(((char *)old[i])[PASS_BYTES - 1], 1);
        free(old[i]);
    }
    for (unsigned i = 0; i < NEXT_BLOCKS; i++) {
        assert_int_equal(*(char *)new[i], 1);
        assert_int_equal(((char *)new[i])[NEXT_BYTES - 1], 1);
        free(new[i]);
    }
    assert_true(rss_bytes() <= full_bytes / 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_sizes_lie_between_survivors),
        cmocka_unit_test(what_survivors_do_not_lie_on_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
