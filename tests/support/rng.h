/*
 * rng.h - a small deterministic random number generator (xorshift64*, Vigna 2016), one state per thread.
 */
#ifndef HAK_TESTS_SUPPORT_RNG_H
#define HAK_TESTS_SUPPORT_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state; /* never 0 */
};

static inline struct rng rng_seeded(uint64_t seed) {
    struct rng rng = {(seed + 1) * 0x9E3779B97F4A7C15u};
    rng.state += rng.state == 0;
    return rng;
}

static inline uint64_t rng_next(struct rng *rng) {
    rng->state ^= rng->state >> 12;
    rng->state ^= rng->state << 25;
    rng->state ^= rng->state >> 27;
    return rng->state * 0x2545F4914F6CDD1Du;
}

/* A number from 0 to bound - 1. */
static inline size_t rng_below(struct rng *rng, size_t bound) {
    return (size_t)(((__uint128_t)rng_next(rng) * bound) >> 64);
}

/* Puts the items into any order (Fisher and Yates). */
static inline void rng_shuffle(struct rng *rng, void **items, size_t count) {
    for (size_t left = count; left > 1; left--) {
        size_t other = rng_below(rng, left);
        void *item = items[left - 1];
        items[left - 1] = items[other];
        items[other] = item;
    }
}

/* A number from low to high, all powers of two in between equally likely: the shape of real request sizes. */
static inline size_t rng_log_between(struct rng *rng, size_t low, size_t high) {
    unsigned low_bits = 63u - (unsigned)__builtin_clzll(low | 1);
    unsigned high_bits = 63u - (unsigned)__builtin_clzll(high | 1);
    unsigned shift = low_bits + (unsigned)rng_below(rng, high_bits - low_bits + 1);
    size_t value = ((size_t)1 << shift) + rng_below(rng, (size_t)1 << shift);
    return value < low ? low : value > high ? high : value;
}

#endif
