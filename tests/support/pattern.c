/*
 * pattern.c - see pattern.h.
 */
#include "support/pattern.h"

#include <string.h>

#define WORD_BYTES sizeof(uint64_t)
#define EDGE_BYTES ((size_t)64)
#define STEP_BYTES ((size_t)4096)

/* __builtin: tests are compiled with -fno-builtin, and a call per word is slow. */
static void store_word(char *at, uint64_t word) {
    __builtin_memcpy(at, &word, WORD_BYTES);
}

static uint64_t load_word(const char *at) {
    uint64_t word;
    __builtin_memcpy(&word, at, WORD_BYTES);
    return word;
}

static uint64_t word_of(uint64_t seed, size_t index) {
    return (seed ^ (index + 1) * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
}

void pattern_fill(void *block, size_t bytes, uint64_t seed) {
    char *at = block;
    size_t words = bytes / WORD_BYTES;
    for (size_t i = 0; i < words; i++) {
        store_word(at + i * WORD_BYTES, word_of(seed, i));
    }
    uint64_t last = word_of(seed, words);
    memcpy(at + words * WORD_BYTES, &last, bytes % WORD_BYTES);
}

bool pattern_holds(const void *block, size_t bytes, uint64_t seed) {
    const char *at = block;
    size_t words = bytes / WORD_BYTES;
    for (size_t i = 0; i < words; i++) {
        if (load_word(at + i * WORD_BYTES) != word_of(seed, i)) {
            return false;
        }
    }
    uint64_t last = word_of(seed, words);
    return memcmp(at + words * WORD_BYTES, &last, bytes % WORD_BYTES) == 0;
}

void pattern_mark(void *block, size_t bytes, uint64_t seed) {
    char *at = block;
    if (bytes <= STEP_BYTES) {
        pattern_fill(block, bytes, seed);
        return;
    }
    for (size_t offset = 0; offset + WORD_BYTES <= bytes; offset += STEP_BYTES) {
        store_word(at + offset, word_of(seed, offset));
    }
    pattern_fill(at, EDGE_BYTES, seed);
    pattern_fill(at + bytes - EDGE_BYTES, EDGE_BYTES, ~seed);
}

bool pattern_marked(const void *block, size_t bytes, uint64_t seed) {
    const char *at = block;
    if (bytes <= STEP_BYTES) {
        return pattern_holds(block, bytes, seed);
    }
    size_t step_end = bytes - EDGE_BYTES;
    for (size_t offset = STEP_BYTES; offset + WORD_BYTES <= step_end; offset += STEP_BYTES) {
        if (load_word(at + offset) != word_of(seed, offset)) {
            return false;
        }
    }
    return pattern_holds(at, EDGE_BYTES, seed) && pattern_holds(at + bytes - EDGE_BYTES, EDGE_BYTES, ~seed);
}

bool bytes_are(const void *block, size_t bytes, unsigned char value) {
    const unsigned char *at = block;
    /* All bytes equal the first exactly when the range equals itself shifted by one. */
    return bytes == 0 || (at[0] == value && memcmp(at, at + 1, bytes - 1) == 0);
}
