// histogram.h: buckets and percentiles against known answers. Exits 0 when all hold.
#include "../lib/histogram.h"

#include <stdio.h>

static int failures;

static void expect(const char *what, uint64_t got, uint64_t low, uint64_t high) {
    if (got < low || got > high) {
        printf("%s: %llu, expected %llu to %llu\n", what, (unsigned long long)got, (unsigned long long)low,
               (unsigned long long)high);
        failures++;
    }
}

int main(void) {
    static struct histogram h;
    for (unsigned idx = 0; idx < HISTOGRAM_BUCKETS; idx++) {
        expect("a bucket's low end lies in it", histogram_idx(histogram_low_ns(idx)), idx, idx);
    }
    expect("the largest time has a bucket", histogram_idx(UINT64_MAX), HISTOGRAM_BUCKETS - 1,
           HISTOGRAM_BUCKETS - 1);
    for (uint64_t ns = 1; ns <= 100000; ns++) {
        histogram_add(&h, ns);
    }
    expect("count", h.count, 100000, 100000);
    expect("median", histogram_percentile_ns(&h, 0.5), 49200, 50001);
    expect("99 %", histogram_percentile_ns(&h, 0.99), 97400, 99001);
    expect("99.9 %", histogram_percentile_ns(&h, 0.999), 98300, 99901);
    expect("maximum", h.max_ns, 100000, 100000);
    return failures == 0 ? 0 : 1;
}
