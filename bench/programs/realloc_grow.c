// realloc_grow: buffers that grow by realloc, contents checked after every step.
//
// Imitates: --mode=small: strings and vectors, many at once, from 16 bytes by half up to 64 KiB, then freed
// and begun anew; one op is one realloc. --mode=huge: one array of 64 MiB, every page written, grown to
// 128 MiB; one op is that whole cycle, and the metrics give the realloc alone: its time and page faults (none
// when pages are moved, 16384 when they are copied).
// The working set is the number of buffers (small mode).
#include "../lib/block.h"
#include "../lib/rng.h"

#include <stdlib.h>

enum { MODE_SMALL, MIN_BYTES = 16, MAX_BYTES = 64 << 10, HUGE_BYTES = 64 << 20 };

static void small_step(struct slot *slot, uint64_t tag) {
    if (slot->block != NULL) {
        block_check(slot->block, slot->bytes, tag);
    }
    size_t old_bytes = slot->bytes;
    size_t bytes = old_bytes == 0 ? MIN_BYTES : old_bytes + old_bytes / 2;
    if (bytes > MAX_BYTES) {
        free(slot->block);
        *slot = (struct slot){0};
        return;
    }
    unsigned char *block = realloc(slot->block, bytes);
    if (block == NULL) {
        bench_die_no_memory(bytes);
    }
    if (old_bytes != 0) {
        block_check(block, old_bytes, tag); // the old contents came along
    }
    slot_fill(slot, block, bytes, tag);
}

static void run_small(const struct bench_args *args, struct bench_result *result) {
    struct slot *slots = bench_map(args->working_set * sizeof *slots);
    struct rng rng = rng_make(args->seed, 0);
    struct bench_timer timer;
    bench_start(&timer);
    for (uint64_t i = 0; i < args->iterations; i++) {
        uint32_t pick = rng_below(&rng, (uint32_t)args->working_set);
        small_step(&slots[pick], pick);
    }
    bench_stop(&timer, result);
}

static void run_huge(const struct bench_args *args, struct bench_result *result) {
    struct bench_timer timer;
    uint64_t realloc_ns = 0;
    uint64_t realloc_faults = 0;
    bench_start(&timer);
    for (uint64_t i = 0; i < args->iterations; i++) {
        unsigned char *block = malloc(HUGE_BYTES);
        if (block == NULL) {
            bench_die_no_memory(HUGE_BYTES);
        }
        block_touch(block, HUGE_BYTES);
        block_fill(block, HUGE_BYTES, i);
        uint64_t faults_before = bench_minor_faults();
        uint64_t before_ns = bench_now_ns();
        block = realloc(block, 2u * HUGE_BYTES);
        realloc_ns += bench_now_ns() - before_ns;
        realloc_faults += bench_minor_faults() - faults_before;
        if (block == NULL) {
            bench_die_no_memory(2u * HUGE_BYTES);
        }
        block_check(block, HUGE_BYTES, i);
        block[2u * HUGE_BYTES - 1] = 1;
        free(block);
    }
    bench_stop(&timer, result);
    bench_metric_add(result, "realloc", "ns", (double)realloc_ns / (double)args->iterations);
    bench_metric_add(result, "realloc_faults", "faults", (double)realloc_faults / (double)args->iterations);
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"small", "huge", NULL};
    static const struct bench_spec spec = {
        .name = "realloc_grow",
        .imitates = "growing strings, vectors and arrays",
        .iterations = 100000,
        .working_set = 64,
        .seed = 42,
        .modes = modes,
    };
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    if (args.mode_idx == MODE_SMALL) {
        run_small(&args, &result);
    } else {
        run_huge(&args, &result);
    }
    result.ops = args.iterations;
    bench_report(&args, &result);
    return 0;
}
