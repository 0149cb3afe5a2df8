// medley: a workload that the seed draws: nobody chose it, so nobody can have tuned an allocator for it.
//
// Imitates: no program, but the spread of them: 1 to 4 threads; up to three ranges of sizes of 16 B to 8 MiB,
// small blocks more often than large ones; one of seven ways to use them (`enum way`); plain, zeroed or
// aligned blocks, written at both ends or through and through; with some threads, objects that all of them
// replace. 64 KiB to `working set` MiB are alive. One op is one block made, resized or replaced. What was
// drawn is told with the result (way and make: their numbers below). Cannot tell: what any one program does;
// read it over all seeds, and a seed's row as a place to look.
#include "../lib/block.h"
#include "../lib/rng.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

enum way {
    REPLACE,   // a block in a random place
    QUEUE,     // the oldest block goes
    STACK,     // up and down, far or a little
    BUILD,     // all places are filled, then all are emptied
    RESIZE,    // a block in a random place is resized, one in four times it goes
    TEMPORARY, // a block at a time, one in sixteen stays for a while
    GROW,      // an array that grows step by step and then replaces a block
    WAYS
};
enum make { PLAIN, ZEROED, ALIGNED, MAKES };
enum {
    RANGES_MAX = 3,
    MIN_LOG2 = 4,  // 16 bytes
    MAX_LOG2 = 23, // 8 MiB
    RANGE_LOG2 = 4,
    LIVE_MIN_LOG2 = 16,
    WRITE_STEP = 512,
    SLOTS_MAX = 1 << 20,
    CHANCE = 1024, // chances are so many times what they say
    MEAN_OF = 1000,
};

struct range {
    uint32_t min_bytes;
    uint32_t max_bytes;
    uint32_t weight;
};

struct draft {
    unsigned threads;
    enum way way;
    enum make make;
    unsigned range_count;
    struct range ranges[RANGES_MAX];
    uint32_t weights; // sum of the ranges'
    bool is_written_through;
    bool is_doubled;        // GROW: by doubling, else by half
    bool is_in_order;       // BUILD: emptied in the order of filling, else at random
    uint32_t shared_chance; // of an object that all threads replace
    uint32_t slot_count;    // of all threads
};

struct worker {
    const struct draft *draft;
    _Atomic(unsigned char *) *shared;
    struct slot *slots;
    uint32_t count;  // slots
    uint32_t filled; // QUEUE: of all so far, STACK and BUILD: now
    uint64_t ops;
    struct rng rng;
} __attribute__((aligned(128)));

// Uniform in the number of digits, by and large: a power of two, then anything up to its double.
static uint32_t draw_bytes(const struct draft *d, struct rng *rng) {
    uint32_t pick = rng_below(rng, d->weights);
    const struct range *range = d->ranges;
    while (pick >= range->weight) {
        pick -= range->weight;
        range++;
    }
    uint32_t least = range->min_bytes;
    uint32_t octaves = (uint32_t)__builtin_ctz(range->max_bytes / least);
    least <<= octaves != 0 ? rng_below(rng, octaves) : 0;
    return rng_between(rng, least, 2 * least - 1);
}

static void draw_ranges(struct draft *d, struct rng *rng) {
    d->range_count = 1 + rng_below(rng, RANGES_MAX);
    for (unsigned i = 0; i < d->range_count; i++) {
        uint32_t low = rng_between(rng, MIN_LOG2, MAX_LOG2 - 1);
        uint32_t high = low + 1 + rng_below(rng, RANGE_LOG2);
        struct range *range = &d->ranges[i];
        range->min_bytes = (uint32_t)1 << low;
        range->max_bytes = (uint32_t)1 << (high < MAX_LOG2 ? high : MAX_LOG2);
        range->weight = (1 + rng_below(rng, 20)) << (MAX_LOG2 - low);
        d->weights += range->weight;
    }
}

static uint32_t mean_bytes(const struct draft *d, struct rng rng) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < MEAN_OF; i++) {
        sum += draw_bytes(d, &rng);
    }
    return (uint32_t)(sum / MEAN_OF);
}

static struct draft draw(uint64_t seed, uint64_t live_max_mib) {
    static const unsigned threads[] = {1, 1, 1, 2, 2, 4};
    struct rng rng = rng_make(seed, BENCH_MAX_THREADS);
    struct draft d = {.threads = threads[rng_below(&rng, sizeof threads / sizeof threads[0])]};
    d.way = (enum way)rng_below(&rng, WAYS);
    d.make = rng_below(&rng, 2) != 0 ? PLAIN : (enum make)rng_below(&rng, MAKES);
    draw_ranges(&d, &rng);
    d.is_written_through = rng_below(&rng, 2) != 0;
    d.is_doubled = rng_below(&rng, 2) != 0;
    d.is_in_order = rng_below(&rng, 2) != 0;
    d.shared_chance = d.threads > 1 && rng_below(&rng, 3) == 0 ? rng_below(&rng, CHANCE) : 0;
    unsigned live_max_log2 = 20 + (unsigned)(63 - __builtin_clzll(live_max_mib));
    uint64_t live_bytes = UINT64_C(1) << rng_between(&rng, LIVE_MIN_LOG2, live_max_log2);
    uint64_t slots = live_bytes / mean_bytes(&d, rng) + d.threads;
    d.slot_count = (uint32_t)(slots < SLOTS_MAX ? slots : SLOTS_MAX);
    return d;
}

static void report_draft(const struct draft *d, struct bench_result *result) {
    bench_metric_add(result, "threads", "", d->threads);
    bench_metric_add(result, "way", "", d->way);
    bench_metric_add(result, "make", "", d->make);
    bench_metric_add(result, "written_through", "", d->is_written_through);
    bench_metric_add(result, "shared_chance", "", (double)d->shared_chance / CHANCE);
    bench_metric_add(result, "places", "", d->slot_count);
    for (unsigned i = 0; i < d->range_count; i++) {
        static const char *const names[RANGES_MAX][2] = {
            {"min_0", "max_0"}, {"min_1", "max_1"}, {"min_2", "max_2"}};
        bench_metric_add(result, names[i][0], "B", d->ranges[i].min_bytes);
        bench_metric_add(result, names[i][1], "B", d->ranges[i].max_bytes);
    }
}

static void *allocate(const struct draft *d, struct rng *rng, size_t bytes) {
    switch (d->make) {
    case ZEROED:
        return calloc(1, bytes);
    case ALIGNED:
        return memalign((size_t)16 << rng_below(rng, 6), bytes);
    default:
        return malloc(bytes);
    }
}

// Makes the pages of a new or longer block be there, from `from` on, if the draft says so; what is checked is
// what block_fill() writes.
static void *written(const struct draft *d, void *block, size_t from, size_t bytes) {
    unsigned char *byte = bench_opaque(block);
    if (byte == NULL) {
        bench_die_no_memory(bytes);
    }
    for (size_t at = from; d->is_written_through && at < bytes; at += WRITE_STEP) {
        byte[at] = 1;
    }
    return byte;
}

static void *make_block(struct worker *w, size_t bytes) {
    return written(w->draft, allocate(w->draft, &w->rng, bytes), 0, bytes);
}

static void slot_make(struct worker *w, struct slot *slot, size_t bytes) {
    slot_fill(slot, make_block(w, bytes), bytes, (uint64_t)(slot - w->slots));
}

static void slot_end(struct worker *w, struct slot *slot) {
    if (slot->block != NULL) {
        block_check(slot->block, slot->bytes, (uint64_t)(slot - w->slots));
        free(slot->block);
        slot->block = NULL;
    }
}

static void slot_resize(struct worker *w, struct slot *slot, size_t bytes) {
    size_t old_bytes = slot->bytes;
    block_check(slot->block, old_bytes, (uint64_t)(slot - w->slots));
    void *block = written(w->draft, realloc(slot->block, bytes), old_bytes, bytes);
    slot_fill(slot, block, bytes, (uint64_t)(slot - w->slots));
}

static struct slot *any_slot(struct worker *w) {
    return &w->slots[rng_below(&w->rng, w->count)];
}

// A shared object's size is its first word, as in shared.c.
static void replace_shared(struct worker *w) {
    uint64_t bytes = draw_bytes(w->draft, &w->rng);
    unsigned char *object = make_block(w, bytes);
    memcpy(object, &bytes, sizeof bytes);
    _Atomic(unsigned char *) *place = &w->shared[rng_below(&w->rng, w->draft->slot_count)];
    // acq_rel: who takes an object out sees what the thread that put it there wrote
    object = atomic_exchange_explicit(place, object, memory_order_acq_rel);
    if (object != NULL) {
        memcpy(&bytes, object, sizeof bytes);
        if (bytes > (uint64_t)1 << MAX_LOG2) {
            bench_die_damaged(object, sizeof bytes);
        }
        free(object);
    }
}

static void replace_any(struct worker *w) {
    struct slot *slot = any_slot(w);
    slot_end(w, slot);
    slot_make(w, slot, draw_bytes(w->draft, &w->rng));
    w->ops--;
}

static void replace_oldest(struct worker *w) {
    struct slot *slot = &w->slots[w->filled++ % w->count];
    slot_end(w, slot);
    slot_make(w, slot, draw_bytes(w->draft, &w->rng));
    w->ops--;
}

static void fill_to(struct worker *w, uint32_t filled) {
    for (; w->filled < filled && w->ops != 0; w->ops--) {
        slot_make(w, &w->slots[w->filled++], draw_bytes(w->draft, &w->rng));
    }
}

static void empty_to(struct worker *w, uint32_t filled) {
    while (w->filled > filled) {
        slot_end(w, &w->slots[--w->filled]);
    }
}

static void up_and_down(struct worker *w) {
    empty_to(w, rng_below(&w->rng, w->count));
    fill_to(w, w->filled + 1 + rng_below(&w->rng, w->count - w->filled));
}

// The random order goes through all places by a step that has no divisor in common with their number, a
// prime.
static void build_and_end(struct worker *w) {
    fill_to(w, w->count);
    uint64_t step = w->draft->is_in_order ? 1 : 2147483647;
    for (uint64_t i = 0; i < w->count; i++) {
        slot_end(w, &w->slots[i * step % w->count]);
    }
    w->filled = 0;
}

static void resize_any(struct worker *w) {
    struct slot *slot = any_slot(w);
    uint32_t bytes = draw_bytes(w->draft, &w->rng);
    if (slot->block == NULL) {
        slot_make(w, slot, bytes);
    } else if (rng_below(&w->rng, 4) == 0) {
        slot_end(w, slot);
    } else {
        slot_resize(w, slot, bytes);
    }
    w->ops--;
}

static void make_temporary(struct worker *w) {
    struct slot *slot = rng_below(&w->rng, 16) == 0 ? any_slot(w) : &w->slots[w->count];
    slot_end(w, slot);
    slot_make(w, slot, draw_bytes(w->draft, &w->rng));
    w->ops--;
}

static void grow_one(struct worker *w) {
    struct slot *slot = any_slot(w);
    size_t top_bytes = draw_bytes(w->draft, &w->rng);
    size_t bytes = 16;
    slot_end(w, slot);
    slot_make(w, slot, bytes);
    for (w->ops--; bytes < top_bytes && w->ops != 0; w->ops--) {
        bytes += w->draft->is_doubled ? bytes : bytes / 2;
        slot_resize(w, slot, bytes);
    }
}

static void body(void *context, unsigned idx) {
    static void (*const step_of_way[WAYS])(struct worker * w) = {
        replace_any, replace_oldest, up_and_down, build_and_end, resize_any, make_temporary, grow_one,
    };
    struct worker *w = context;
    (void)idx;
    while (w->ops != 0) {
        if (rng_below(&w->rng, CHANCE) < w->draft->shared_chance) {
            replace_shared(w);
            w->ops--;
        } else {
            step_of_way[w->draft->way](w);
        }
    }
    for (uint32_t i = 0; i <= w->count; i++) {
        slot_end(w, &w->slots[i]);
    }
}

int main(int argc, char **argv) {
    static const struct bench_spec spec = {
        .name = "medley",
        .imitates = "no program: a workload that the seed draws; the working set is MiB alive at most",
        .iterations = 10000,
        .working_set = 64,
        .seed = 1,
    };
    static struct worker workers[BENCH_MAX_THREADS];
    struct bench_args args;
    struct bench_result result = {0};
    bench_parse(&spec, argc, argv, &args);
    struct draft draft = draw(args.seed, args.working_set);
    _Atomic(unsigned char *) *shared = bench_map(draft.slot_count * sizeof shared[0]);
    uint32_t count = draft.slot_count / draft.threads;
    for (unsigned i = 0; i < draft.threads; i++) {
        workers[i] = (struct worker){
            .draft = &draft,
            .shared = shared,
            .slots = bench_map((count + 1) * sizeof(struct slot)), // one more for what is temporary
            .count = count,
            .ops = args.iterations / draft.threads + 1,
            .rng = rng_make(args.seed, i),
        };
    }
    bench_run_threads(draft.threads, body, workers, sizeof workers[0], &result);
    for (uint32_t i = 0; i < draft.slot_count; i++) {
        free(shared[i]);
    }
    result.ops = (args.iterations / draft.threads + 1) * draft.threads;
    report_draft(&draft, &result);
    bench_report(&args, &result);
    return 0;
}
