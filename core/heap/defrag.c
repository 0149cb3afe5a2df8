/*
 * defrag.c - see defrag.h.
 */
#include "heap/defrag.h"
#include "heap/child.h"
#include "heap/front.h"
#include "heap/heap.h"
#include "slab/orphans.h"
#include "slab/slab_word.h"

/* Slabs used to more than this many quarters are left as they are. */
#define SPARSE_QUARTERS_MAX 3u

static bool is_thinly_used(const struct slab *slab, uint64_t word) {
    int used_blocks = (int)slab->capacity_blocks - hak_slab_word_count(word);
    return used_blocks * 4 <= (int)(slab->capacity_blocks * SPARSE_QUARTERS_MAX);
}

/* The slab that this thread's next blocks of the class come from: what is moved would land in it again. */
static bool is_own_current(const struct slab *slab) {
    return hak_tls.heap != NULL && hak_tls.heap->classes[slab->class_idx].current == slab;
}

/* Leased -> among the sparse ones. */
static void leased_to_sparse(struct slab *slab) {
    hak_slab_list_unlink(slab);
    hak_slab_adopt(slab, HAK_OWNER_NOBODY);
    hak_heap_handle_event(slab, hak_sparse_push(slab), NULL);
}

bool hak_defrag_helps(const void *block) {
    (void)hak_heap_attach();        /* so that the child of a fork knows that somebody may have had a lease */
    hak_child_rebuild_if_pending(); /* until then no slab's word can be relied on */
    struct block_place place = hak_place_in(hak_registry_word(block), block);
    unsigned class_idx;
    if (!hak_place_class(&place, &class_idx)) {
        return false;
    }
    struct slab *slab = hak_slab_of_map(hak_word_address(place.word));
    uint64_t word = hak_atomic_load_relaxed(&slab->word); /* relaxed: a hint; the lease decides */
    if (!is_thinly_used(slab, word) || is_own_current(slab)) {
        return false;
    }
    /* relaxed: a hint, as above */
    if (hak_atomic_load_relaxed(&slab->list) == hak_sparse_of(slab->class_idx)) {
        return true;
    }
    if (!hak_slab_lease_any(slab)) {
        return false; /* somebody takes blocks out of it, or puts it somewhere: ask again later */
    }
    leased_to_sparse(slab);
    return true;
}
