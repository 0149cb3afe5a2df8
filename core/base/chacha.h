/*
 * chacha.h - the stream cipher ChaCha with eight rounds, as a generator of numbers that cannot be guessed
 * from those seen before. Source: D. J. Bernstein, "ChaCha, a variant of Salsa20" (2008).
 */
#ifndef HAK_BASE_CHACHA_H
#define HAK_BASE_CHACHA_H

#include <stdint.h>

#define HAK_CHACHA_KEY_WORDS   8u
#define HAK_CHACHA_BLOCK_WORDS 16u

/* The stream's block number `counter` under the key. `stream` tells streams of one key apart. Any thread. */
void hak_chacha8_block(const uint32_t key[HAK_CHACHA_KEY_WORDS], uint64_t counter, uint64_t stream,
                       uint32_t out[HAK_CHACHA_BLOCK_WORDS]);

#endif
