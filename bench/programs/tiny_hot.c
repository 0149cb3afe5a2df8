// tiny_hot: a handful of 64-byte blocks allocated and freed again, last in first out, as fast as it goes.
//
// Imitates: the innermost use of an allocator, temporary objects of one size in a loop. The working set is
// the number of blocks alive at the turning point. `untouched`: the program never writes to its blocks, nor
// reads them, so their pages have no memory; what an allocator does to a block beside handing it over shows
// here. One op is one malloc or one free. Cannot tell: anything beyond the hit path; every cache is warm and
// every branch predicted.
#include "../lib/block.h"

#include <stdlib.h>

enum { BLOCK_BYTES = 64 };
enum mode { MODE_TOUCHED, MODE_UNTOUCHED };

static void burst_touched(struct slot *slots, const struct bench_args *args) {
    for (uint64_t i = 0; i < args->working_set; i++) {
        slot_fill(&slots[i], bench_opaque(malloc(BLOCK_BYTES)), BLOCK_BYTES, args->seed + i);
    }
    for (uint64_t i = args->working_set; i-- > 0;) {
        block_check(slots[i].block, BLOCK_BYTES, args->seed + i);
        free(slots[i].block);
    }
}

static void burst_untouched(struct slot *slots, const struct bench_args *args) {
    for (uint64_t i = 0; i < args->working_set; i++) {
        slots[i].block = bench_opaque(malloc(BLOCK_BYTES));
    }
    for (uint64_t i = args->working_set; i-- > 0;) {
        free(slots[i].block);
    }
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"touched", "untouched", NULL};
    static const struct bench_spec spec = {
        .name = "tiny_hot",
        .imitates = "temporary objects of one size in the innermost loop",
        .iterations = 1000000,
        .working_set = 16,
        .seed = 42,
        .modes = modes,
    };
    struct bench_args args;
    struct bench_result result = {0};
    struct bench_timer timer;
    bench_parse(&spec, argc, argv, &args);
    struct slot *slots = bench_map(args.working_set * sizeof *slots);
    uint64_t bursts = args.iterations / (2 * args.working_set) + 1;
    bench_start(&timer);
    for (uint64_t burst = 0; burst < bursts; burst++) {
        if (args.mode_idx == MODE_TOUCHED) {
            burst_touched(slots, &args);
        } else {
            burst_untouched(slots, &args);
        }
    }
    bench_stop(&timer, &result);
    result.ops = bursts * 2 * args.working_set;
    bench_report(&args, &result);
    return 0;
}
