// batch: allocate many, then free all of them: first in first out, last in first out, or in random order.
//
// Imitates: building a data structure and tearing it down (a compiler's tree, a request's objects). The
// working set is the size of a batch; blocks are of 16-512 bytes.
// One op is one malloc or one free.
// Cannot tell: what happens while most blocks stay; see random_mixed and fragment.
#include "../lib/block.h"
#include "../lib/rng.h"

#include <stdlib.h>

enum { MODE_FIFO, MODE_LIFO, MODE_RANDOM, MIN_BYTES = 16, MAX_BYTES = 512 };

// The order of the frees, made once and untimed: a shuffle inside the loop would be measured too.
static uint32_t *order_make(const struct bench_args *args) {
    uint32_t *order = bench_map(args->working_set * sizeof *order);
    uint32_t count = (uint32_t)args->working_set;
    struct rng rng = rng_make(args->seed, 1);
    for (uint32_t i = 0; i < count; i++) {
        order[i] = args->mode_idx == MODE_LIFO ? count - 1 - i : i;
    }
    for (uint32_t i = count - 1; args->mode_idx == MODE_RANDOM && i > 0; i--) {
        uint32_t other = rng_below(&rng, i + 1);
        uint32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    return order;
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"fifo", "lifo", "random", NULL};
    static const struct bench_spec spec = {
        .name = "batch",
        .imitates = "a data structure built and torn down",
        .iterations = 1000000,
        .working_set = 10000,
        .seed = 42,
        .modes = modes,
    };
    struct bench_args args;
    struct bench_result result = {0};
    struct bench_timer timer;
    bench_parse(&spec, argc, argv, &args);
    struct slot *slots = bench_map(args.working_set * sizeof *slots);
    uint32_t *order = order_make(&args);
    struct rng rng = rng_make(args.seed, 0);
    uint64_t batches = args.iterations / (2 * args.working_set) + 1;
    bench_start(&timer);
    for (uint64_t batch = 0; batch < batches; batch++) {
        for (uint64_t i = 0; i < args.working_set; i++) {
            size_t bytes = rng_between(&rng, MIN_BYTES, MAX_BYTES);
            slot_fill(&slots[i], malloc(bytes), bytes, i);
        }
        for (uint64_t i = 0; i < args.working_set; i++) {
            struct slot *slot = &slots[order[i]];
            block_check(slot->block, slot->bytes, order[i]);
            free(slot->block);
        }
    }
    bench_stop(&timer, &result);
    result.ops = batches * 2 * args.working_set;
    bench_report(&args, &result);
    return 0;
}
