/*
 * chacha.c - see chacha.h.
 */
#include "base/chacha.h"

#define DOUBLE_ROUNDS 4u

static uint32_t rotate(uint32_t word, unsigned bits) {
    return word << bits | word >> (32 - bits);
}

static void quarter_round(uint32_t *x, unsigned a, unsigned b, unsigned c, unsigned d) {
    x[a] += x[b];
    x[d] = rotate(x[d] ^ x[a], 16);
    x[c] += x[d];
    x[b] = rotate(x[b] ^ x[c], 12);
    x[a] += x[b];
    x[d] = rotate(x[d] ^ x[a], 8);
    x[c] += x[d];
    x[b] = rotate(x[b] ^ x[c], 7);
}

void hak_chacha8_block(const uint32_t key[HAK_CHACHA_KEY_WORDS], uint64_t counter, uint64_t stream,
                       uint32_t out[HAK_CHACHA_BLOCK_WORDS]) {
    /* "expand 32-byte k", the constants of the cipher */
    uint32_t start[HAK_CHACHA_BLOCK_WORDS] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    for (unsigned i = 0; i < HAK_CHACHA_KEY_WORDS; i++) {
        start[4 + i] = key[i];
    }
    start[12] = (uint32_t)counter;
    start[13] = (uint32_t)(counter >> 32);
    start[14] = (uint32_t)stream;
    start[15] = (uint32_t)(stream >> 32);
    for (unsigned i = 0; i < HAK_CHACHA_BLOCK_WORDS; i++) {
        out[i] = start[i];
    }
    for (unsigned round = 0; round < DOUBLE_ROUNDS; round++) {
        for (unsigned column = 0; column < 4; column++) {
            quarter_round(out, column, 4 + column, 8 + column, 12 + column);
        }
        for (unsigned i = 0; i < 4; i++) { /* diagonals */
            quarter_round(out, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4);
        }
    }
    for (unsigned i = 0; i < HAK_CHACHA_BLOCK_WORDS; i++) {
        out[i] += start[i];
    }
}
