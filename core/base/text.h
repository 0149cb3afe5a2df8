/*
 * text.h - text into a fixed buffer, without stdio and without allocation.
 *
 * Used for fatal lines, option warnings and the tables that hakmem prints. A text that does not fit is cut.
 * Owner: whoever declared the buffer; no locking.
 */
#ifndef HAK_BASE_TEXT_H
#define HAK_BASE_TEXT_H

#include "base/compiler.h"
#include <stdint.h>

struct text {
    char *start;
    size_t used_bytes;     /* invariant: used_bytes <= capacity_bytes */
    size_t capacity_bytes; /* no terminating zero is kept */
};

HAK_INLINE struct text hak_text_over(char *buffer, size_t capacity_bytes) {
    return (struct text){.start = buffer, .used_bytes = 0, .capacity_bytes = capacity_bytes};
}

void hak_text_char(struct text *t, char c);
void hak_text_string(struct text *t, const char *s);
void hak_text_bytes(struct text *t, const char *s, size_t bytes);
void hak_text_decimal(struct text *t, uint64_t value);
HAK_COLD void hak_text_hex(struct text *t, uint64_t value); /* with the prefix 0x */

/* Adds spaces until `column` characters stand since `line_start_bytes` (a used_bytes value noted earlier). */
HAK_COLD void hak_text_pad(struct text *t, size_t line_start_bytes, size_t column);

/* The word, or the number, right-aligned in `width` characters. */
HAK_COLD void hak_text_right(struct text *t, const char *word, size_t width);
HAK_COLD void hak_text_decimal_right(struct text *t, uint64_t value, unsigned width);

#endif
