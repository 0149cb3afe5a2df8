/*
 * trace_table_test.c - stacks that are kept: each once and found again, however many there are; their bound;
 * and the tally that leaks are listed by.
 *
 * suite: limit 60 s
 */
#include "support/refused_mmap.h"

#include "check/trace_table.h"
#include "support/child.h"
#include "support/test.h"
#include <errno.h>
#include <stdbool.h>

#define FRAMES 16u

/* A stack of its own for each number. */
static const struct hak_trace *keep_number(uintptr_t number) {
    void *frames[FRAMES] = {(void *)number};
    return hak_trace_keep(frames, FRAMES);
}

/* ---- keeping ---- */

static void what_is_kept_is_what_was_given(void **state) {
    (void)state;
    void *frames[3] = {(void *)1, (void *)2, (void *)3};
    void *const *found = NULL;
    size_t before_bytes = hak_trace_kept_bytes();
    const struct hak_trace *trace = hak_trace_keep(frames, 3);
    assert_true(hak_trace_kept_bytes() >= before_bytes + sizeof frames);
    assert_int_equal(hak_trace_frames(trace, &found), 3);
    assert_memory_equal(found, frames, sizeof frames);
    assert_ptr_not_equal(found, frames);
}

static void a_stack_that_begins_another_is_another(void **state) {
    (void)state;
    void *frames[3] = {(void *)4, (void *)5, (void *)6};
    const struct hak_trace *traces[4];
    for (unsigned count = 0; count <= 3; count++) {
        traces[count] = hak_trace_keep(frames, count);
        assert_non_null(traces[count]);
    }
    size_t kept_bytes = hak_trace_kept_bytes();
    for (unsigned count = 0; count <= 3; count++) {
        void *const *found = NULL;
        assert_ptr_equal(hak_trace_keep(frames, count), traces[count]);
        assert_int_equal(hak_trace_frames(traces[count], &found), count);
    }
    assert_int_equal(hak_trace_kept_bytes(), kept_bytes);
}

/* In a process of its own, whose further stacks are lost: more than there are buckets, each is found again.
 */
static int keep_as_many_as_there_may_be(void *unused) {
    (void)unused;
    uintptr_t count = 0;
    while (keep_number(count + 1) != NULL) {
        count++;
    }
    size_t kept_bytes = hak_trace_kept_bytes();
    CHECK(kept_bytes <= 64 * MIB);
    CHECK(kept_bytes > 64 * MIB - KIB);
    for (uintptr_t number = 1; number <= count; number++) {
        void *const *frames = NULL;
        CHECK(hak_trace_frames(keep_number(number), &frames) == FRAMES);
        CHECK(frames[0] == (void *)number);
    }
    CHECK(hak_trace_kept_bytes() == kept_bytes);
    return 0;
}

/* What is lost is the new stack, not those that are known. */
static int keep_without_memory(void *unused) {
    (void)unused;
    uintptr_t count = 0;
    is_mapping_refused = true;
    while (keep_number(count + 1) != NULL) {
        count++;
    }
    CHECK(hak_trace_kept_bytes() < 60 * MIB);
    size_t kept_bytes = hak_trace_kept_bytes();
    CHECK(keep_number(count + 1) == NULL);
    CHECK(hak_trace_kept_bytes() == kept_bytes);
    CHECK(count == 0 || keep_number(count) != NULL);
    is_mapping_refused = false;
    CHECK(keep_number(count + 1) != NULL);
    return 0;
}

static void what_is_kept_has_a_bound(void **state) {
    (void)state;
    assert_function_succeeds(keep_as_many_as_there_may_be);
}

static void without_memory_a_new_stack_is_lost(void **state) {
    (void)state;
    assert_function_succeeds(keep_without_memory);
}

static int prepare_without_memory(void *unused) {
    struct hak_trace_sums tally = {7, 7};
    (void)unused;
    is_mapping_refused = true;
    CHECK(hak_trace_table_prepare() == ENOMEM);
    CHECK(hak_trace_take_largest(&tally) == NULL);
    CHECK(tally.blocks == 7 && tally.bytes == 7);
    return 0;
}

static void without_memory_there_is_no_table(void **state) {
    (void)state;
    assert_function_succeeds(prepare_without_memory);
}

/* ---- the tally ---- */

/* The one with the most bytes first, each once, with what it was given. */
static void the_largest_is_taken_first(void **state) {
    (void)state;
    const struct hak_trace *few = keep_number(1001), *most = keep_number(1002), *none = keep_number(1003),
                           *many = keep_number(1004);
    struct hak_trace_sums tally;
    hak_trace_add(few, 100);
    hak_trace_add(most, 5000);
    for (size_t bytes = 1; bytes <= 20; bytes++) {
        hak_trace_add(many, bytes);
    }
    hak_trace_add(none, 0); /* a block of no bytes is a block */
    assert_ptr_equal(hak_trace_take_largest(&tally), most);
    assert_int_equal(tally.blocks, 1);
    assert_int_equal(tally.bytes, 5000);
    assert_ptr_equal(hak_trace_take_largest(&tally), many);
    assert_int_equal(tally.blocks, 20);
    assert_int_equal(tally.bytes, 210);
    assert_ptr_equal(hak_trace_take_largest(&tally), few);
    assert_ptr_equal(hak_trace_take_largest(&tally), none);
    assert_int_equal(tally.blocks, 1);
    assert_int_equal(tally.bytes, 0);
    tally = (struct hak_trace_sums){7, 7};
    assert_null(hak_trace_take_largest(&tally));
    assert_int_equal(tally.blocks, 7);
    hak_trace_add(most, 1); /* what was taken is not counted again */
    assert_ptr_equal(hak_trace_take_largest(&tally), most);
    assert_int_equal(tally.blocks, 1);
    assert_int_equal(tally.bytes, 1);
}

/* Many places, in no order, some with as many bytes as others: from the heaviest to the lightest. */
static void many_are_taken_in_order(void **state) {
    (void)state;
    enum { FIRST = 5000, COUNT = 3000 };
    struct hak_trace_sums tally = {0, SIZE_MAX};
    size_t left_bytes = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        size_t bytes = i * 7919u % 1000;
        hak_trace_add(keep_number(FIRST + i), bytes);
        left_bytes += bytes;
    }
    for (unsigned i = 0; i < COUNT; i++) {
        size_t before_bytes = tally.bytes;
        assert_non_null(hak_trace_take_largest(&tally));
        assert_in_range(tally.bytes, 0, before_bytes);
        assert_int_equal(tally.blocks, 1);
        left_bytes -= tally.bytes;
    }
    assert_int_equal(left_bytes, 0);
    assert_null(hak_trace_take_largest(&tally));
}

/* Wherever in the table a stack lies. */
static int take_from_everywhere(void *unused) {
    const uintptr_t step = 4096, last = 20 * step;
    struct hak_trace_sums tally;
    (void)unused;
    for (uintptr_t number = 0; number <= last; number++) {
        const struct hak_trace *trace = keep_number(number);
        CHECK(trace != NULL);
        if (number % step == 0) {
            hak_trace_add(trace, number);
        }
    }
    for (uintptr_t number = last; number != 0; number -= step) {
        CHECK(hak_trace_take_largest(&tally) == keep_number(number));
        CHECK(tally.blocks == 1 && tally.bytes == number);
    }
    CHECK(hak_trace_take_largest(&tally) == keep_number(0));
    CHECK(hak_trace_take_largest(&tally) == NULL);
    return 0;
}

static void every_stack_of_the_table_is_taken(void **state) {
    (void)state;
    assert_function_succeeds(take_from_everywhere);
}

static int prepare(void **state) {
    (void)state;
    return hak_trace_table_prepare();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_there_is_no_table), /* first: there is none yet */
        cmocka_unit_test_setup(what_is_kept_is_what_was_given, prepare),
        cmocka_unit_test(a_stack_that_begins_another_is_another),
        cmocka_unit_test(what_is_kept_has_a_bound),
        cmocka_unit_test(without_memory_a_new_stack_is_lost),
        cmocka_unit_test(the_largest_is_taken_first),
        cmocka_unit_test(many_are_taken_in_order),
        cmocka_unit_test(every_stack_of_the_table_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
