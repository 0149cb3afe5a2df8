/*
 * supply.c - units and pages: taken, given back, purged; and verification beside frees.
 */
#include "heap/supply.h"
#include "floor/floor.h"
#include "process/verify.h"
#include "scenarios/kit.h"
#include "scenarios/list.h"
#include "slab/purge.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "slab/thin.h"

static struct block_ref refs[3 * KIT_BLOCKS];
static struct block_ref taken[2];
static struct slab *used_slab;

/* Two slabs were used and retired: their units are free and dirty. One more is in use, with one live block.
 */
static void leave_dirty_units(void) {
    kit_take(KIT_CLASS, refs, 3 * KIT_BLOCKS);
    for (unsigned i = 0; i < 3 * KIT_BLOCKS; i++) {
        kit_use(&refs[i]);
    }
    kit_return(&refs[KIT_BLOCKS], 2 * KIT_BLOCKS);
    kit_return(&refs[1], KIT_BLOCKS - 1);
}

static void purge_all(void) {
    (void)hak_superslab_trim(0);
}

static void take_new_slab(struct block_ref *ref) {
    kit_take(KIT_CLASS - 1, ref, 1);
    kit_use(ref);
}

static void take_first(void) {
    take_new_slab(&taken[0]);
}

static void take_second(void) {
    take_new_slab(&taken[1]);
}

/* Completes the slab that is left: it retires, its units become free and dirty. */
static void free_the_last(void) {
    kit_free(&refs[0]);
}

static void each_has_its_own(void) {
    MODEL_CHECK(taken[0].block != taken[1].block);
    kit_is_sound();
}

const struct model_scenario model_units = {
    .name = "units",
    .claim = "two threads that set up slabs while a third one's retires: every unit has one owner",
    .set_up = {leave_dirty_units, kit_attach, kit_attach},
    .run = {free_the_last, take_first, take_second},
    .check = each_has_its_own,
};

const struct model_scenario model_purge_units = {
    .name = "purge-units",
    .claim = "units that are being purged are nobody's: no block lies on a page that is being given back",
    .set_up = {leave_dirty_units, kit_attach, kit_attach},
    .run = {purge_all, take_first, free_the_last},
    .check = kit_is_sound,
};

/* ---- pages beneath free blocks ---- */

/* Five blocks are live, three free; the slab is warm. */
static void leave_free_blocks(void) {
    kit_take(KIT_CLASS, refs, KIT_BLOCKS);
    for (unsigned i = 0; i < KIT_BLOCKS; i++) {
        kit_use(&refs[i]);
    }
    kit_return(&refs[5], KIT_BLOCKS - 5);
    used_slab = kit_slab(&refs[0]);
}

/* What trim does with each slab that it can lease. */
static void purge_blocks(void) {
    struct slab *slab = used_slab;
    if (hak_slab_lease_any(slab)) {
        unsigned calls = 0;
        (void)hak_thin_purge(slab, UINT_MAX, &calls);
        hak_heap_handle_event(slab, hak_slab_release_any(slab, 0), hak_tls.heap);
    }
}

static void free_another(void) {
    kit_free(&refs[1]);
}

static void refill(void) {
    kit_refill(&taken[0]);
}

const struct model_scenario model_purge_blocks = {
    .name = "purge-blocks",
    .claim = "a purge under the lease touches free blocks alone, whoever frees or refills meanwhile",
    .set_up = {leave_free_blocks, kit_attach, kit_attach},
    .run = {refill, purge_blocks, free_another},
    .check = kit_is_sound,
};

static void orphan_it(void) {
    leave_free_blocks();
    hak_supply_flush(hak_heap_attach(), KIT_CLASS);
}

const struct model_scenario model_purge_orphan = {
    .name = "purge-orphan",
    .claim = "an orphan whose free blocks are purged is adopted before or after, not meanwhile",
    .set_up = {orphan_it, kit_attach, kit_attach},
    .run = {refill, purge_blocks},
    .check = kit_is_sound,
};

const struct model_scenario model_purge_twice = {
    .name = "purge-twice",
    .claim = "two purges of a slab whose owner asks for it meanwhile: one after the other, and it is listed",
    .set_up = {leave_free_blocks, kit_attach, kit_attach},
    .run = {refill, purge_blocks, purge_blocks},
    .check = kit_is_sound,
};

/* The last five blocks are freed one and four at a time, while the slab may be leased for a purge. */
static void free_the_rest(void) {
    kit_free(&refs[0]);
    for (unsigned i = 1; i < 5; i++) {
        kit_use(&refs[i]);
    }
    kit_return(&refs[1], 4);
}

/* What whoever purged does when the units come to be used again. */
static void purge_blocks_and_reuse(void) {
    purge_blocks();
    take_new_slab(&taken[1]);
}

const struct model_scenario model_purge_complete = {
    .name = "purge-complete",
    .claim = "a slab that is completed while its pages are purged is retired by whoever purged, once",
    .set_up = {leave_free_blocks, kit_attach, kit_attach},
    .run = {purge_blocks_and_reuse, free_the_rest},
    .check = kit_is_sound,
};

/* ---- thin slabs ---- */

/* Two blocks are live; a free that leaves one makes the slab thin, as in a heap where that matters. */
static void leave_two_blocks(void) {
    kit_take(KIT_CLASS, refs, KIT_BLOCKS);
    for (unsigned i = 0; i < KIT_BLOCKS; i++) {
        kit_use(&refs[i]);
    }
    kit_return(&refs[2], KIT_BLOCKS - 2);
    used_slab = kit_slab(&refs[0]);
    hak_atomic_store_relaxed(&hak_thin_matters, true); /* relaxed: before the threads */
}

/* One block is live: the slab is thin. */
static void leave_thin(void) {
    leave_two_blocks();
    kit_return(&refs[1], 1);
}

static void free_first_block(void) {
    kit_free(&refs[0]);
}

const struct model_scenario model_thin_refill = {
    .name = "thin-refill",
    .claim = "a slab that a free makes thin while its owner takes of it counts as what it is in the end",
    .set_up = {leave_two_blocks, kit_attach},
    .run = {refill, free_first_block},
    .check = kit_is_sound,
};

const struct model_scenario model_thin_purge = {
    .name = "thin-purge",
    .claim = "a slab that a free makes thin is purged by whoever purges, or counts as dirty",
    .set_up = {leave_two_blocks, kit_attach},
    .run = {purge_all, free_first_block},
    .check = kit_is_sound,
};

const struct model_scenario model_thin_trim = {
    .name = "thin-trim",
    .claim = "a thin slab that its owner refills from is purged by whoever purges before or after, and "
             "counts once",
    .set_up = {leave_thin, kit_attach},
    .run = {refill, purge_all},
    .check = kit_is_sound,
};

const struct model_scenario model_thin = {
    .name = "thin-all",
    .claim = "the same with a purge of that slab, all three at once: no page of a block taken is given back",
    .set_up = {leave_two_blocks, kit_attach, kit_attach},
    .run = {refill, free_first_block, purge_blocks},
    .check = kit_is_sound,
    .is_deep = true,
};

/* ---- slabs fetched ahead of need ---- */

static void keep_missing(void) {
    kit_take(KIT_CLASS, refs, KIT_BLOCKS + 1);
    kit_take(KIT_CLASS, refs, KIT_BLOCKS - 1);
    hak_heap_attach()->classes[KIT_CLASS].misses_in_row = UINT8_MAX - 1;
}

/* Looks at the slabs behind those in use, as trim and verification do. */
static void lease_what_is_new(void) {
    struct superslab *superslab = hak_superslab_at(0);
    for (unsigned i = 2; i < 5; i++) {
        struct slab *slab = &superslab->slabs[i];
        if (hak_slab_lease_any(slab)) {
            MODEL_CHECK(slab->class_idx == KIT_CLASS && slab->carved_blocks <= KIT_BLOCKS);
            hak_heap_handle_event(slab, hak_slab_release_any(slab, 0), hak_tls.heap);
        }
    }
}

const struct model_scenario model_prefill = {
    .name = "prefill",
    .claim = "slabs fetched ahead of need can be leased by others once they are warm, and are whole then",
    .set_up = {keep_missing, kit_attach},
    .run = {refill, lease_what_is_new},
    .check = kit_is_sound,
};

/* ---- verification ---- */

static void leave_free_blocks_and_time_passing(void) {
    leave_free_blocks();
    model_ms_per_look = 1200;
    model_free_looks = 2;
}

static void verify(void) {
    kit_is_sound();
}

const struct model_scenario model_verify = {
    .name = "verify",
    .claim = "verification beside a free finds nothing broken",
    .set_up = {leave_free_blocks_and_time_passing, kit_attach},
    .run = {verify, free_another},
    .check = kit_is_sound,
};
