// The programs' random numbers: xorshift64* (Marsaglia 2003, Vigna 2016), seeded through splitmix64.
//
// Does: give the same sequence for the same seed on every machine, for about a nanosecond a number.
// Does not: serve any purpose that needs unpredictable numbers.
#ifndef BENCH_LIB_RNG_H
#define BENCH_LIB_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state; // never 0
};

static inline uint64_t rng_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Distinct (seed, stream) pairs give unrelated sequences: one stream for each thread.
static inline struct rng rng_make(uint64_t seed, uint64_t stream) {
    struct rng r = {rng_mix(seed ^ rng_mix(stream))};
    if (r.state == 0) {
        r.state = 1;
    }
    return r;
}

static inline uint32_t rng_next(struct rng *r) {
    uint64_t x = r->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    r->state = x;
    return (uint32_t)((x * 0x2545f4914f6cdd1du) >> 32);
}

// Uniform in [0, bound) up to a bias of bound / 2^32; a multiplication instead of a slow division.
static inline uint32_t rng_below(struct rng *r, uint32_t bound) {
    return (uint32_t)(((uint64_t)rng_next(r) * bound) >> 32);
}

static inline uint32_t rng_between(struct rng *r, uint32_t low, uint32_t high) {
    return low + rng_below(r, high - low + 1);
}

#endif
