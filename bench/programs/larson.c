// larson: every thread replaces random blocks of its table, then hands table and blocks to a new thread.
//
// Imitates: a server whose connections outlive the worker threads that opened them (Larson and Krishnan,
// ISMM 1998): what a thread frees was mostly allocated by a thread that has ended.
// One op is one free and one malloc. Historic parameters: 8-128 bytes, 1024 blocks a thread, 4 threads.
// Cannot tell: how frees by a thread that runs at the same time behave; see prodcons.
#include "../lib/lineage.h"
#include "../lib/loops.h"

enum { GENERATION_OPS = 100 * 1024 };

struct larson_thread {
    struct slot *slots;
    uint64_t slot_count;
    uint64_t ops;
    struct rng rng;
} __attribute__((aligned(128)));

static struct larson_thread threads[BENCH_MAX_THREADS];

static void generation(void *context) {
    struct larson_thread *t = context;
    replace_loop(t->slots, t->slot_count, t->ops, LARSON_MIN_BYTES, LARSON_MAX_BYTES, &t->rng, NULL,
                 libc_allocate, libc_release);
}

int main(int argc, char **argv) {
    static const struct bench_spec spec = {
        .name = "larson",
        .imitates = "a server: blocks outlive the threads that allocated them",
        .iterations = 4000000,
        .working_set = 1024,
        .seed = 12345,
        .threads = 4,
    };
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    uint64_t ops_each = args.iterations / args.threads;
    uint64_t generations = ops_each < GENERATION_OPS ? 1 : ops_each / GENERATION_OPS;
    for (unsigned i = 0; i < args.threads; i++) {
        struct larson_thread *t = &threads[i];
        *t = (struct larson_thread){
            .slots = bench_map(args.working_set * sizeof(struct slot)),
            .slot_count = args.working_set,
            .ops = ops_each / generations,
            .rng = rng_make(args.seed, i),
        };
        fill_slots(t->slots, t->slot_count, LARSON_MIN_BYTES, LARSON_MAX_BYTES, &t->rng, NULL, libc_allocate);
    }
    lineages_run(args.threads, generations, generation, threads, sizeof threads[0], &result);
    result.ops = threads[0].ops * generations * args.threads;
    bench_report(&args, &result);
    return 0;
}
