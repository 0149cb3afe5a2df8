// mid_mt_gap: blocks of 1-8 KiB in random order, every thread in a table of its own; --mode=buffers: of
// 32-128 KiB.
//
// Imitates: buffers of parsers, network code and databases, the gap between tiny blocks and large ones; with
// buffers and a working set of 1 a request that is read, a file that is copied, as long as it happens to be.
// One op is one malloc or one free. The working set is the number of blocks of each thread.
// Cannot tell: frees across threads; the threads share nothing but the allocator. Nor the time to fill a
// buffer; `large` writes every page.
#include "../lib/loops.h"

enum { MODE_MID, MODE_BUFFERS };
enum { MID_MIN_BYTES = 1024, MID_MAX_BYTES = 8192 };
enum { BUFFERS_MIN_BYTES = 32 * 1024 + 1, BUFFERS_MAX_BYTES = 128 * 1024 };

struct mid_thread {
    struct slot *slots;
    const struct bench_args *args;
} __attribute__((aligned(128)));

// Constant bounds: for each mode a loop of its own.
static inline __attribute__((always_inline)) void replace_own(struct mid_thread *t, unsigned idx,
                                                              uint32_t min_bytes, uint32_t max_bytes) {
    struct rng rng = rng_make(t->args->seed, idx);
    uint64_t slot_count = t->args->working_set;
    uint64_t replacements = t->args->iterations / t->args->threads / 2 + 1;
    fill_slots(t->slots, slot_count, min_bytes, max_bytes, &rng, NULL, libc_allocate);
    replace_loop(t->slots, slot_count, replacements, min_bytes, max_bytes, &rng, NULL, libc_allocate,
                 libc_release);
    for (uint64_t i = 0; i < slot_count; i++) {
        free(t->slots[i].block);
    }
}

static void mid_body(void *context, unsigned idx) {
    replace_own(context, idx, MID_MIN_BYTES, MID_MAX_BYTES);
}

static void buffers_body(void *context, unsigned idx) {
    replace_own(context, idx, BUFFERS_MIN_BYTES, BUFFERS_MAX_BYTES);
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"mid", "buffers", NULL};
    static const struct bench_spec spec = {
        .name = "mid_mt_gap",
        .imitates = "buffers of 1-8 KiB in parsers, network code and databases",
        .iterations = 1000000,
        .working_set = 256,
        .seed = 42,
        .threads = 2,
        .modes = modes,
    };
    static struct mid_thread threads[BENCH_MAX_THREADS];
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    for (unsigned i = 0; i < args.threads; i++) {
        threads[i].slots = bench_map(args.working_set * sizeof(struct slot));
        threads[i].args = &args;
    }
    bench_run_threads(args.threads, args.mode_idx == MODE_MID ? mid_body : buffers_body, threads,
                      sizeof threads[0], &result);
    result.ops = (args.iterations / args.threads / 2 + 1) * 2 * args.threads;
    bench_report(&args, &result);
    return 0;
}
