/*
 * sleepers.c - see sleepers.h.
 */
#include "heap/sleepers.h"
#include "os/os.h"
#include "slab/orphans.h"
#include "slab/superslab.h"

#define LOOKS_MAX       16u /* heaps that one visit looks at */
#define HAND_ON_MAX     16u /* slabs that it hands on */
#define ASLEEP_MS       10u /* that slabs wait: an owner who works takes them up far sooner */
#define ASLEEP_GROWN_MS 2u  /* the same while the program has grown, */
#define GROWN_BY        2u  /* by so many SuperSlabs */

struct moment {
    uint64_t ms;
    size_t superslabs; /* mapped then */
};

static struct moment moment_now(void) {
    return (struct moment){.ms = hak_os_now_ms(), .superslabs = hak_superslab_count().mapped};
}

/* Whether the list waits for long. Who is the first to see it wait notes when that was. */
static bool is_asleep(struct heap *heap, struct moment now) {
    /* relaxed: hints; two who note them at a time note the same, or nearly */
    uint64_t since_ms = hak_atomic_load_relaxed(&heap->remote_waits_since_ms);
    if (since_ms == 0) {
        hak_atomic_store_relaxed(&heap->remote_waits_since_mapped, now.superslabs); /* relaxed: as above */
        hak_atomic_store_relaxed(&heap->remote_waits_since_ms, now.ms);             /* relaxed: as above */
        return false;
    }
    /* relaxed: as above */
    bool has_grown = now.superslabs >= hak_atomic_load_relaxed(&heap->remote_waits_since_mapped) + GROWN_BY;
    return now.ms >= since_ms + (has_grown ? ASLEEP_GROWN_MS : ASLEEP_MS);
}

/* At most so many slabs of the heap's list become orphans. Returns how many did. */
static unsigned hand_on(struct heap *sleeper, unsigned slabs_max) {
    unsigned slabs = 0;
    struct slab *slab;
    while (slabs < slabs_max && (slab = hak_slab_list_pop(&sleeper->remote)) != NULL) {
        hak_heap_handle_event(slab, hak_orphans_push(slab), NULL);
        slabs++;
    }
    return slabs;
}

bool hak_sleepers_hand_on(struct heap *heap) {
    uint32_t heaps = hak_heap_last_id();
    uint32_t looks = heaps < LOOKS_MAX ? heaps : LOOKS_MAX;
    struct moment now = {0};
    unsigned left = HAND_ON_MAX;
    for (; looks != 0 && left != 0; looks--) {
        heap->looked_at = heap->looked_at < heaps ? heap->looked_at + 1 : 1;
        struct heap *other = hak_heap_by_id(heap->looked_at);
        if (other == NULL || hak_slab_list_looks_empty(&other->remote)) {
            continue;
        }
        now = now.ms != 0 ? now : moment_now();
        if (is_asleep(other, now)) {
            left -= hand_on(other, left);
        }
    }
    return left != HAND_ON_MAX;
}
