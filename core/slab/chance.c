/*
 * chance.c - see chance.h. The numbers are a ChaCha8 key stream (base/chacha.h): who has seen some of the
 * choices, as addresses of blocks, cannot tell the next one.
 */
#include "slab/chance.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/chacha.h"
#include "os/os.h"
#include <string.h>

struct hak_lock hak_chance_lock = HAK_LOCK_INIT(HAK_RANK_CHANCE);

/* Under the lock. Stream 0 of the key are the numbers; stream n the key of the n-th child. */
static struct {
    uint32_t key[HAK_CHACHA_KEY_WORDS];
    uint32_t words[HAK_CHACHA_BLOCK_WORDS]; /* the last `left` are not used yet */
    unsigned left;
    uint64_t next_block;
    uint64_t forks; /* since the process has this key */
} generator;

void hak_chance_start(void) {
    hak_os_random(generator.key, sizeof generator.key);
}

static uint32_t next_word(void) {
    hak_lock_acquire(&hak_chance_lock);
    if (generator.left == 0) {
        hak_chacha8_block(generator.key, generator.next_block++, 0, generator.words);
        generator.left = HAK_CHACHA_BLOCK_WORDS;
    }
    uint32_t *word = &generator.words[HAK_CHACHA_BLOCK_WORDS - generator.left--];
    uint32_t value = *word;
    *word = 0; /* what was drawn stands nowhere any more */
    hak_lock_release(&hak_chance_lock);
    return value;
}

uint32_t hak_chance_below(uint32_t bound) {
    HAK_ASSERT(bound != 0);
    return (uint32_t)((uint64_t)next_word() * bound >> 32);
}

unsigned hak_chance_bit(uint32_t mask) {
    HAK_ASSERT(mask != 0);
    for (uint32_t skip = hak_chance_below(hak_popcount32(mask)); skip != 0; skip--) {
        mask &= mask - 1;
    }
    return hak_ctz32(mask);
}

void hak_chance_fork_parent(void) {
    generator.forks++;
}

void hak_chance_fork_child(void) {
    uint32_t words[HAK_CHACHA_BLOCK_WORDS];
    hak_chacha8_block(generator.key, 0, generator.forks + 1, words);
    memcpy(generator.key, words, sizeof generator.key);
    generator.left = 0;
    generator.next_block = 0;
    generator.forks = 0;
}
