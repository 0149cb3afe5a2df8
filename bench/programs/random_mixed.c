// random_mixed: blocks of 16-1024 bytes allocated and freed in random order over a fixed set of slots.
//
// Imitates: an interpreter's or a server's small objects with mixed life times, in one thread.
// One op is one malloc or one free, as in the project's history, so two iterations replace one block. The
// working set is the number of blocks alive.
// Cannot tell: anything about threads, growth, or blocks above 1 KiB.
#include "../lib/loops.h"

int main(int argc, char **argv) {
    static const struct bench_spec spec = {
        .name = "random_mixed",
        .imitates = "small blocks of mixed size and life time in one thread",
        .iterations = 1000000,
        .working_set = 256,
        .seed = 42,
    };
    struct bench_args args;
    struct bench_result result = {0};
    struct bench_timer timer;
    bench_parse(&spec, argc, argv, &args);
    struct slot *slots = bench_map(args.working_set * sizeof *slots);
    struct rng rng = rng_make(args.seed, 0);
    uint64_t replacements = args.iterations / 2 + 1;
    fill_slots(slots, args.working_set, RANDOM_MIXED_MIN_BYTES, RANDOM_MIXED_MAX_BYTES, &rng, NULL,
               libc_allocate);
    bench_start(&timer);
    replace_loop(slots, args.working_set, replacements, RANDOM_MIXED_MIN_BYTES, RANDOM_MIXED_MAX_BYTES, &rng,
                 NULL, libc_allocate, libc_release);
    bench_stop(&timer, &result);
    for (uint64_t i = 0; i < args.working_set; i++) {
        free(slots[i].block);
    }
    result.ops = 2 * replacements;
    bench_report(&args, &result);
    return 0;
}
