/*
 * text.c - see text.h.
 */
#include "base/text.h"
#include <string.h>

#define DECIMAL_DIGITS_MAX 20u
#define HEX_DIGITS_MAX     16u

void hak_text_char(struct text *t, char c) {
    if (t->used_bytes < t->capacity_bytes) {
        t->start[t->used_bytes++] = c;
    }
}

void hak_text_string(struct text *t, const char *s) {
    while (*s != '\0') {
        hak_text_char(t, *s++);
    }
}

void hak_text_bytes(struct text *t, const char *s, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        hak_text_char(t, s[i]);
    }
}

static unsigned decimal_digits(uint64_t value, char digits[DECIMAL_DIGITS_MAX]) {
    unsigned count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    return count;
}

void hak_text_decimal(struct text *t, uint64_t value) {
    hak_text_decimal_right(t, value, 0);
}

void hak_text_decimal_right(struct text *t, uint64_t value, unsigned width) {
    char digits[DECIMAL_DIGITS_MAX];
    unsigned count = decimal_digits(value, digits);
    for (unsigned i = count; i < width; i++) {
        hak_text_char(t, ' ');
    }
    while (count != 0) {
        hak_text_char(t, digits[--count]);
    }
}

void hak_text_hex(struct text *t, uint64_t value) {
    char digits[HEX_DIGITS_MAX];
    unsigned count = 0;
    do {
        digits[count++] = "0123456789abcdef"[value & 15u];
        value >>= 4;
    } while (value != 0);
    hak_text_string(t, "0x");
    while (count != 0) {
        hak_text_char(t, digits[--count]);
    }
}

void hak_text_right(struct text *t, const char *word, size_t width) {
    for (size_t bytes = strlen(word); bytes < width; bytes++) {
        hak_text_char(t, ' ');
    }
    hak_text_string(t, word);
}

void hak_text_pad(struct text *t, size_t line_start_bytes, size_t column) {
    while (t->used_bytes < t->capacity_bytes && t->used_bytes - line_start_bytes < column) {
        hak_text_char(t, ' ');
    }
}
