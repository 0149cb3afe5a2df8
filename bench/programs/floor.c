// floor: the loops of random_mixed and larson over inline fixed-class stacks without any check.
//
// Imitates: nothing; it is the bound. What these loops cost here is random numbers, the table, the writes
// into the blocks and the cache misses they take, and the price of a thread: no allocator can be below it.
// One op counts as in the program whose loop it is. Uses malloc for nothing, so any preload changes nothing.
#include "../lib/floor_alloc.h"
#include "../lib/lineage.h"
#include "../lib/loops.h"

enum { MODE_RANDOM_MIXED, MODE_LARSON, GENERATION_OPS = 100 * 1024 };

static inline void *floor_allocate(void *heap, size_t bytes) {
    return floor_malloc(heap, bytes);
}

static inline void floor_release(void *heap, void *block, size_t bytes) {
    floor_free(heap, block, bytes);
}

struct floor_thread {
    struct floor_heap heap;
    struct slot *slots;
    uint64_t slot_count;
    uint64_t ops;
    struct rng rng;
} __attribute__((aligned(128)));

static struct floor_thread *thread_make(const struct bench_args *args, struct floor_thread *t, unsigned idx) {
    floor_heap_init(&t->heap, args->working_set);
    t->slots = bench_map(args->working_set * sizeof *t->slots);
    t->slot_count = args->working_set;
    t->rng = rng_make(args->seed, idx);
    return t;
}

static void random_mixed(const struct bench_args *args, struct bench_result *result) {
    static struct floor_thread thread;
    struct bench_timer timer;
    struct floor_thread *t = thread_make(args, &thread, 0);
    uint64_t replacements = args->iterations / 2 + 1;
    fill_slots(t->slots, t->slot_count, RANDOM_MIXED_MIN_BYTES, RANDOM_MIXED_MAX_BYTES, &t->rng, &t->heap,
               floor_allocate);
    bench_start(&timer);
    replace_loop(t->slots, t->slot_count, replacements, RANDOM_MIXED_MIN_BYTES, RANDOM_MIXED_MAX_BYTES,
                 &t->rng, &t->heap, floor_allocate, floor_release);
    bench_stop(&timer, result);
    result->ops = 2 * replacements;
}

static void larson_generation(void *context) {
    struct floor_thread *t = context;
    replace_loop(t->slots, t->slot_count, t->ops, LARSON_MIN_BYTES, LARSON_MAX_BYTES, &t->rng, &t->heap,
                 floor_allocate, floor_release);
}

static void larson(const struct bench_args *args, struct bench_result *result) {
    struct floor_thread *threads = bench_map(args->threads * sizeof *threads);
    uint64_t ops_each = args->iterations / args->threads;
    uint64_t generations = ops_each < GENERATION_OPS ? 1 : ops_each / GENERATION_OPS;
    for (unsigned i = 0; i < args->threads; i++) {
        struct floor_thread *t = thread_make(args, &threads[i], i);
        t->ops = ops_each / generations;
        fill_slots(t->slots, t->slot_count, LARSON_MIN_BYTES, LARSON_MAX_BYTES, &t->rng, &t->heap,
                   floor_allocate);
    }
    lineages_run(args->threads, generations, larson_generation, threads, sizeof *threads, result);
    result->ops = threads[0].ops * generations * args->threads;
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"random_mixed", "larson", NULL};
    static const struct bench_spec spec = {
        .name = "floor",
        .imitates = "the lower bound of random_mixed and larson: inline stacks, no checks",
        .iterations = 1000000,
        .working_set = 256,
        .seed = 42,
        .threads = 1,
        .modes = modes,
    };
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    if (args.mode_idx == MODE_LARSON) {
        larson(&args, &result);
    } else {
        random_mixed(&args, &result);
    }
    bench_report(&args, &result);
    return 0;
}
