// On which CPU a thread runs.
#ifndef BENCH_TOOLS_CPU_H
#define BENCH_TOOLS_CPU_H

#include <sched.h>

// The calling thread alone. Where that is refused it runs wherever it did.
static inline void run_on(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

#endif
