// large: big blocks replaced at random, every page of every block written once.
//
// Imitates: image, matrix and I/O buffers: --mode=huge takes blocks of 5-25 MiB, --mode=mid of 64 KiB-1 MiB.
// The working set is the number of blocks alive.
// One op is one free and one malloc, the writing of the pages included: a block that nobody writes to costs
// nothing and says nothing. Page faults are most of the time wherever memory went back to the kernel.
#include "../lib/block.h"
#include "../lib/rng.h"

#include <stdlib.h>

enum { MODE_HUGE };

int main(int argc, char **argv) {
    static const char *const modes[] = {"huge", "mid", NULL};
    static const struct bench_spec spec = {
        .name = "large",
        .imitates = "image, matrix and I/O buffers",
        .iterations = 200,
        .working_set = 8,
        .seed = 42,
        .modes = modes,
    };
    struct bench_args args;
    struct bench_result result = {0};
    struct bench_timer timer;
    bench_parse(&spec, argc, argv, &args);
    bool is_huge = args.mode_idx == MODE_HUGE;
    uint32_t min_bytes = is_huge ? 5u << 20 : 64u << 10;
    uint32_t max_bytes = is_huge ? 25u << 20 : 1u << 20;
    struct slot *slots = bench_map(args.working_set * sizeof *slots);
    struct rng rng = rng_make(args.seed, 0);
    uint64_t faults_before = bench_minor_faults();
    bench_start(&timer);
    for (uint64_t i = 0; i < args.iterations; i++) {
        uint32_t pick = rng_below(&rng, (uint32_t)args.working_set);
        struct slot *slot = &slots[pick];
        if (slot->block != NULL) {
            block_check(slot->block, slot->bytes, pick);
            free(slot->block);
        }
        size_t bytes = rng_between(&rng, min_bytes, max_bytes);
        unsigned char *block = malloc(bytes);
        if (block == NULL) {
            bench_die_no_memory(bytes);
        }
        block_touch(block, bytes);
        slot_fill(slot, block, bytes, pick);
    }
    bench_stop(&timer, &result);
    uint64_t faults = bench_minor_faults() - faults_before;
    bench_metric_add(&result, "faults_per_op", "faults", (double)faults / (double)args.iterations);
    for (uint64_t i = 0; i < args.working_set; i++) {
        free(slots[i].block);
    }
    result.ops = args.iterations;
    bench_report(&args, &result);
    return 0;
}
