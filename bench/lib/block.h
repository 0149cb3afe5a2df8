// The light check of every block: a word at its start and one at its end.
//
// Does: notice a block that is handed out twice, too short, or changed while the program held it. The tag is
// the program's (a slot number), never the address, so that two owners of one block write different words.
// Does not: read the bytes in between; that would measure memory, not the allocator.
#ifndef BENCH_LIB_BLOCK_H
#define BENCH_LIB_BLOCK_H

#include "bench.h"

#include <string.h>

struct slot {
    unsigned char *block; // NULL: empty
    size_t bytes;
};

static inline uint64_t block_word(uint64_t tag, size_t bytes) {
    return (tag + 1) * 0x9e3779b97f4a7c15u ^ bytes;
}

// Blocks of at least 8 bytes.
static inline void block_fill(unsigned char *block, size_t bytes, uint64_t tag) {
    uint64_t word = block_word(tag, bytes);
    memcpy(block, &word, sizeof word);
    memcpy(block + bytes - sizeof word, &word, sizeof word);
}

static inline void block_check(const unsigned char *block, size_t bytes, uint64_t tag) {
    uint64_t word = block_word(tag, bytes);
    uint64_t first;
    uint64_t last;
    memcpy(&first, block, sizeof first);
    memcpy(&last, block + bytes - sizeof last, sizeof last);
    // Under 16 bytes the last word overwrote the end of the first: only the last one is whole.
    bool is_first_whole = bytes >= 2 * sizeof word;
    if (__builtin_expect(last != word || (is_first_whole && first != word), 0)) {
        bench_die_damaged(block, bytes);
    }
}

// Marks a large block: one byte a page of its own, so that every page is really there.
static inline void block_touch(unsigned char *block, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) {
        block[at] = (unsigned char)(at >> 12);
    }
}

static inline void slot_fill(struct slot *slot, void *block, size_t bytes, uint64_t tag) {
    if (__builtin_expect(block == NULL, 0)) {
        bench_die_no_memory(bytes);
    }
    slot->block = block;
    slot->bytes = bytes;
    block_fill(slot->block, bytes, tag);
}

#endif
