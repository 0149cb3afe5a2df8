// idle_return: allocate 100 MB of 500-byte blocks, free all of it, then do nothing and watch the RSS.
//
// Imitates: a program after its peak: does the memory go back while it idles? The working set is the size of
// a block, the iterations are the blocks, --seconds how long it sleeps; the RSS is read after the frees and
// then at growing distances. Nothing but sleeping happens in between.
// One op is one malloc or one free (timed before the sleep).
// Cannot tell: what a program that goes on allocating would hold.
#include "../lib/block.h"

#include <stdlib.h>

static double rss_mib(void) {
    return (double)bench_rss_bytes() / (1024.0 * 1024.0);
}

static void watch(uint64_t seconds, struct bench_result *result) {
    static const unsigned marks_ms[] = {0,    50,   100,  200,  300,  500,  750,   1000,  1500,
                                        2000, 2500, 3000, 4000, 6000, 8000, 10000, 12000, 14000};
    uint64_t start_ns = bench_now_ns();
    for (size_t i = 0; i < sizeof marks_ms / sizeof marks_ms[0] && marks_ms[i] <= seconds * 1000; i++) {
        uint64_t at_ms = (bench_now_ns() - start_ns) / 1000000;
        if (marks_ms[i] > at_ms) {
            bench_sleep_ms(marks_ms[i] - at_ms);
        }
        double now_mib = rss_mib();
        bench_point_add(result, (double)(bench_now_ns() - start_ns) * 1e-9, now_mib);
        if (marks_ms[i] == 0) {
            bench_metric_add(result, "rss_freed", "MiB", now_mib);
        } else if (marks_ms[i] == 2000) {
            bench_metric_add(result, "rss_after_2s", "MiB", now_mib);
        } else if (marks_ms[i] == 14000) {
            bench_metric_add(result, "rss_after_14s", "MiB", now_mib);
        }
    }
}

int main(int argc, char **argv) {
    static const struct bench_spec spec = {
        .name = "idle_return",
        .imitates = "a program that idles after its peak",
        .iterations = 200000,
        .working_set = 500,
        .seed = 42,
        .seconds = 3,
    };
    struct bench_args args;
    struct bench_result result = {0};
    struct bench_timer timer;
    bench_parse(&spec, argc, argv, &args);
    size_t bytes = args.working_set < 8 ? 8 : args.working_set;
    struct slot *slots = bench_map(args.iterations * sizeof *slots);
    bench_start(&timer);
    for (uint64_t i = 0; i < args.iterations; i++) {
        slot_fill(&slots[i], malloc(bytes), bytes, args.seed + i);
    }
    bench_metric_add(&result, "rss_full", "MiB", rss_mib());
    for (uint64_t i = 0; i < args.iterations; i++) {
        block_check(slots[i].block, slots[i].bytes, args.seed + i);
        free(slots[i].block);
    }
    bench_stop(&timer, &result);
    bench_unmap(slots, args.iterations * sizeof *slots); // or it would be watched too
    watch(args.seconds, &result);
    result.ops = 2 * args.iterations;
    bench_report(&args, &result);
    return 0;
}
