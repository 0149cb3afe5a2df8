// prodcons: blocks allocated by one thread and freed by another.
//
// Imitates: pipelines and message queues. --mode=balanced: each thread sends its blocks to the next one in
// a ring and frees those of the one before it. --mode=bursty: pairs; one fills a whole burst (the working
// set), the other frees it, in turn. --mode=fan: one producer, all other threads consume.
// One op is one block's way: malloc, hand-over, check, free. Blocks are of 16-1024 bytes; the queues are
// single-producer rings without locks, so that little but the allocator is measured.
// Cannot tell: much on fewer cores than threads; then the hand-over waits for the scheduler.
#include "../lib/block.h"
#include "../lib/rng.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MODE_BALANCED, MODE_BURSTY, MODE_FAN, MIN_BYTES = 16, MAX_BYTES = 1024, SPINS_BEFORE_YIELD = 64 };

// head: next entry to write, by the producer only. tail: next to read, by the consumer only. The entries
// between tail and head belong to the consumer, the others to the producer.
struct ring {
    _Alignas(128) _Atomic uint64_t head;
    _Alignas(128) _Atomic uint64_t tail;
    _Alignas(128) struct slot *entries;
    uint64_t mask; // const after init: capacity - 1
};

struct worker {
    struct ring *in;
    struct ring *out;
    uint64_t to_send;
    uint64_t to_receive;
    uint64_t burst;
    struct rng rng;
    unsigned fan_out; // rings from `out` on that this worker serves in turn
} __attribute__((aligned(128)));

static void wait_a_little(unsigned *spins) {
    if (++*spins >= SPINS_BEFORE_YIELD) {
        *spins = 0;
        sched_yield();
    }
}

static bool ring_push(struct ring *ring, struct slot entry) {
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed); // own counter
    // Pairs with the release in ring_pop: the consumer is done with the entry that is written next.
    if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) > ring->mask) {
        return false;
    }
    ring->entries[head & ring->mask] = entry;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release); // pairs with ring_pop's acquire
    return true;
}

static bool ring_pop(struct ring *ring, struct slot *entry) {
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed); // own counter
    // Pairs with the release in ring_push: the entry and the block's contents are visible.
    if (atomic_load_explicit(&ring->head, memory_order_acquire) == tail) {
        return false;
    }
    *entry = ring->entries[tail & ring->mask];
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release); // pairs with ring_push's acquire
    return true;
}

static struct slot make_block(struct worker *w) {
    struct slot slot;
    size_t bytes = rng_between(&w->rng, MIN_BYTES, MAX_BYTES);
    slot_fill(&slot, malloc(bytes), bytes, bytes);
    return slot;
}

static void take_block(struct slot slot) {
    block_check(slot.block, slot.bytes, slot.bytes);
    free(slot.block);
}

// Sends and receives in turn, never stuck on a full ring while its own input waits.
static void stream_body(void *context, unsigned idx) {
    struct worker *w = context;
    struct slot unsent = {0};
    unsigned spins = 0;
    uint64_t sent = 0;
    (void)idx;
    while (sent < w->to_send || w->to_receive > 0) {
        bool has_progress = false;
        if (sent < w->to_send) {
            if (unsent.block == NULL) {
                unsent = make_block(w);
            }
            if (ring_push(w->out + sent % w->fan_out, unsent)) {
                unsent.block = NULL;
                sent++;
                has_progress = true;
            }
        }
        struct slot got;
        if (w->to_receive > 0 && ring_pop(w->in, &got)) {
            take_block(got);
            w->to_receive--;
            has_progress = true;
        }
        if (!has_progress) {
            wait_a_little(&spins);
        }
    }
}

// Even threads fill a burst and wait until it is gone; odd ones wait until it is whole and free it.
static void bursty_body(void *context, unsigned idx) {
    struct worker *w = context;
    unsigned spins = 0;
    (void)idx;
    for (uint64_t left = w->to_send + w->to_receive; left > 0;) {
        uint64_t burst = left < w->burst ? left : w->burst;
        struct ring *ring = w->to_send > 0 ? w->out : w->in;
        uint64_t until = w->to_send > 0 ? 0 : burst;
        // Acquire pairs with the other side's releases: all of the burst has been freed, or filled.
        while (atomic_load_explicit(&ring->head, memory_order_acquire) -
                   atomic_load_explicit(&ring->tail, memory_order_acquire) !=
               until) {
            wait_a_little(&spins);
        }
        for (uint64_t i = 0; i < burst; i++) {
            struct slot slot;
            if (w->to_send > 0) {
                ring_push(ring, make_block(w));
            } else {
                ring_pop(ring, &slot);
                take_block(slot);
            }
        }
        left -= burst;
    }
}

static struct worker workers[BENCH_MAX_THREADS];
static struct ring rings[BENCH_MAX_THREADS];

static void set_up(const struct bench_args *args, uint64_t each) {
    unsigned n = args->threads;
    uint64_t capacity = 1;
    while (capacity < args->working_set) {
        capacity *= 2;
    }
    for (unsigned i = 0; i < n; i++) {
        rings[i].entries = bench_map(capacity * sizeof(struct slot));
        rings[i].mask = capacity - 1;
        workers[i] =
            (struct worker){.burst = args->working_set, .fan_out = 1, .rng = rng_make(args->seed, i)};
        struct worker *w = &workers[i];
        if (args->mode_idx == MODE_BALANCED) {
            w->out = &rings[i];
            w->in = &rings[(i + n - 1) % n];
            w->to_send = w->to_receive = each;
        } else if (args->mode_idx == MODE_BURSTY) {
            w->in = w->out = &rings[i / 2];
            w->to_send = i % 2 == 0 ? each : 0;
            w->to_receive = i % 2 == 0 ? 0 : each;
        } else {
            w->in = &rings[i];
            w->out = &rings[1];
            w->fan_out = n - 1;
            w->to_send = i == 0 ? each * (n - 1) : 0;
            w->to_receive = i == 0 ? 0 : each;
        }
    }
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"balanced", "bursty", "fan", NULL};
    static const struct bench_spec spec = {
        .name = "prodcons",
        .imitates = "pipelines and message queues",
        .iterations = 1000000,
        .working_set = 1024,
        .seed = 42,
        .threads = 2,
        .modes = modes,
    };
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    if (args.threads < 2) {
        args.threads = 2; // one thread cannot free another's blocks
    }
    unsigned senders = args.threads;
    if (args.mode_idx == MODE_BURSTY) {
        args.threads &= ~1u;
        senders = args.threads / 2;
    } else if (args.mode_idx == MODE_FAN) {
        senders = args.threads - 1;
    }
    uint64_t each = args.iterations / senders + 1;
    set_up(&args, each);
    bench_run_threads(args.threads, args.mode_idx == MODE_BURSTY ? bursty_body : stream_body, workers,
                      sizeof workers[0], &result);
    result.ops = each * senders;
    bench_report(&args, &result);
    return 0;
}
