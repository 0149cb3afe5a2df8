/*
 * bits.h - integer arithmetic: rounding, powers of two, runs of set bits.
 */
#ifndef HAK_BASE_BITS_H
#define HAK_BASE_BITS_H

#include "base/compiler.h"
#include <stdint.h>

HAK_INLINE bool hak_is_pow2(size_t x) {
    return x != 0 && (x & (x - 1)) == 0;
}

/* Rounds x up to a multiple of the power of two `align`. The caller has excluded overflow. */
HAK_INLINE size_t hak_round_up(size_t x, size_t align) {
    return (x + align - 1) & ~(align - 1);
}

HAK_INLINE size_t hak_round_down(size_t x, size_t align) {
    return x & ~(align - 1);
}

HAK_INLINE bool hak_is_aligned(uintptr_t x, size_t align) {
    return (x & (align - 1)) == 0;
}

HAK_INLINE size_t hak_smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

HAK_INLINE size_t hak_larger(size_t a, size_t b) {
    return a > b ? a : b;
}

HAK_INLINE unsigned hak_ctz32(uint32_t x) {
    return (unsigned)__builtin_ctz(x);
}

HAK_INLINE unsigned hak_ctz64(uint64_t x) {
    return (unsigned)__builtin_ctzll(x);
}

/*
 * How many bits are set in each byte: sums of neighbouring bits, pairs and nibbles (H. Warren, "Hacker's
 * Delight", 5-1). x86-64 as such has no instruction that counts, and the compiler would call a function.
 */
HAK_INLINE uint64_t hak_byte_popcounts(uint64_t x) {
    x -= x >> 1 & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
    return (x + (x >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
}

HAK_INLINE unsigned hak_popcount64(uint64_t x) {
    return (unsigned)(hak_byte_popcounts(x) * UINT64_C(0x0101010101010101) >> 56);
}

HAK_INLINE unsigned hak_popcount32(uint32_t x) {
    return hak_popcount64(x);
}

/* Of two words at once: bits of the first, those of the other in *second. The sums of a word's four bytes
 * come to its lowest one, whatever the other word's add to the rest. */
HAK_INLINE unsigned hak_popcount32_of_two(uint32_t x, uint32_t y, unsigned *second) {
    uint64_t sums = hak_byte_popcounts((uint64_t)y << 32 | x);
    sums += sums >> 8;
    sums += sums >> 16;
    *second = (unsigned)(sums >> 32) & UINT8_MAX;
    return (unsigned)sums & UINT8_MAX;
}

/* Floor of the base-two logarithm; x is not 0. */
HAK_INLINE unsigned hak_log2(size_t x) {
    return 63u - (unsigned)__builtin_clzll(x);
}

/* The lowest `count` bits set; count is at most 32. */
HAK_INLINE uint32_t hak_mask32(unsigned count) {
    return count == 32 ? UINT32_MAX : ((uint32_t)1 << count) - 1;
}

/* Bit i of the result is set when bits i .. i+count-1 of mask are all set; count is at least 1. */
HAK_INLINE uint32_t hak_runs_of(uint32_t mask, unsigned count) {
    for (unsigned have = 1; have < count && mask != 0;) {
        unsigned step = have < count - have ? have : count - have;
        mask &= mask >> step;
        have += step;
    }
    return mask;
}

/* The lower half of the product of two numbers, and its upper. Two registers, which gcc 12 copies when it has
 * both from one of 128 bits. */
HAK_ALWAYS_INLINE uint64_t hak_multiply_wide(uint64_t a, uint64_t b, uint64_t *upper) {
#if defined(__x86_64__)
    __asm__("mulq %2" : "+a"(a), "=d"(*upper) : "r"(b) : "cc");
    return a;
#else
    unsigned __int128 product = (unsigned __int128)a * b;
    *upper = (uint64_t)(product >> 64);
    return (uint64_t)product;
#endif
}

#endif
