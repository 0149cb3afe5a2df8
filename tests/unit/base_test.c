/*
 * base_test.c - the base floor: arithmetic over bits, and text without stdio.
 */
#include "base/bits.h"
#include "base/text.h"
#include "support/test.h"
#include <string.h>

static void rounding_goes_to_the_next_multiple(void **state) {
    (void)state;
    assert_int_equal(hak_round_up(0, 16), 0);
    assert_int_equal(hak_round_up(1, 16), 16);
    assert_int_equal(hak_round_up(16, 16), 16);
    assert_int_equal(hak_round_up(17, 4096), 4096);
    assert_int_equal(hak_round_down(4095, 4096), 0);
    assert_int_equal(hak_round_down(4097, 4096), 4096);
    assert_true(hak_is_aligned(64, 64));
    assert_false(hak_is_aligned(72, 64));
}

static void powers_of_two_and_logarithms(void **state) {
    (void)state;
    assert_false(hak_is_pow2(0));
    for (unsigned shift = 0; shift < 64; shift++) {
        size_t power = (size_t)1 << shift;
        assert_true(hak_is_pow2(power));
        assert_int_equal(hak_log2(power), shift);
        if (shift > 1) {
            assert_false(hak_is_pow2(power - 1));
            assert_int_equal(hak_log2(power - 1), shift - 1);
        }
    }
}

/* Bit by bit, what hak_runs_of() does in steps that double. */
static uint32_t runs_one_by_one(uint32_t mask, unsigned count) {
    uint32_t starts = 0;
    for (unsigned i = 0; i + count <= 32; i++) {
        starts |= ((mask >> i) & hak_mask32(count)) == hak_mask32(count) ? (uint32_t)1 << i : 0;
    }
    return starts;
}

static void runs_of_set_bits_are_found(void **state) {
    (void)state;
    uint32_t mask = 1;
    for (unsigned i = 0; i < 20000; i++) {
        mask = mask * 1664525u + 1013904223u;
        uint32_t dense = mask | mask << 3 | mask >> 5;
        for (unsigned count = 1; count <= 32; count++) {
            assert_int_equal(hak_runs_of(dense, count), runs_one_by_one(dense, count));
        }
    }
    assert_int_equal(hak_runs_of(UINT32_MAX, 32), 1);
    assert_int_equal(hak_mask32(32), UINT32_MAX);
}

static void set_bits_are_counted(void **state) {
    (void)state;
    uint64_t x = 1;
    for (unsigned i = 0; i < 20000; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t sparse = i % 2 == 0 ? x : x & x >> 9 & x >> 17;
        unsigned count = 0;
        for (unsigned bit = 0; bit < 64; bit++) {
            count += sparse >> bit & 1u;
        }
        assert_int_equal(hak_popcount64(sparse), count);
        unsigned upper;
        unsigned lower = hak_popcount32_of_two((uint32_t)sparse, (uint32_t)(sparse >> 32), &upper);
        assert_int_equal(lower, hak_popcount32((uint32_t)sparse));
        assert_int_equal(lower + upper, count);
    }
    unsigned second;
    assert_int_equal(hak_popcount32_of_two(UINT32_MAX, UINT32_MAX, &second), 32);
    assert_int_equal(second, 32);
    assert_int_equal(hak_popcount32_of_two(0, UINT32_MAX, &second), 0);
    assert_int_equal(second, 32);
    assert_int_equal(hak_popcount64(0), 0);
    assert_int_equal(hak_popcount64(UINT64_MAX), 64);
    assert_int_equal(hak_popcount32(UINT32_MAX), 32);
}

static void numbers_become_text(void **state) {
    (void)state;
    char buffer[128];
    struct text text = hak_text_over(buffer, sizeof buffer);
    hak_text_decimal(&text, 0);
    hak_text_char(&text, ' ');
    hak_text_decimal(&text, UINT64_MAX);
    hak_text_char(&text, ' ');
    hak_text_hex(&text, 0);
    hak_text_char(&text, ' ');
    hak_text_hex(&text, 0xdeadbeef00u);
    hak_text_decimal_right(&text, 42, 5);
    buffer[text.used_bytes] = '\0';
    assert_string_equal(buffer, "0 18446744073709551615 0x0 0xdeadbeef00   42");
}

static void text_that_does_not_fit_is_cut(void **state) {
    (void)state;
    char buffer[9];
    memset(buffer, '#', sizeof buffer);
    struct text text = hak_text_over(buffer, 8);
    hak_text_string(&text, "0123456789");
    hak_text_pad(&text, 0, 20);
    assert_int_equal(text.used_bytes, 8);
    assert_memory_equal(buffer, "01234567#", 9);
}

static void padding_fills_up_to_the_column(void **state) {
    (void)state;
    char buffer[32];
    struct text text = hak_text_over(buffer, sizeof buffer);
    hak_text_string(&text, "ab");
    hak_text_pad(&text, 0, 5);
    hak_text_pad(&text, 0, 3);
    hak_text_string(&text, "c");
    assert_int_equal(text.used_bytes, 6);
    assert_memory_equal(buffer, "ab   c", 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_goes_to_the_next_multiple),
        cmocka_unit_test(powers_of_two_and_logarithms),
        cmocka_unit_test(runs_of_set_bits_are_found),
        cmocka_unit_test(set_bits_are_counted),
        cmocka_unit_test(numbers_become_text),
        cmocka_unit_test(text_that_does_not_fit_is_cut),
        cmocka_unit_test(padding_fills_up_to_the_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
