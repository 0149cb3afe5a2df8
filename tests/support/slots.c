/*
 * slots.c - see slots.h.
 */
#include "support/slots.h"
#include "support/names.h"
#include "support/pattern.h"
#include "support/test.h"

#include <pthread.h>

#define SPARSE_ABOVE_BYTES (128 * KIB)
#define ALIGN_SHIFT_MIN    4u
#define ALIGN_SHIFT_MAX    14u

static void stamp(struct slot *slot, size_t bytes, uint64_t seed) {
    slot->bytes = bytes;
    slot->seed = seed;
    slot->is_sparse = bytes > SPARSE_ABOVE_BYTES && !slot->is_dense;
    if (slot->is_sparse) {
        pattern_mark(slot->block, bytes, seed);
    } else {
        pattern_fill(slot->block, bytes, seed);
    }
}

bool slot_fill(struct slot *slot, const struct load *load, struct rng *rng) {
    CHECK(slot->block == NULL);
    size_t bytes = rng_log_between(rng, load->low_bytes, load->high_bytes);
    unsigned part = (unsigned)rng_below(rng, 256);
    if (part < load->calloc_parts) {
        slot->block = TEST_CALLOC(1, bytes);
        CHECK(slot->block == NULL || bytes_are(slot->block, bytes, 0));
    } else if (part < load->calloc_parts + load->memalign_parts) {
        unsigned shift = ALIGN_SHIFT_MIN + (unsigned)rng_below(rng, ALIGN_SHIFT_MAX - ALIGN_SHIFT_MIN + 1);
        slot->block = launder(TEST_MEMALIGN((size_t)1 << shift, bytes)); /* its alignment is in question */
        CHECK(((uintptr_t)slot->block & (((uintptr_t)1 << shift) - 1)) == 0);
    } else {
        slot->block = TEST_MALLOC(bytes);
    }
    if (slot->block == NULL) {
        return false;
    }
    CHECK((uintptr_t)slot->block % 16 == 0);
    stamp(slot, bytes, rng_next(rng));
    return true;
}

bool slot_resize(struct slot *slot, const struct load *load, struct rng *rng) {
    slot_check(slot);
    size_t bytes = rng_log_between(rng, load->low_bytes, load->high_bytes);
    unsigned char *moved = TEST_REALLOC(slot->block, bytes);
    if (moved == NULL) {
        slot_check(slot);
        return false;
    }
    slot->block = moved;
    if (!slot->is_sparse) {
        CHECK(pattern_holds(moved, bytes < slot->bytes ? bytes : slot->bytes, slot->seed));
    } else {
        CHECK(pattern_holds(moved, bytes < 64 ? bytes : 64, slot->seed));
    }
    stamp(slot, bytes, rng_next(rng));
    return true;
}

void slot_check(const struct slot *slot) {
    if (slot->block == NULL) {
        return;
    }
    if (slot->is_sparse) {
        CHECK(pattern_marked(slot->block, slot->bytes, slot->seed));
    } else {
        CHECK(pattern_holds(slot->block, slot->bytes, slot->seed));
    }
}

void slot_clear(struct slot *slot) {
    slot_check(slot);
    if (slot->block != NULL) {
        TEST_FREE(slot->block);
        slot->block = NULL;
    }
}

void slots_clear(struct slot *slots, size_t count) {
    for (size_t i = 0; i < count; i++) {
        slot_clear(&slots[i]);
    }
}

void slots_step(struct slot *slots, size_t count, const struct load *load, struct rng *rng) {
    struct slot *slot = &slots[rng_below(rng, count)];
    if (slot->block != NULL && rng_below(rng, 256) < load->realloc_parts) {
        (void)slot_resize(slot, load, rng);
        return;
    }
    slot_clear(slot);
    (void)slot_fill(slot, load, rng);
}

/* Heap sort by address, so that checking allocates nothing, whatever libc's qsort does. */
static void sift_down(struct slot *slots, size_t root, size_t count) {
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && slots[child + 1].block > slots[child].block) {
            child++;
        }
        if (slots[root].block >= slots[child].block) {
            return;
        }
        struct slot swapped = slots[root];
        slots[root] = slots[child];
        slots[child] = swapped;
    }
}

void slots_check_overlap(struct slot *slots, size_t count) {
    for (size_t i = count / 2; i-- > 0;) {
        sift_down(slots, i, count);
    }
    for (size_t end = count; end-- > 1;) {
        struct slot swapped = slots[0];
        slots[0] = slots[end];
        slots[end] = swapped;
        sift_down(slots, 0, end);
    }
    for (size_t i = 1; i < count; i++) {
        if (slots[i - 1].block != NULL) {
            CHECK(slots[i - 1].block + TEST_USABLE_SIZE(slots[i - 1].block) <= slots[i].block);
        }
    }
}

#define LOAD_THREADS 3u /* besides the caller's */
#define LOAD_SLOTS   64u

struct load_part {
    const struct load *load;
    unsigned steps;
    uint64_t seed;
};

static void *run_load_part(void *context) {
    static _Thread_local struct slot slots[LOAD_SLOTS];
    const struct load_part *part = context;
    struct rng rng = rng_seeded(part->seed);
    for (unsigned i = 0; i < part->steps; i++) {
        slots_step(slots, LOAD_SLOTS, part->load, &rng);
    }
    slots_check_overlap(slots, LOAD_SLOTS);
    slots_clear(slots, LOAD_SLOTS);
    return NULL;
}

void slots_load_threads(const struct load *load, unsigned steps) {
    pthread_t threads[LOAD_THREADS];
    struct load_part parts[LOAD_THREADS + 1];
    for (unsigned i = 0; i <= LOAD_THREADS; i++) {
        parts[i] = (struct load_part){.load = load, .steps = steps, .seed = i};
    }
    for (unsigned i = 0; i < LOAD_THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, run_load_part, &parts[i]) == 0);
    }
    (void)run_load_part(&parts[LOAD_THREADS]);
    for (unsigned i = 0; i < LOAD_THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}
