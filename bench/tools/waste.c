// waste.so: preloaded before hakmem; at exit writes where the memory of the process was when it used most.
//
// Does: counts requests by size, and the bytes that rounding up to a class adds to them; every SAMPLE_EVERY
// requests asks hak_stats_get() and keeps the answer with the most live memory; adds one line of JSON to
// the file that BENCH_WASTE_FILE names. Blocks above 32 KiB are whole OS pages and counted by their usable
// size. Does not: follow single blocks. What rounding wastes is a share of all requests, not of those alive
// at the peak. Called by: bench/memory.
#include "../../include/hakmem.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLE_EVERY = 4096, LINE_BYTES = 512 };

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static int (*next_stats)(struct hak_stats *);
static size_t (*next_good_size)(size_t);

static atomic_ullong requests, asked_bytes, given_bytes;
static atomic_flag is_sampling = ATOMIC_FLAG_INIT;
static struct hak_stats peak;

static void find_next(void) {
    // dlsym may allocate: by then the first of these is there.
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    next_stats = (int (*)(struct hak_stats *))dlsym(RTLD_NEXT, "hak_stats_get");
    next_good_size = (size_t(*)(size_t))dlsym(RTLD_NEXT, "hak_good_size");
}

static void sample(void) {
    struct hak_stats now = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof now};
    if (next_stats != NULL && !atomic_flag_test_and_set(&is_sampling)) {
        if (next_stats(&now) == 0 && now.live_bytes >= peak.live_bytes) {
            peak = now;
        }
        atomic_flag_clear(&is_sampling);
    }
}

static void count(size_t bytes) {
    if (next_good_size == NULL || bytes > (size_t)1 << 40) {
        return;
    }
    atomic_fetch_add_explicit(&asked_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&given_bytes, next_good_size(bytes), memory_order_relaxed);
    if (atomic_fetch_add_explicit(&requests, 1, memory_order_relaxed) % SAMPLE_EVERY == SAMPLE_EVERY - 1) {
        sample();
    }
}

void *malloc(size_t bytes) {
    if (next_malloc == NULL) {
        find_next();
    }
    count(bytes);
    return next_malloc(bytes);
}

void *calloc(size_t number, size_t bytes) {
    if (next_calloc == NULL) {
        find_next();
    }
    count(number * bytes);
    return next_calloc(number, bytes);
}

void *realloc(void *block, size_t bytes) {
    if (next_realloc == NULL) {
        find_next();
    }
    count(bytes);
    return next_realloc(block, bytes);
}

// Records in use, by their sizes in core/: header maps, SuperSlabs, heaps, a page of the registry.
static size_t metadata_in_use(const struct hak_stats *stats) {
    enum { MAP_EXTRA = 32, SUPERSLAB_RECORD = 2240, HEAP_RECORD = 11264, REGISTRY = 4096 };
    size_t bytes = REGISTRY + stats->superslabs * SUPERSLAB_RECORD + stats->heaps * HEAP_RECORD;
    for (size_t i = 0; i < HAK_STATS_CLASSES; i++) {
        bytes += stats->classes[i].capacity_blocks + stats->classes[i].slabs * MAP_EXTRA;
    }
    return bytes;
}

__attribute__((destructor)) static void write_peak(void) {
    char line[LINE_BYTES];
    const char *path = getenv("BENCH_WASTE_FILE");
    sample();
    int length =
        snprintf(line, sizeof line,
                 "{\"requests\": %llu, \"asked\": %llu, \"given\": %llu, \"live\": %zu, \"cached\": %zu, "
                 "\"metadata\": %zu, \"resident\": %zu}\n",
                 requests, asked_bytes, given_bytes, peak.live_bytes, peak.cached_bytes,
                 metadata_in_use(&peak), peak.resident_bytes);
    int fd = path != NULL ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        ssize_t written = write(fd, line, (size_t)length);
        (void)written;
        close(fd);
    }
}
