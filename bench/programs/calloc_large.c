// calloc_large: zeroed blocks of 64 KiB-4 MiB, sparsely used, then freed.
//
// Imitates: hash tables and scratch arrays that are asked for zeroed and filled in part: 64 words spread
// over the block are read, must be zero, and are written. So no allocator can skip zeroing memory that it
// hands out again, but it can leave alone what the kernel gave zeroed. The working set is the blocks alive.
// One op is one free and one calloc with these reads and writes.
// Cannot tell: the time of filling a block whole; that is the program's and the kernel's, not calloc's.
#include "../lib/bench.h"
#include "../lib/rng.h"

#include <stdlib.h>

enum { MIN_BYTES = 64 << 10, MAX_BYTES = 4 << 20, PROBES = 64 };

static void check_zero_and_dirty(uint64_t *words, size_t bytes) {
    size_t step = bytes / sizeof *words / PROBES;
    for (size_t i = 0; i < PROBES; i++) {
        if (words[i * step] != 0) {
            bench_die_damaged(words, bytes);
        }
        words[i * step] = ~UINT64_C(0);
    }
}

int main(int argc, char **argv) {
    static const struct bench_spec spec = {
        .name = "calloc_large",
        .imitates = "zeroed tables that are filled in part",
        .iterations = 1000,
        .working_set = 8,
        .seed = 42,
    };
    struct bench_args args;
    struct bench_result result = {0};
    struct bench_timer timer;
    bench_parse(&spec, argc, argv, &args);
    uint64_t **tables = bench_map(args.working_set * sizeof *tables);
    struct rng rng = rng_make(args.seed, 0);
    uint64_t faults_before = bench_minor_faults();
    bench_start(&timer);
    for (uint64_t i = 0; i < args.iterations; i++) {
        uint32_t pick = rng_below(&rng, (uint32_t)args.working_set);
        size_t words = rng_between(&rng, MIN_BYTES, MAX_BYTES) / sizeof **tables;
        free(tables[pick]);
        tables[pick] = calloc(words, sizeof **tables);
        if (tables[pick] == NULL) {
            bench_die_no_memory(words * sizeof **tables);
        }
        check_zero_and_dirty(tables[pick], words * sizeof **tables);
    }
    bench_stop(&timer, &result);
    uint64_t faults = bench_minor_faults() - faults_before;
    bench_metric_add(&result, "faults_per_op", "faults", (double)faults / (double)args.iterations);
    result.ops = args.iterations;
    bench_report(&args, &result);
    return 0;
}
