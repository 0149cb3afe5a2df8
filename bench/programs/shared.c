// shared: all threads replace objects of one table, so most of what a thread frees another one allocated.
//
// Imitates: a cache or a table of sessions that all workers of a server use. --mode=small: 16-500 bytes,
// --mode=mid: 1-8 KiB. The working set is the number of objects in the table.
// One op is one malloc and one free, of the object that was in a random place until then.
// Cannot tell: anything with one thread; what locks around such a table would cost.
#include "../lib/block.h"
#include "../lib/rng.h"

#include <stdatomic.h>
#include <stdlib.h>

struct sizes {
    uint32_t min_bytes;
    uint32_t max_bytes;
};

// By mode. The object's size is its first word, so the smallest has room for that and the check at its end.
static const struct sizes sizes_of_mode[] = {{16, 500}, {1024, 8192}};

struct table {
    _Atomic(unsigned char *) *places;
    uint64_t count;
    struct sizes sizes;
};

struct worker {
    struct table *table;
    uint64_t replacements;
    struct rng rng;
} __attribute__((aligned(128)));

static unsigned char *object_make(struct rng *rng, struct sizes sizes, uint64_t tag) {
    size_t bytes = rng_between(rng, sizes.min_bytes, sizes.max_bytes);
    unsigned char *object = malloc(bytes);
    if (object == NULL) {
        bench_die_no_memory(bytes);
    }
    uint64_t last = block_word(tag, bytes);
    memcpy(object, &bytes, sizeof bytes);
    memcpy(object + bytes - sizeof last, &last, sizeof last);
    return object;
}

static void object_end(unsigned char *object, struct sizes sizes, uint64_t tag) {
    size_t bytes;
    uint64_t last;
    memcpy(&bytes, object, sizeof bytes);
    if (bytes < sizes.min_bytes || bytes > sizes.max_bytes) {
        bench_die_damaged(object, bytes);
    }
    memcpy(&last, object + bytes - sizeof last, sizeof last);
    if (last != block_word(tag, bytes)) {
        bench_die_damaged(object, bytes);
    }
    free(object);
}

static void body(void *context, unsigned idx) {
    struct worker *w = context;
    struct table *table = w->table;
    (void)idx;
    for (uint64_t i = 0; i < w->replacements; i++) {
        uint32_t at = rng_below(&w->rng, (uint32_t)table->count);
        unsigned char *object = object_make(&w->rng, table->sizes, at);
        // acq_rel: who takes an object out sees what the thread that put it there wrote
        object_end(atomic_exchange_explicit(&table->places[at], object, memory_order_acq_rel), table->sizes,
                   at);
    }
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"small", "mid", NULL};
    static const struct bench_spec spec = {
        .name = "shared",
        .imitates = "a cache that all threads replace objects of",
        .iterations = 1000000,
        .working_set = 20000,
        .seed = 42,
        .threads = 2,
        .modes = modes,
    };
    static struct worker workers[BENCH_MAX_THREADS];
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    struct table table = {
        .places = bench_map(args.working_set * sizeof table.places[0]),
        .count = args.working_set,
        .sizes = sizes_of_mode[args.mode_idx],
    };
    struct rng rng = rng_make(args.seed, args.threads);
    for (uint64_t i = 0; i < table.count; i++) {
        table.places[i] = object_make(&rng, table.sizes, i);
    }
    for (unsigned i = 0; i < args.threads; i++) {
        workers[i] = (struct worker){&table, args.iterations / args.threads, rng_make(args.seed, i)};
    }
    bench_run_threads(args.threads, body, workers, sizeof workers[0], &result);
    for (uint64_t i = 0; i < table.count; i++) {
        object_end(table.places[i], table.sizes, i);
    }
    result.ops = args.iterations / args.threads * args.threads;
    bench_report(&args, &result);
    return 0;
}
