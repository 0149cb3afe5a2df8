// thread_churn: threads that start, allocate, free three quarters of it, leave the rest behind and end.
//
// Imitates: thread-per-request programs. What a thread leaves is freed by the main thread afterwards. The
// working set is the number of blocks of each thread, 16-1024 bytes.
// One op is one thread's whole life; the iterations are threads, --threads of them at a time.
// Cannot tell: the allocator's part alone; starting a thread costs the kernel and libc tens of microseconds.
#include "../lib/block.h"
#include "../lib/rng.h"

#include <pthread.h>
#include <stdlib.h>

enum { MIN_BYTES = 16, MAX_BYTES = 1024, LEAVE_EVERY = 4 };

struct churn_thread {
    pthread_t thread;
    struct slot *slots;
    uint64_t slot_count;
    struct rng rng;
};

static void *thread_main(void *arg) {
    struct churn_thread *t = arg;
    for (uint64_t i = 0; i < t->slot_count; i++) {
        size_t bytes = rng_between(&t->rng, MIN_BYTES, MAX_BYTES);
        slot_fill(&t->slots[i], malloc(bytes), bytes, i);
    }
    for (uint64_t i = 0; i < t->slot_count; i++) {
        if (i % LEAVE_EVERY != 0) {
            block_check(t->slots[i].block, t->slots[i].bytes, i);
            free(t->slots[i].block);
        }
    }
    return NULL;
}

static void free_left_behind(struct churn_thread *t) {
    for (uint64_t i = 0; i < t->slot_count; i += LEAVE_EVERY) {
        block_check(t->slots[i].block, t->slots[i].bytes, i);
        free(t->slots[i].block);
    }
}

int main(int argc, char **argv) {
    static const struct bench_spec spec = {
        .name = "thread_churn",
        .imitates = "a thread for each request",
        .iterations = 1000,
        .working_set = 100,
        .seed = 42,
        .threads = 2,
    };
    static struct churn_thread threads[BENCH_MAX_THREADS];
    struct bench_args args;
    struct bench_result result = {0};
    struct bench_timer timer;
    bench_parse(&spec, argc, argv, &args);
    for (unsigned i = 0; i < args.threads; i++) {
        threads[i].slots = bench_map(args.working_set * sizeof(struct slot));
        threads[i].slot_count = args.working_set;
        threads[i].rng = rng_make(args.seed, i);
    }
    uint64_t waves = args.iterations / args.threads + 1;
    bench_start(&timer);
    for (uint64_t wave = 0; wave < waves; wave++) {
        for (unsigned i = 0; i < args.threads; i++) {
            if (pthread_create(&threads[i].thread, NULL, thread_main, &threads[i]) != 0) {
                bench_die_system("pthread_create failed");
            }
        }
        for (unsigned i = 0; i < args.threads; i++) {
            pthread_join(threads[i].thread, NULL);
            free_left_behind(&threads[i]);
        }
    }
    bench_stop(&timer, &result);
    result.ops = waves * args.threads;
    bench_report(&args, &result);
    return 0;
}
