// What every bench program shares: command line, clocks, thread start, result line.
//
// Does: parse `iterations working-set seed` and the few options a program declares; time a region in wall
// and CPU time; run N threads from a common start; print the result for people or (--json) for the runner.
// Does not: allocate. Nothing here calls malloc between bench_start() and bench_stop(), and the programs'
// own tables come from bench_map(), so that an allocator is measured on the program's blocks alone.
// Called by: every program in bench/programs.
#ifndef BENCH_LIB_BENCH_H
#define BENCH_LIB_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    BENCH_EXIT_USAGE = 2,
    BENCH_EXIT_DAMAGED = 3,   // a block did not hold what was written to it
    BENCH_EXIT_NO_MEMORY = 4, // malloc and friends returned NULL
    BENCH_EXIT_SYSTEM = 5,    // a system call of the program itself failed
    BENCH_MAX_METRICS = 12,
    BENCH_MAX_POINTS = 64,
    BENCH_MAX_THREADS = 1024,
};

// What a program accepts. A zero or NULL member means that the program has no such option.
struct bench_spec {
    const char *name;
    const char *imitates; // one sentence for --help
    uint64_t iterations;
    uint64_t working_set;
    uint64_t seed;
    unsigned threads;
    const char *const *modes; // NULL-terminated; the first is the default
    unsigned seconds;
};

struct bench_args {
    const struct bench_spec *spec;
    uint64_t iterations;
    uint64_t working_set;
    uint64_t seed;
    unsigned threads;
    unsigned mode_idx;
    unsigned seconds;
    bool is_json;
};

struct bench_metric {
    const char *name;
    const char *unit;
    double value;
};

struct bench_point {
    double at_s;
    double value;
};

// One run's result. `ops` is what the throughput counts; the program's header says what one op is.
struct bench_result {
    uint64_t ops;
    double wall_s;
    double cpu_s;
    unsigned metric_count;
    unsigned point_count;
    struct bench_metric metrics[BENCH_MAX_METRICS];
    struct bench_point points[BENCH_MAX_POINTS]; // RSS over time, MiB
};

struct bench_timer {
    uint64_t wall_ns;
    uint64_t cpu_ns;
};

// Fills `args` from the command line; prints the usage and exits on --help and on anything it cannot take.
void bench_parse(const struct bench_spec *spec, int argc, char **argv, struct bench_args *args);

// Prints the result line. Exits with BENCH_EXIT_SYSTEM when malloc and free come from different objects.
void bench_report(const struct bench_args *args, const struct bench_result *result);

void bench_metric_add(struct bench_result *result, const char *name, const char *unit, double value);
void bench_point_add(struct bench_result *result, double at_s, double value);

void bench_start(struct bench_timer *timer);
// Stores the time since bench_start() in result->wall_s and result->cpu_s (all threads of the process).
void bench_stop(const struct bench_timer *timer, struct bench_result *result);
uint64_t bench_now_ns(void); // monotonic
void bench_sleep_ms(uint64_t ms);

// Zeroed memory straight from the kernel, for the program's own tables; never fails (exits instead).
void *bench_map(size_t bytes);
void bench_unmap(void *table, size_t bytes);

uint64_t bench_rss_bytes(void); // resident set of this process now
uint64_t bench_vsz_bytes(void); // address space of this process now
uint64_t bench_minor_faults(void);

// The path of the object whose malloc this process uses, "" when it cannot be told. All of malloc, free,
// calloc and realloc must come from it, else the program exits with BENCH_EXIT_SYSTEM.
const char *bench_malloc_object(void);

// Runs body(context + i * stride, i) on `count` threads, all released at once; returns when all have ended.
// The region from release to the last join is timed into `result`.
void bench_run_threads(unsigned count, void (*body)(void *context, unsigned idx), void *context,
                       size_t stride, struct bench_result *result);

_Noreturn void bench_die_damaged(const void *block, size_t bytes);
_Noreturn void bench_die_no_memory(size_t bytes);
_Noreturn void bench_die_system(const char *what);

// Keeps the compiler from seeing through a pointer: no malloc/free pair is optimised away.
static inline void *bench_opaque(void *p) {
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

#endif
