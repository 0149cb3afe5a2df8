/*
 * trace_table.c - see trace_table.h.
 */
#include "check/trace_table.h"
#include "base/atomic.h"
#include "meta/arena.h"
#include "os/os.h"
#include <string.h>

#ifndef TRACE_BUCKETS
#define TRACE_BUCKETS                                                                                        \
    ((size_t)1 << 18) /* address space, until they are used: deep recursion makes many stacks */
#endif
#define KEPT_BYTES_MAX  ((size_t)64 * 1024 * 1024) /* programs that recurse make new stacks without end */
#define HASH_MULTIPLIER UINT64_C(0x9E3779B97F4A7C15)
#define HASH_SHIFT      29

/* Const once published, but for what the thread that lists what is still allocated has there. */
struct hak_trace {
    const struct hak_trace *next;
    uint64_t hash;
    struct hak_trace_sums sums; /* the list's */
    struct hak_trace *lighter;  /* the list's: the next one of those that have sums */
    unsigned count;
    void *frames[];
};

static struct {
    _Atomic(const struct hak_trace *) *buckets; /* const after start; NULL: there is no table */
    _Atomic size_t kept_bytes;
} traces;

/* Those that have sums, of the thread that lists them. */
static struct {
    struct hak_trace *heaviest; /* just the first one until they are sorted */
    bool is_sorted;
} listed;

#define TABLE_BYTES (TRACE_BUCKETS * sizeof *traces.buckets)

int hak_trace_table_prepare(void) {
    void *memory;
    int error = hak_os_map(NULL, TABLE_BYTES, &memory);
    if (error == 0) {
        traces.buckets = memory;
    }
    return error;
}

static uint64_t hash_frames(void *const *frames, unsigned count) {
    uint64_t hash = count;
    for (unsigned i = 0; i < count; i++) {
        hash = (hash ^ (uintptr_t)frames[i]) * HASH_MULTIPLIER;
        hash ^= hash >> HASH_SHIFT;
    }
    return hash;
}

static const struct hak_trace *find(const struct hak_trace *trace, uint64_t hash, void *const *frames,
                                    unsigned count) {
    while (trace != NULL && (trace->hash != hash || trace->count != count ||
                             memcmp(trace->frames, frames, count * sizeof *frames) != 0)) {
        trace = trace->next;
    }
    return trace;
}

/* Two threads that keep the same stack at once make two records of it: no harm. */
const struct hak_trace *hak_trace_keep(void *const *frames, unsigned count) {
    uint64_t hash = hash_frames(frames, count);
    _Atomic(const struct hak_trace *) *bucket = &traces.buckets[hash % TRACE_BUCKETS];
    const struct hak_trace *newest =
        hak_atomic_load_acquire(bucket); /* acquire: pairs with the swap at the end of hak_trace_keep() */
    const struct hak_trace *known = find(newest, hash, frames, count);
    size_t bytes = sizeof(struct hak_trace) + count * sizeof *frames;
    if (known != NULL) {
        return known;
    }
    if (hak_trace_kept_bytes() + bytes > KEPT_BYTES_MAX) {
        return NULL;
    }
    struct hak_trace *trace = hak_meta_alloc(bytes);
    if (trace == NULL) {
        return NULL;
    }
    (void)hak_atomic_add_relaxed(&traces.kept_bytes, bytes); /* relaxed: a rough bound */
    trace->hash = hash;
    trace->count = count;
    memcpy(trace->frames, frames, count * sizeof *frames);
    do {
        trace->next = newest;
    } while (!hak_atomic_cas_release(bucket, &newest, trace)); /* pairs with the load in hak_trace_keep() */
    return trace;
}

unsigned hak_trace_frames(const struct hak_trace *trace, void *const **frames) {
    if (trace == NULL) {
        return 0;
    }
    *frames = trace->frames;
    return trace->count;
}

void hak_trace_table_visit_mapped(hak_range_visitor visitor, void *context) {
    if (traces.buckets != NULL) {
        (void)visitor((void *)traces.buckets, TABLE_BYTES, context);
    }
}

size_t hak_trace_kept_bytes(void) {
    return hak_atomic_load_relaxed(&traces.kept_bytes); /* relaxed: a statistic */
}

void hak_trace_add(const struct hak_trace *trace, size_t bytes) {
    struct hak_trace *own = (struct hak_trace *)(uintptr_t)trace;
    if (own->sums.blocks == 0) {
        own->lighter = listed.heaviest;
        listed.heaviest = own;
    }
    own->sums.blocks++;
    own->sums.bytes += bytes;
    listed.is_sorted = false;
}

static struct hak_trace *merge(struct hak_trace *a, struct hak_trace *b) {
    struct hak_trace *merged = NULL;
    struct hak_trace **end = &merged;
    while (a != NULL && b != NULL) {
        struct hak_trace **heavier = a->sums.bytes >= b->sums.bytes ? &a : &b;
        *end = *heavier;
        *heavier = (*heavier)->lighter;
        end = &(*end)->lighter;
    }
    *end = a != NULL ? a : b;
    return merged;
}

/* Merge sort: piles[i] is NULL or has 2^i of them. */
static struct hak_trace *sort(struct hak_trace *unsorted) {
    struct hak_trace *piles[64] = {NULL};
    struct hak_trace *sorted = NULL;
    while (unsorted != NULL) {
        struct hak_trace *pile = unsorted;
        unsigned i = 0;
        unsorted = pile->lighter;
        pile->lighter = NULL;
        for (; piles[i] != NULL; i++) {
            pile = merge(piles[i], pile);
            piles[i] = NULL;
        }
        piles[i] = pile;
    }
    for (unsigned i = 0; i < sizeof piles / sizeof piles[0]; i++) {
        sorted = merge(piles[i], sorted);
    }
    return sorted;
}

const struct hak_trace *hak_trace_take_largest(struct hak_trace_sums *sums) {
    if (!listed.is_sorted) {
        listed.heaviest = sort(listed.heaviest);
        listed.is_sorted = true;
    }
    struct hak_trace *largest = listed.heaviest;
    if (largest != NULL) {
        listed.heaviest = largest->lighter;
        *sums = largest->sums;
        largest->sums = (struct hak_trace_sums){0, 0};
    }
    return largest;
}
