/*
 * pattern.h - contents that a test can check: what another block, or a stale write, would not leave behind.
 */
#ifndef HAK_TESTS_SUPPORT_PATTERN_H
#define HAK_TESTS_SUPPORT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the pattern of `seed` over the whole range. */
void pattern_fill(void *block, size_t bytes, uint64_t seed);

/* True when the first `bytes` bytes still are the pattern of `seed`. */
bool pattern_holds(const void *block, size_t bytes, uint64_t seed);

/*
 * The same with one word per 4 KiB, plus the first and last 64 bytes: for blocks so big that the rest costs
 * too much. Not for blocks that are resized.
 */
void pattern_mark(void *block, size_t bytes, uint64_t seed);
bool pattern_marked(const void *block, size_t bytes, uint64_t seed);

/* True when every byte is `value`. */
bool bytes_are(const void *block, size_t bytes, unsigned char value);

#endif
