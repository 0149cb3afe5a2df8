/*
 * sleepers.c - slabs that wait for an owner who sleeps, or that his heap keeps, given to other threads.
 */
#include "heap/sleepers.h"
#include "floor/floor.h"
#include "heap/heap.h"
#include "heap/reclaim.h"
#include "heap/supply.h"
#include "scenarios/kit.h"
#include "scenarios/list.h"

static struct block_ref refs[3 * KIT_BLOCKS];
static struct block_ref taken;
static struct heap *sleeper;

static void attach(void) {
    (void)hak_heap_attach();
}

/* Three slabs, all exhausted, two of them nowhere; refs[0] and refs[1] lie in one of those each. */
static void fall_asleep(void) {
    sleeper = hak_heap_attach();
    kit_take(KIT_CLASS, refs, 3 * KIT_BLOCKS);
    struct block_ref swap = refs[1];
    refs[1] = refs[KIT_BLOCKS];
    refs[KIT_BLOCKS] = swap;
    MODEL_CHECK(kit_slab(&refs[0]) != kit_slab(&refs[1]));
}

static void free_first(void) {
    kit_use(&refs[0]);
    kit_return(&refs[0], 1);
}

static void free_second(void) {
    kit_use(&refs[1]);
    kit_return(&refs[1], 1);
}

/* The first slab waits for long in the sleeper's list; this thread is the next to look. */
static void free_long_ago(void) {
    free_first();
    MODEL_CHECK(!hak_slab_list_looks_empty(&sleeper->remote));
    hak_atomic_store_relaxed(&sleeper->remote_waits_since_ms, 1); /* relaxed: nobody else yet */
    hak_heap_attach()->looked_at = sleeper->id - 1;
}

static void hand_on(void) {
    (void)hak_sleepers_hand_on(hak_heap_attach());
}

/* What a thread does that has no slab left: it looks at the sleeper before it takes a new one. */
static void take_what_is_handed_on(void) {
    taken = (struct block_ref){0};
    MODEL_CHECK(hak_supply_take(hak_heap_attach(), KIT_CLASS, &taken, 1) == 1);
    kit_use(&taken);
}

static void wake(void) {
    hak_supply_drain_remote(sleeper);
}

static void wake_and_take(void) {
    struct block_ref ref;
    MODEL_CHECK(hak_supply_take(sleeper, KIT_CLASS, &ref, 1) == 1);
    kit_use(&ref);
}

const struct model_scenario model_sleeper_wakes = {
    .name = "sleeper-wakes",
    .claim = "an owner who comes back while his list is handed on: each slab is with him or an orphan",
    .set_up = {fall_asleep, free_long_ago, attach},
    .run = {wake, hand_on, free_second},
    .check = kit_is_sound,
};

const struct model_scenario model_sleeper_takes = {
    .name = "sleeper-takes",
    .claim = "the same with both in need of a block: each gets one of its own",
    .set_up = {fall_asleep, free_long_ago},
    .run = {wake_and_take, take_what_is_handed_on},
    .check = kit_is_sound,
};

const struct model_scenario model_sleeper_ends = {
    .name = "sleeper-ends",
    .claim = "the same with one who ends",
    .set_up = {fall_asleep, free_long_ago},
    .run = {model_thread_exit, hand_on},
    .check = kit_is_sound,
};

/* ---- memory is short: free blocks of every slab become any thread's ---- */

static void share(void) {
    hak_reclaim_blocks(hak_heap_attach());
}

const struct model_scenario model_share_takes = {
    .name = "share-takes",
    .claim = "an owner in need of a block while his slabs are shared gets one, whoever has the slab then",
    .set_up = {fall_asleep, free_long_ago},
    .run = {wake_and_take, share},
    .check = kit_is_sound,
};

const struct model_scenario model_share_frees = {
    .name = "share-frees",
    .claim =
        "a block freed into a slab that its owner takes up and another shares is counted where it is then",
    .set_up = {fall_asleep, free_long_ago, attach},
    .run = {wake, share, free_second},
    .check = kit_is_sound,
};
