// buffers: one buffer of 32-128 KiB after the other, of any length, a few of each thread alive at a time.
//
// Imitates: a request that is read into a buffer, a file copied, a picture decoded: as large as it happens to
// be, used at both ends, and gone.
// One op is one malloc or one free. The working set is the number of buffers that a thread has at a time.
// Cannot tell: the time to fill a buffer; `large` writes every page.
#include "../lib/loops.h"

enum { MIN_BYTES = 32 * 1024 + 1, MAX_BYTES = 128 * 1024 };

struct buffers_thread {
    struct slot *slots;
    const struct bench_args *args;
} __attribute__((aligned(128)));

static void body(void *context, unsigned idx) {
    struct buffers_thread *t = context;
    struct rng rng = rng_make(t->args->seed, idx);
    uint64_t slot_count = t->args->working_set;
    uint64_t replacements = t->args->iterations / t->args->threads / 2 + 1;
    fill_slots(t->slots, slot_count, MIN_BYTES, MAX_BYTES, &rng, NULL, libc_allocate);
    replace_loop(t->slots, slot_count, replacements, MIN_BYTES, MAX_BYTES, &rng, NULL, libc_allocate,
                 libc_release);
    for (uint64_t i = 0; i < slot_count; i++) {
        free(t->slots[i].block);
    }
}

int main(int argc, char **argv) {
    static const struct bench_spec spec = {
        .name = "buffers",
        .imitates = "buffers of 32-128 KiB for one request or file each",
        .iterations = 1000000,
        .working_set = 1,
        .seed = 42,
        .threads = 2,
    };
    static struct buffers_thread threads[BENCH_MAX_THREADS];
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    for (unsigned i = 0; i < args.threads; i++) {
        threads[i].slots = bench_map(args.working_set * sizeof(struct slot));
        threads[i].args = &args;
    }
    bench_run_threads(args.threads, body, threads, sizeof threads[0], &result);
    result.ops = (args.iterations / args.threads / 2 + 1) * 2 * args.threads;
    bench_report(&args, &result);
    return 0;
}
