// larson's thread scheme: lineages of threads, each generation handing its live blocks to the next.
//
// Does: run `count` lineages at once; every generation runs one piece of work, starts its successor and ends.
// The successor joins its predecessor, so that at most two threads of a lineage exist.
// Does not: know what the work is; larson and the floor bring their own.
#ifndef BENCH_LIB_LINEAGE_H
#define BENCH_LIB_LINEAGE_H

#include "bench.h"

// Runs `generations` threads in each of `count` lineages; generation after generation calls
// work(context + lineage * stride). The whole is timed into `result`.
void lineages_run(unsigned count, uint64_t generations, void (*work)(void *context), void *context,
                  size_t stride, struct bench_result *result);

#endif
