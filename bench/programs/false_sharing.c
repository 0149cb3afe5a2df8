// false_sharing: do blocks of different threads end up on one cache line?
//
// Imitates: per-thread counters and nodes. --mode=active: every thread allocates an 8-byte block, writes it
// many times, frees it, again and again; an allocator that splits one line among threads makes them slow.
// --mode=passive: the main thread allocates one such block for each thread, next to each other; each thread
// frees the block it was given before its own loop: an allocator that lets it keep that address in its cache
// prolongs the sharing which the program began (after Berger et al., Hoard, ASPLOS 2000).
// The working set is the number of writes for each block. One op is one block: malloc, the writes, free.
// Cannot tell: anything with one thread, or with threads that the kernel puts on one core.
#include "../lib/bench.h"

#include <stdlib.h>

enum { MODE_PASSIVE = 1, BLOCK_BYTES = 8 };

struct sharer {
    const struct bench_args *args;
    unsigned char *given;
} __attribute__((aligned(128)));

static void write_many(volatile unsigned char *block, uint64_t writes) {
    for (uint64_t i = 0; i < writes; i++) {
        block[i % BLOCK_BYTES]++;
    }
}

static void body(void *context, unsigned idx) {
    struct sharer *s = context;
    uint64_t writes = s->args->working_set;
    uint64_t blocks = s->args->iterations / s->args->threads;
    (void)idx;
    if (s->given != NULL) {
        write_many(s->given, writes);
        free(s->given);
    }
    for (uint64_t i = 0; i < blocks; i++) {
        unsigned char *block = malloc(BLOCK_BYTES);
        if (block == NULL) {
            bench_die_no_memory(BLOCK_BYTES);
        }
        for (size_t k = 0; k < BLOCK_BYTES; k++) {
            block[k] = 0;
        }
        write_many(block, writes);
        // Every byte was counted up equally often, but for the remainder; another owner would show.
        if (block[0] != (unsigned char)(writes / BLOCK_BYTES + (writes % BLOCK_BYTES > 0))) {
            bench_die_damaged(block, BLOCK_BYTES);
        }
        free(block);
    }
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"active", "passive", NULL};
    static const struct bench_spec spec = {
        .name = "false_sharing",
        .imitates = "per-thread counters that must not share a cache line",
        .iterations = 100000,
        .working_set = 1000,
        .seed = 42,
        .threads = 2,
        .modes = modes,
    };
    static struct sharer sharers[BENCH_MAX_THREADS];
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    for (unsigned i = 0; i < args.threads; i++) {
        sharers[i].args = &args;
        if (args.mode_idx == MODE_PASSIVE && (sharers[i].given = calloc(1, BLOCK_BYTES)) == NULL) {
            bench_die_no_memory(BLOCK_BYTES);
        }
    }
    bench_run_threads(args.threads, body, sharers, sizeof sharers[0], &result);
    result.ops = args.iterations / args.threads * args.threads;
    bench_report(&args, &result);
    return 0;
}
