/*
 * verify.c - see verify.h.
 *
 * A slab is checked under its lease, so that only frees can happen meanwhile: a FREE byte that is stored and
 * not yet counted makes the count run below the map for a moment, and for as long as a thread is preempted
 * there. Such a slab is looked at again for a while before it is blamed, unless threads have put off counts
 * that explain it; and so are SuperSlabs, whose units are nobody's while a thread makes a slab of them.
 * Lists, extents and mappings are exact, under their locks.
 */
#include "process/verify.h"
#include "heap/checked.h"
#include "heap/front.h"
#include "heap/heap.h"
#include "heap/homeward.h"
#include "heap/unified_cache.h"
#include "large/large.h"
#include "meta/classes.h"
#include "os/os.h"
#include "process/walk.h"
#include "slab/guests.h"
#include "slab/orphans.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"

/*
 * How long a difference is looked at again. Time in which this thread did not run either, because the machine
 * was busy or stood still, counts as one look: the other thread may not have run then.
 */
#define PATIENCE_MS 5000u
#define LOOK_MS     10u

struct patience {
    uint64_t seen_ms; /* the clock at the last look */
    uint64_t left_ms;
};

static struct patience full_patience(void) {
    return (struct patience){.seen_ms = hak_os_now_ms(), .left_ms = PATIENCE_MS};
}

static bool has_patience(struct patience *patience) {
    uint64_t now_ms = hak_os_now_ms();
    uint64_t passed_ms = now_ms - patience->seen_ms;
    uint64_t used_ms = passed_ms < LOOK_MS ? passed_ms : LOOK_MS;
    patience->seen_ms = now_ms;
    patience->left_ms -= used_ms < patience->left_ms ? used_ms : patience->left_ms;
    return patience->left_ms != 0;
}

static const char *check_words(const struct slab *slab) {
    for (unsigned unit = 0; unit < slab->units; unit++) {
        const void *address = (const void *)(slab->base + unit * HAK_UNIT_BYTES);
        struct hak_at at = hak_registry_at(&hak_registry, address);
        unsigned tag = hak_word_tag(at.word); /* a hint only: any heap's is right */
        if (at.word != hak_word_for_slab(slab->class_idx, unit, (const void *)slab->map, tag)) {
            return "slab: a registry word does not name its header map";
        }
        if (unit == 0 && at.reciprocal >> 32 != hak_reciprocal_upper(hak_class_reciprocal(slab->class_idx))) {
            return "slab: the reciprocal beside its registry word is not its class's";
        }
    }
    return hak_slab_of_map(slab->map) == slab ? NULL : "slab: its header map names another slab";
}

/* Whether a header below carved_blocks may have that value, behind one with the value `before`. */
static bool is_state_of(const struct slab *slab, unsigned header, unsigned before) {
    bool may_have_tail = before == HAK_HEADER_TAIL || before == HAK_HEADER_CACHED ||
                         (before >= HAK_HEADER_LIVE && before != HAK_HEADER_LIVE + slab->class_idx);
    return header == HAK_HEADER_FREE || header == HAK_HEADER_CACHED || header == HAK_HEADER_CACHED_ZERO ||
           (header == HAK_HEADER_TAIL && may_have_tail) ||
           (header >= HAK_HEADER_LIVE && header < HAK_HEADER_LIVE + HAK_CLASS_COUNT);
}

/* Whether a header that is live is one of the slab's class, or of a whole guest. */
static bool is_whole(const struct slab *slab, unsigned block_idx, unsigned header) {
    unsigned class_idx;
    return header < HAK_HEADER_LIVE ||
           hak_header_is_live(&slab->map[block_idx], header, slab->class_idx, &class_idx);
}

/* NULL, with the number of free blocks, or what is wrong with a header; *is_cut if it may be that of a guest
 * that another thread is about to free. */
static const char *check_headers(const struct slab *slab, unsigned *free_blocks, bool *is_cut) {
    unsigned freed = 0;
    unsigned before = HAK_HEADER_NEVER;
    *is_cut = false;
    for (unsigned i = 0; i < slab->capacity_blocks; i++) {
        /* acquire: pairs with the stores in hak_row_to_free(): no TAIL is left behind what is seen FREE */
        unsigned header = hak_atomic_load_acquire(&slab->map[i]);
        if (i >= slab->carved_blocks) {
            if (header != HAK_HEADER_NEVER) {
                return "slab: a block beyond the carved ones is not NEVER";
            }
            continue;
        }
        *is_cut = !is_whole(slab, i, header);
        if (*is_cut || !is_state_of(slab, header, before)) {
            return "slab: a header byte is in no state";
        }
        freed += header == HAK_HEADER_FREE;
        before = header;
    }
    *free_blocks = freed + slab->capacity_blocks - slab->carved_blocks;
    return NULL;
}

static const char *check_slab(const struct slab *slab) {
    unsigned free_blocks = 0;
    if (slab->capacity_blocks != hak_class_capacity(slab->class_idx) ||
        slab->carved_blocks > slab->capacity_blocks) {
        return "slab: capacity or carved blocks out of range";
    }
    const char *broken = check_words(slab);
    struct patience patience = full_patience();
    bool may_change = broken == NULL;
    while (may_change && has_patience(&patience)) {
        bool is_cut;
        broken = check_headers(slab, &free_blocks, &is_cut);
        /* relaxed: a count whose FREE bytes are not seen yet is looked at again, until they are */
        int counted = hak_slab_word_count(hak_atomic_load_relaxed(&slab->word));
        if (broken == NULL && counted == (int)free_blocks) {
            return NULL;
        }
        if (broken == NULL && counted < (int)free_blocks &&
            free_blocks - (unsigned)counted <= hak_homeward_uncounted()) {
            return NULL; /* other threads' frees, put off until they have a batch */
        }
        may_change = broken == NULL || is_cut;
    }
    return broken != NULL ? broken : "slab: its count of free blocks is not that of its header map";
}

static int visit_slab(struct slab *slab, void *context) {
    const char **broken = context;
    *broken = check_slab(slab);
    return *broken != NULL;
}

/* The calling thread's own caches: each entry CACHED, and the look-up leads to the same header. */
static const char *check_own_caches(struct heap *heap) {
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        const struct class_state *state = &heap->classes[c];
        unsigned count = hak_cache_count(heap, c);
        if (count > state->capacity_blocks || count < state->marked ||
            state->warm_count > HAK_WARM_SLABS_MAX) {
            return "heap: a cache or warm pool holds more than it can";
        }
        for (unsigned i = 1; i <= count; i++) {
            unsigned header =
                hak_atomic_load_relaxed(state->array[i].header); /* relaxed: this thread's block */
            if (header != HAK_HEADER_CACHED && header != HAK_HEADER_CACHED_ZERO) {
                return "heap: a cached block is not marked CACHED";
            }
            const void *block = i == state->marked ? state->marked_block : state->array[i].block;
            unsigned slab_class = hak_slab_of_block(block)->class_idx;
            if (slab_class > c || hak_row_length(state->array[i].header) != hak_row_blocks(slab_class, c)) {
                return "heap: a block is cached under another class";
            }
        }
    }
    return NULL;
}

static const char *check_lists(void) {
    for (unsigned i = 0; i < hak_orphan_lists(); i++) {
        if (!hak_slab_list_is_sound(hak_orphans_at(i))) {
            return "orphans: a list's links or count are wrong";
        }
    }
    for (uint32_t id = 1; id <= hak_heap_last_id(); id++) {
        struct heap *heap = hak_heap_by_id(id);
        if (heap != NULL && !hak_slab_list_is_sound(&heap->remote)) {
            return "heap: the links or the count of its slabs with remote frees are wrong";
        }
    }
    return NULL;
}

static const char *check_superslabs(void) {
    const char *broken = NULL;
    struct patience patience = full_patience();
    do {
        (void)hak_superslab_verify(&broken);
    } while (broken == hak_superslab_units_are_lost && has_patience(&patience));
    return broken;
}

const char *hak_process_verify(void) {
    const char *broken = NULL;
    if (hak_tls.heap != NULL) {
        hak_homeward_flush(hak_tls.heap); /* so that what is checked is exact as far as this thread goes */
    }
    if (hak_walk_slabs(visit_slab, &broken) != 0) {
        return broken;
    }
    if (hak_tls.heap != NULL) {
        broken = check_own_caches(hak_tls.heap);
    }
    broken = broken != NULL ? broken : check_lists();
    broken = broken != NULL ? broken : check_superslabs();
    if (broken == NULL && hak_maps_verify(&broken)) {
        (void)hak_large_verify(&broken);
    }
    if (broken == NULL && hak_keeps_records()) {
        broken = hak_checked_verify();
    }
    return broken;
}
