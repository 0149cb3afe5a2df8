// latency: the time of single malloc and free calls: median, 99.9 %, 99.99 % and the longest.
//
// Imitates: --mode=busy: an event loop in a process where other threads free in bulk (so that memory goes
// back to the kernel), fork, start and end threads; --mode=quiet: the same loop alone; --mode=bulk: one
// thread that frees its whole heap of 500-byte blocks (the working set) in random order.
// Each call lies between two clock readings; an empty pair is timed as often, and its median and longest
// are given beside the others: they are what clock and machine alone do. A call during which the kernel took
// the CPU from this thread is counted apart (metric `preempted`): that is the scheduler's time. Waiting
// for another thread's lock is not set apart: that is the allocator's.
// Cannot tell: time stolen by a hypervisor from a slow call; compare with the longest empty pair.
// One op is one timed call. The working set is the number of slots (16-1024 bytes, one in 256 of 64-512 KiB).
#include "../lib/block.h"
#include "../lib/histogram.h"
#include "../lib/rng.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MODE_BUSY, MODE_QUIET, MODE_BULK, SUSPECT_NS = 10000, EMPTY_EVERY = 16, BULK_BYTES = 500 };

static struct histogram calls;
static struct histogram empties;
static uint64_t preempted_calls;
static long seen_switches;
static uint64_t last_end_ns;
static atomic_bool is_over;

static long involuntary_switches(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

// Called before each timed call: a gap since the last one means a switch outside of any call.
static uint64_t call_begin(void) {
    uint64_t now = bench_now_ns();
    if (now - last_end_ns > SUSPECT_NS) {
        seen_switches = involuntary_switches();
        now = bench_now_ns();
    }
    return now;
}

static void call_end(struct histogram *h, uint64_t begin_ns) {
    last_end_ns = bench_now_ns();
    uint64_t took = last_end_ns - begin_ns;
    if (took > SUSPECT_NS) {
        long switches = involuntary_switches();
        bool is_preempted = switches != seen_switches;
        seen_switches = switches;
        last_end_ns = bench_now_ns();
        if (is_preempted) {
            preempted_calls++;
            return;
        }
    }
    histogram_add(h, took);
}

static void timed_fill(struct slot *slot, size_t bytes, uint64_t tag) {
    uint64_t begin = call_begin();
    void *block = malloc(bytes);
    call_end(&calls, begin);
    slot_fill(slot, block, bytes, tag);
}

static void timed_free(struct slot *slot, uint64_t tag) {
    block_check(slot->block, slot->bytes, tag);
    uint64_t begin = call_begin();
    free(slot->block);
    call_end(&calls, begin);
    slot->block = NULL;
}

static void timed_empty(void) {
    uint64_t begin = call_begin();
    call_end(&empties, begin);
}

static void *free_in_bulk(void *arg) {
    enum { BLOCKS = 20000, BYTES = 800 };
    void **blocks = bench_map(BLOCKS * sizeof *blocks);
    (void)arg;
    // Relaxed: the flag orders nothing else.
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        for (size_t i = 0; i < BLOCKS; i++) {
            if ((blocks[i] = malloc(BYTES)) == NULL) {
                bench_die_no_memory(BYTES);
            }
            *(volatile char *)blocks[i] = 1;
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            free(blocks[i]);
        }
        bench_sleep_ms(2);
    }
    return NULL;
}

static void *short_life(void *arg) {
    free(bench_opaque(malloc(100)));
    return arg;
}

static void *start_threads(void *arg) {
    (void)arg;
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) { // relaxed: as above
        pthread_t thread;
        if (pthread_create(&thread, NULL, short_life, NULL) != 0) {
            bench_die_system("pthread_create failed");
        }
        pthread_join(thread, NULL);
        bench_sleep_ms(1);
    }
    return NULL;
}

static void *fork_children(void *arg) {
    (void)arg;
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) { // relaxed: as above
        pid_t pid = fork();
        if (pid == 0) {
            _exit(0);
        }
        if (pid < 0 || waitpid(pid, NULL, 0) != pid) {
            bench_die_system("fork failed");
        }
        bench_sleep_ms(10);
    }
    return NULL;
}

static void event_loop(const struct bench_args *args) {
    struct slot *slots = bench_map(args->working_set * sizeof *slots);
    struct rng rng = rng_make(args->seed, 0);
    for (uint64_t i = 0; i < args->iterations; i++) {
        uint32_t pick = rng_below(&rng, (uint32_t)args->working_set);
        if (slots[pick].block != NULL) {
            timed_free(&slots[pick], pick);
        } else if (rng_below(&rng, 256) == 0) {
            timed_fill(&slots[pick], rng_between(&rng, 64 << 10, 512 << 10), pick);
        } else {
            timed_fill(&slots[pick], rng_between(&rng, 16, 1024), pick);
        }
        if (i % EMPTY_EVERY == 0) {
            timed_empty();
        }
    }
}

static void bulk_loop(const struct bench_args *args) {
    uint32_t count = (uint32_t)args->working_set;
    struct slot *slots = bench_map(count * sizeof *slots);
    uint32_t *order = bench_map(count * sizeof *order);
    struct rng rng = rng_make(args->seed, 0);
    for (uint32_t i = 0; i < count; i++) {
        timed_fill(&slots[i], BULK_BYTES, i);
        uint32_t other = rng_below(&rng, i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        timed_free(&slots[order[i]], order[i]);
        if (i % EMPTY_EVERY == 0) {
            timed_empty();
        }
    }
}

static void run(const struct bench_args *args, struct bench_result *result) {
    static void *(*const disturbers[])(void *) = {free_in_bulk, start_threads, fork_children};
    enum { DISTURBERS = sizeof disturbers / sizeof disturbers[0] };
    pthread_t threads[DISTURBERS];
    struct bench_timer timer;
    for (size_t i = 0; args->mode_idx == MODE_BUSY && i < DISTURBERS; i++) {
        if (pthread_create(&threads[i], NULL, disturbers[i], NULL) != 0) {
            bench_die_system("pthread_create failed");
        }
    }
    seen_switches = involuntary_switches();
    bench_start(&timer);
    if (args->mode_idx == MODE_BULK) {
        bulk_loop(args);
    } else {
        event_loop(args);
    }
    bench_stop(&timer, result);
    atomic_store_explicit(&is_over, true, memory_order_relaxed); // relaxed: as above
    for (size_t i = 0; args->mode_idx == MODE_BUSY && i < DISTURBERS; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"busy", "quiet", "bulk", NULL};
    static const struct bench_spec spec = {
        .name = "latency",
        .imitates = "an event loop that must answer in time",
        .iterations = 1000000,
        .working_set = 4096,
        .seed = 42,
        .modes = modes,
    };
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    run(&args, &result);
    bench_metric_add(&result, "p50", "ns", (double)histogram_percentile_ns(&calls, 0.5));
    bench_metric_add(&result, "p99_9", "ns", (double)histogram_percentile_ns(&calls, 0.999));
    bench_metric_add(&result, "p99_99", "ns", (double)histogram_percentile_ns(&calls, 0.9999));
    bench_metric_add(&result, "longest", "ns", (double)calls.max_ns);
    bench_metric_add(&result, "empty_p50", "ns", (double)histogram_percentile_ns(&empties, 0.5));
    bench_metric_add(&result, "empty_longest", "ns", (double)empties.max_ns);
    bench_metric_add(&result, "preempted", "calls", (double)preempted_calls);
    result.ops = calls.count;
    bench_report(&args, &result);
    return 0;
}
