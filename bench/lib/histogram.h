// A histogram of times with 1.6 % steps, for percentiles up to the last one.
//
// Does: count nanoseconds in buckets of a power of two each divided in 64; keep the maximum exactly.
// Does not: allocate, lock, or store single samples. One thread writes; read it when that one is done.
#ifndef BENCH_LIB_HISTOGRAM_H
#define BENCH_LIB_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_SUB_SHIFT = 6, HISTOGRAM_BUCKETS = (64 - HISTOGRAM_SUB_SHIFT + 1) << HISTOGRAM_SUB_SHIFT };

struct histogram {
    uint64_t count; // == sum of buckets
    uint64_t max_ns;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram_idx(uint64_t ns) {
    if (ns < (1u << HISTOGRAM_SUB_SHIFT)) {
        return (unsigned)ns;
    }
    unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - HISTOGRAM_SUB_SHIFT;
    return ((shift + 1) << HISTOGRAM_SUB_SHIFT) +
           (unsigned)((ns >> shift) & ((1u << HISTOGRAM_SUB_SHIFT) - 1));
}

// The smallest time that falls into bucket `idx`.
static inline uint64_t histogram_low_ns(unsigned idx) {
    if (idx < (1u << HISTOGRAM_SUB_SHIFT)) {
        return idx;
    }
    unsigned shift = (idx >> HISTOGRAM_SUB_SHIFT) - 1;
    uint64_t sub = idx & ((1u << HISTOGRAM_SUB_SHIFT) - 1);
    return ((UINT64_C(1) << HISTOGRAM_SUB_SHIFT) + sub) << shift;
}

static inline void histogram_add(struct histogram *h, uint64_t ns) {
    h->buckets[histogram_idx(ns)]++;
    h->count++;
    if (ns > h->max_ns) {
        h->max_ns = ns;
    }
}

// The time that `share` (0..1) of the samples do not exceed, to the bucket's precision.
static inline uint64_t histogram_percentile_ns(const struct histogram *h, double share) {
    uint64_t rank = (uint64_t)(share * (double)h->count);
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen > rank) {
            return histogram_low_ns(i);
        }
    }
    return h->max_ns;
}

#endif
