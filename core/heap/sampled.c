/*
 * sampled.c - see sampled.h.
 */
#include "heap/sampled.h"
#include "base/bits.h"
#include "check/guarded.h"
#include "check/slots.h"
#include "conf/options.h"
#include "heap/checked.h"
#include "heap/front.h"
#include "heap/pace.h"
#include "heap/requests.h"
#include "heap/upkeep.h"
#include "os/os.h"

#define SAMPLED_BYTES_MAX                                                                                    \
    ((size_t)1024 * 1024)       /* larger ones have a mapping, and mostly a neighbour without access */
#define SAMPLED_LIVE_MAX  8192u /* each is two kernel mappings, of 65 530 that a process may have */
#define SLOTS_SPACE_MAX   ((size_t)1024 * 1024 * 1024) /* twice what those have that may be in use */
#define SPACED_FROM       1000u                        /* allocations: from this option's value on */
#define SPACING_NS        500u /* of time for each allocation of the interval, at least */
#define SPENT_SHARE       16u /* allocations of the interval, for each of which what was spent goes by once */
#define CHANCE_MULTIPLIER UINT64_C(0xD1342543DE82EF95)
#define CHANCE_SHIFT      32

void hak_sampled_start(void) {
    hak_tls.until_slow = HAK_NEVER_SLOW; /* what the thread has counted was for upkeep */
    hak_slots_prepare(hak_smaller(SLOTS_SPACE_MAX, hak_os_space_limit() / HAK_SPACE_PARTS));
    hak_checked_start(HAK_FRONT_SAMPLED);
}

/* From half to one and a half times the option's, so that no program's own rhythm meets it. */
static int64_t next_interval(struct heap *heap) {
    struct sampling *sampling = &heap->sampling;
    sampling->chance = (sampling->chance + (uintptr_t)heap + 1) * CHANCE_MULTIPLIER;
    uint64_t every = hak_options.guard_sample;
    uint64_t half = every / 2;
    return (int64_t)(every - half + (sampling->chance >> CHANCE_SHIFT) % (2 * half + 1));
}

/* The thread's first allocation since there is sampling, counted as such. */
static void begin(struct heap *heap) {
    int64_t allocations = next_interval(heap) - 1;
    int64_t part = allocations < HAK_UPKEEP_ALLOCATIONS ? allocations : HAK_UPKEEP_ALLOCATIONS;
    hak_tls.until_slow = part - 1;
    heap->sampling.left = allocations - part;
}

/*
 * A program that does nothing but allocate would spend several per cent on sampling, so time has to go by
 * between two blocks. Who asks for one of a few blocks wants those, whatever it costs.
 */
static bool is_paced(void) {
    return hak_options.guard_sample >= SPACED_FROM;
}

/* Since `start_ns`, a block of the process was sampled or one such freed. */
static void spend_since(uint64_t start_ns) {
    if (is_paced()) {
        uint64_t now_ns = hak_os_now_ns();
        hak_pace_spend(now_ns, now_ns - start_ns, hak_options.guard_sample / SPENT_SHARE);
    }
}

/* Blocks of a class are aligned to what divides its size, and aligned requests ask for such sizes. */
static unsigned align_shift_of(size_t bytes) {
    unsigned shift = bytes == 0 ? 0 : hak_ctz64(bytes);
    unsigned least = hak_log2(HAK_ALIGN_BYTES);
    unsigned most = hak_log2(HAK_MID_MAX_BYTES);
    return shift < least ? least : shift > most ? most : shift;
}

void *hak_sampled_alloc(struct heap *heap, size_t bytes) {
    if (hak_tls.until_slow > 2 * (int64_t)hak_options.guard_sample) {
        begin(heap);
    }
    bool is_turn = heap->sampling.left == 0;
    if (hak_tls.until_slow >= 0 || (is_turn && bytes > SAMPLED_BYTES_MAX)) {
        return NULL; /* such a large one leaves its turn to the next */
    }
    int64_t allocations = is_turn ? next_interval(heap) : heap->sampling.left;
    hak_upkeep(heap, allocations - 1);
    heap->sampling.left = allocations - 1 - hak_tls.until_slow;
    if (!is_turn || hak_slots_live() + hak_guarded_live() >= SAMPLED_LIVE_MAX) {
        return NULL;
    }
    uint64_t start_ns = hak_os_now_ns();
    if (is_paced() && !hak_pace_take(start_ns, hak_options.guard_sample * (uint64_t)SPACING_NS)) {
        return NULL;
    }
    void *block = hak_checked_alloc_guarded(bytes, align_shift_of(bytes));
    spend_since(start_ns);
    return block;
}

void hak_sampled_free(void *block, const char *function) {
    uint64_t start_ns = hak_os_now_ns();
    hak_checked_free(block, function, HAK_NO_CLAIM);
    spend_since(start_ns);
}

void *hak_sampled_realloc(const char *function, void *block, size_t bytes) {
    size_t old_bytes = hak_checked_usable(function, block);
    /* Where it stays its record keeps the size, which no free of a sampled block compares. */
    return bytes == old_bytes ? block : hak_request_move(function, block, old_bytes, bytes);
}
