// survivors: what is held per live byte when most of a heap has gone and the rest stays where it was.
//
// Imitates, by mode:
//   redis     a store of values of 64-512 bytes; 90 in 100 are deleted at random, then larger ones come
//   defrag    the same, and the program moves the blocks that hak_defrag_hint() names, where there is one
//   phases    a compiler's passes: each builds with sizes of its own and leaves one block in ten behind
//   slabcache a cache of items up to 8 KiB whose sizes change over time, the oldest making room
//   arenas    python: 256 KiB arenas for small objects beside blocks of 512 B to 8 KiB; most of both end
//   requests  a server: each request allocates 16 B - 32 KiB and frees all but a session object
//   threads   workers that end one after another and leave one block in twenty behind
//   loader    a thread loads a store of blocks of 16-512 bytes and sleeps; a worker replaces nine in ten
// The working set is in KiB of live blocks at the peak, about. One op is one malloc or free. At the end: live
// bytes as requested, RSS, and RSS per live byte (1 would be perfect); the program's own table is not
// counted.
#include "../lib/block.h"
#include "../lib/rng.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

enum mode { REDIS, DEFRAG, PHASES, SLABCACHE, ARENAS, REQUESTS, THREADS, LOADER };

static const char *const modes[] = {"redis",    "defrag",  "phases", "slabcache", "arenas",
                                    "requests", "threads", "loader", NULL};

// Slots of blocks, live ones counted. The program is one thread at a time.
static struct {
    struct slot *slots;
    uint32_t count;
    uint64_t peak_bytes; // goal
    uint64_t live_bytes;
    uint64_t ops;
    struct rng rng;
} heap;

static void drop(uint32_t i) {
    struct slot *slot = &heap.slots[i];
    if (slot->block != NULL) {
        block_check(slot->block, slot->bytes, i);
        free(slot->block);
        heap.live_bytes -= slot->bytes;
        heap.ops++;
        slot->block = NULL;
    }
}

static void put(uint32_t i, size_t bytes) {
    drop(i);
    unsigned char *block = malloc(bytes);
    if (block == NULL) {
        bench_die_no_memory(bytes);
    }
    memset(block, 1, bytes);
    slot_fill(&heap.slots[i], block, bytes, i);
    heap.live_bytes += bytes;
    heap.ops++;
}

// Fills empty slots from `from` on until the peak is reached; returns the next slot.
static uint32_t fill(uint32_t from, uint32_t low, uint32_t high) {
    uint32_t i = from;
    for (; i < heap.count && heap.live_bytes < heap.peak_bytes; i++) {
        if (heap.slots[i].block == NULL) {
            put(i, rng_between(&heap.rng, low, high));
        }
    }
    return i;
}

// Drops all but `percent` in 100 of the blocks in [from, to), at random.
static void thin_out(uint32_t from, uint32_t to, uint32_t percent) {
    for (uint32_t i = from; i < to; i++) {
        if (rng_below(&heap.rng, 100) >= percent) {
            drop(i);
        }
    }
}

static void redis(void) {
    uint32_t end = fill(0, 64, 512);
    thin_out(0, end, 10);
    uint64_t peak_bytes = heap.peak_bytes;
    heap.peak_bytes /= 4;
    (void)fill(0, 700, 900);
    heap.peak_bytes = peak_bytes;
}

// What redis' active defragmentation does: a block that the allocator would like to have elsewhere is copied.
static void move_hinted(void) {
    bool (*hint)(const void *) = (bool (*)(const void *))dlsym(RTLD_DEFAULT, "hak_defrag_hint");
    for (unsigned round = 0; hint != NULL && round < 4; round++) {
        for (uint32_t i = 0; i < heap.count; i++) {
            struct slot *slot = &heap.slots[i];
            if (slot->block != NULL && hint(slot->block)) {
                unsigned char *block = malloc(slot->bytes);
                if (block == NULL) {
                    bench_die_no_memory(slot->bytes);
                }
                memcpy(block, slot->block, slot->bytes);
                free(slot->block);
                slot->block = block;
                heap.ops += 2;
            }
        }
    }
}

static void phases(void) {
    static const uint32_t sizes[] = {24, 72, 200, 640, 48, 1500, 112, 4000};
    uint32_t from = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t end = fill(from, sizes[i] / 2 + 8, sizes[i] + sizes[i] / 2);
        thin_out(from, end, 10);
        from = end;
    }
}

static void slabcache(void) {
    uint32_t newest = 0;
    uint32_t oldest = 0;
    for (unsigned phase = 0; phase < 12; phase++) {
        uint32_t centre = 100u << (phase % 7);
        for (uint64_t wanted = heap.peak_bytes / 2; wanted > 2 * centre;) {
            uint32_t bytes = rng_between(&heap.rng, centre / 2 + 8, centre + centre / 4);
            // The oldest make room, but one in sixteen was asked for lately and stays for another round.
            while (heap.live_bytes + bytes > heap.peak_bytes) {
                if (rng_below(&heap.rng, 16) != 0) {
                    drop(oldest % heap.count);
                }
                oldest++;
            }
            put(newest++ % heap.count, bytes);
            wanted -= bytes;
        }
    }
}

static void arenas(void) {
    uint32_t arena_count = (uint32_t)(heap.peak_bytes / 2 / (256 * 1024));
    for (unsigned round = 0; round < 6; round++) {
        for (uint32_t i = 0; i < arena_count; i++) {
            if (heap.slots[i].block == NULL) {
                put(i, 256 * 1024);
            }
        }
        uint32_t end = fill(arena_count, 512, 8192);
        thin_out(0, arena_count, 30);
        thin_out(arena_count, end, 20);
    }
}

static void requests(void) {
    enum { PER_REQUEST = 64 };
    uint32_t session = PER_REQUEST;
    for (uint64_t done = 0; done < 20000 && session < heap.count; done++) {
        for (uint32_t i = 0; i < PER_REQUEST; i++) {
            put(i, 16u << rng_below(&heap.rng, 12));
        }
        put(session++, rng_between(&heap.rng, 100, 1000));
        for (uint32_t i = 0; i < PER_REQUEST; i++) {
            drop(i);
        }
    }
}

static uint32_t worker_from;

static void *worker(void *unused) {
    uint64_t peak_bytes = heap.peak_bytes;
    heap.peak_bytes = heap.live_bytes + peak_bytes / 8;
    uint32_t end = fill(worker_from, 16, 2000);
    heap.peak_bytes = peak_bytes;
    thin_out(worker_from, end, 5);
    worker_from = end;
    return unused;
}

static void threads(void) {
    for (unsigned i = 0; i < 40; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, NULL) != 0) {
            bench_die_system("pthread_create failed");
        }
        pthread_join(thread, NULL);
    }
}

static void *replace(void *loaded) {
    uint32_t end = *(uint32_t *)loaded;
    thin_out(0, end, 10);
    fill(0, 16, 512);
    for (uint32_t i = 0; i < end; i++) {
        put(rng_below(&heap.rng, end), rng_between(&heap.rng, 16, 512));
    }
    return NULL;
}

static void loader(void) {
    uint32_t end = fill(0, 16, 512);
    pthread_t thread;
    if (pthread_create(&thread, NULL, replace, &end) != 0) {
        bench_die_system("pthread_create failed");
    }
    pthread_join(thread, NULL);
}

static void run(enum mode mode) {
    switch (mode) {
    case REDIS:
        redis();
        break;
    case DEFRAG:
        redis();
        move_hinted();
        break;
    case PHASES:
        phases();
        break;
    case SLABCACHE:
        slabcache();
        break;
    case ARENAS:
        arenas();
        break;
    case REQUESTS:
        requests();
        break;
    case THREADS:
        threads();
        break;
    case LOADER:
        loader();
        break;
    }
}

int main(int argc, char **argv) {
    static const struct bench_spec spec = {
        .name = "survivors",
        .imitates = "programs most of whose blocks end while some stay",
        .iterations = 1,
        .working_set = 65536,
        .seed = 42,
        .modes = modes,
    };
    struct bench_args args;
    struct bench_result result = {0};
    struct bench_timer timer;
    bench_parse(&spec, argc, argv, &args);
    heap.peak_bytes = args.working_set * 1024;
    heap.count = (uint32_t)(heap.peak_bytes / 8);
    heap.slots = bench_map(heap.count * sizeof *heap.slots);
    heap.rng = rng_make(args.seed, 0);
    bench_start(&timer);
    for (uint64_t i = 0; i < args.iterations; i++) {
        run((enum mode)args.mode_idx);
    }
    bench_stop(&timer, &result);
    // The blocks are all that is left to count: the table goes.
    uint64_t with_table = bench_rss_bytes();
    bench_unmap(heap.slots, heap.count * sizeof *heap.slots);
    double rss = (double)bench_rss_bytes();
    double mib = 1024.0 * 1024.0;
    double live = (double)heap.live_bytes;
    bench_metric_add(&result, "live", "MiB", live / mib);
    bench_metric_add(&result, "table", "MiB", ((double)with_table - rss) / mib);
    bench_metric_add(&result, "rss_end", "MiB", rss / mib);
    bench_metric_add(&result, "rss_per_live", "x", live > 0 ? rss / live : 0);
    result.ops = heap.ops;
    bench_report(&args, &result);
    return 0;
}
