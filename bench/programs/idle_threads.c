// idle_threads: what a thread costs that touched 100 sizes, freed everything and idles.
//
// Imitates: thread pools of servers. The working set is the number of threads; each allocates and frees
// one block of each of 100 sizes (16-1600 bytes), `iterations` times over, then waits. The RSS before and
// after gives KB per thread: the thread's touched stack and libc's own share are in it, the same for all.
// One op is one malloc or one free.
// Cannot tell: what the kernel itself holds for a thread (its stack there, page tables); RSS leaves it out.
#include "../lib/block.h"

#include <pthread.h>
#include <stdlib.h>

enum { SIZES = 100, SIZE_STEP_BYTES = 16 };

static pthread_barrier_t all_idle;
static pthread_barrier_t may_end;

static void *thread_main(void *arg) {
    const struct bench_args *args = arg;
    struct slot slots[SIZES];
    for (uint64_t round = 0; round < args->iterations; round++) {
        for (size_t i = 0; i < SIZES; i++) {
            size_t bytes = (i + 1) * SIZE_STEP_BYTES;
            slot_fill(&slots[i], malloc(bytes), bytes, args->seed + i);
        }
        for (size_t i = 0; i < SIZES; i++) {
            block_check(slots[i].block, slots[i].bytes, args->seed + i);
            free(slots[i].block);
        }
    }
    pthread_barrier_wait(&all_idle);
    pthread_barrier_wait(&may_end);
    return NULL;
}

int main(int argc, char **argv) {
    static const struct bench_spec spec = {
        .name = "idle_threads",
        .imitates = "thread pools",
        .iterations = 1,
        .working_set = 64,
        .seed = 42,
    };
    static pthread_t threads[BENCH_MAX_THREADS];
    struct bench_args args;
    struct bench_result result = {0};
    struct bench_timer timer;
    bench_parse(&spec, argc, argv, &args);
    unsigned count = (unsigned)(args.working_set > BENCH_MAX_THREADS ? BENCH_MAX_THREADS : args.working_set);
    free(bench_opaque(malloc(1))); // the allocator's start-up is not a thread's cost
    pthread_barrier_init(&all_idle, NULL, count + 1);
    pthread_barrier_init(&may_end, NULL, count + 1);
    uint64_t before = bench_rss_bytes();
    bench_start(&timer);
    for (unsigned i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, thread_main, &args) != 0) {
            bench_die_system("pthread_create failed");
        }
    }
    pthread_barrier_wait(&all_idle);
    bench_stop(&timer, &result);
    uint64_t after = bench_rss_bytes();
    bench_metric_add(&result, "rss_per_thread", "KiB",
                     after < before ? 0 : (double)(after - before) / 1024.0 / count);
    pthread_barrier_wait(&may_end);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    result.ops = args.iterations * count * 2 * SIZES;
    bench_report(&args, &result);
    return 0;
}
