/*
 * pattern.c - see pattern.h.
 */
#include "lib/pattern.h"

#include <string.h>

#define WORD_BYTES sizeof(uint64_t)
#define EDGE_BYTES ((size_t)64)
#define STEP_BYTES ((size_t)4096)

static uint64_t word_of(uint64_t seed, size_t index) {
    return (seed ^ (index + 1) * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
}

void pattern_fill(void *block, size_t bytes, uint64_t seed) {
    char *at = block;
    size_t words = bytes / WORD_BYTES;
    for (size_t i = 0; i < words; i++) {
        uint64_t word = word_of(seed, i);
        memcpy(at + i * WORD_BYTES, &word, WORD_BYTES);
    }
    uint64_t last = word_of(seed, words);
    memcpy(at + words * WORD_BYTES, &last, bytes % WORD_BYTES);
}

bool pattern_holds(const void *block, size_t bytes, uint64_t seed) {
    const char *at = block;
    size_t words = bytes / WORD_BYTES;
    for (size_t i = 0; i < words; i++) {
        uint64_t word = word_of(seed, i);
        if (memcmp(at + i * WORD_BYTES, &word, WORD_BYTES) != 0) {
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
        uint64_t word = word_of(seed, offset);
        memcpy(at + offset, &word, WORD_BYTES);
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
        uint64_t word = word_of(seed, offset);
        if (memcmp(at + offset, &word, WORD_BYTES) != 0) {
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
