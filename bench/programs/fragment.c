// fragment: block sizes drift over time while a part of the old blocks stays.
//
// Imitates: a long-lived server whose load changes: sizes around 32 bytes at first, growing to around 4 KiB
// and back again; random slots are replaced all the while, and one slot in eight only every eighth time,
// so that old blocks pin the memory of sizes that nobody asks for any more. The working set is the number
// of slots.
// One op is one free and one malloc. At the end: live bytes as requested, RSS, and RSS per live byte (1 would
// be perfect). The program's own table counts in the RSS, with every allocator the same.
#include "../lib/block.h"
#include "../lib/rng.h"

#include <stdlib.h>

enum { SMALLEST_SHIFT = 5, DRIFT_DOUBLINGS = 7, STICKY_EVERY = 8 };

// The centre of the sizes after `done` of `total` operations: up by DRIFT_DOUBLINGS doublings and down again.
static uint32_t centre_bytes(uint64_t done, uint64_t total) {
    uint64_t steps = 2 * DRIFT_DOUBLINGS * 16;
    uint64_t step = done * steps / total;
    uint64_t up = step < steps / 2 ? step : steps - step;
    uint64_t base = UINT64_C(1) << (SMALLEST_SHIFT + up / 16);
    return (uint32_t)(base + base * (up % 16) / 16);
}

static void run(const struct bench_args *args, struct slot *slots, struct bench_result *result) {
    struct rng rng = rng_make(args->seed, 0);
    struct bench_timer timer;
    bench_start(&timer);
    for (uint64_t i = 0; i < args->iterations; i++) {
        uint32_t pick = rng_below(&rng, (uint32_t)args->working_set);
        if (pick % STICKY_EVERY == 0 && rng_below(&rng, STICKY_EVERY) != 0) {
            continue;
        }
        struct slot *slot = &slots[pick];
        if (slot->block != NULL) {
            block_check(slot->block, slot->bytes, pick);
            free(slot->block);
        }
        uint32_t centre = centre_bytes(i, args->iterations);
        size_t bytes = rng_between(&rng, centre / 2, centre + centre / 2);
        unsigned char *block = malloc(bytes);
        if (block == NULL) {
            bench_die_no_memory(bytes);
        }
        block_touch(block, bytes);
        slot_fill(slot, block, bytes, pick);
    }
    bench_stop(&timer, result);
}

int main(int argc, char **argv) {
    static const struct bench_spec spec = {
        .name = "fragment",
        .imitates = "a long-lived server whose block sizes change over time",
        .iterations = 2000000,
        .working_set = 40000,
        .seed = 42,
    };
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    struct slot *slots = bench_map(args.working_set * sizeof *slots);
    run(&args, slots, &result);
    uint64_t live = 0;
    for (uint64_t i = 0; i < args.working_set; i++) {
        live += slots[i].bytes;
    }
    double mib = 1024.0 * 1024.0;
    double rss = (double)bench_rss_bytes();
    bench_metric_add(&result, "live", "MiB", (double)live / mib);
    bench_metric_add(&result, "rss_end", "MiB", rss / mib);
    bench_metric_add(&result, "rss_per_live", "x", live > 0 ? rss / (double)live : 0);
    result.ops = args.iterations;
    bench_report(&args, &result);
    return 0;
}
