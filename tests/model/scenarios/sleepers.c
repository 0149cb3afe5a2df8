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
static struct heap *sleeper;

/* Three slabs, all exhausted, two of them nowhere; refs[0] and refs[1] lie in one of those each. */
static void fall_asleep(void) {
    sleeper = hak_heap_attach();
    kit_take_of_two_slabs(refs, 3 * KIT_BLOCKS);
}

static void free_second(void) {
    kit_free(&refs[1]);
}

/* The first slab waits for long in the sleeper's list; this thread is the next to look. */
static void free_long_ago(void) {
    kit_free(&refs[0]);
    MODEL_CHECK(!hak_slab_list_looks_empty(&sleeper->remote));
    hak_atomic_store_relaxed(&sleeper->remote_waits_since_ms, 1); /* relaxed: nobody else yet */
    hak_heap_attach()->looked_at = sleeper->id - 1;
}

static void hand_on(void) {
    (void)hak_sleepers_hand_on(hak_heap_attach());
}

static void wake(void) {
    hak_supply_drain_remote(sleeper);
}

/* Nobody has a slab with free blocks: the owner looks at his list, others look at it before a new slab. */
static void refill(void) {
    struct block_ref ref;
    kit_refill(&ref);
}

const struct model_scenario model_sleeper_wakes = {
    .name = "sleeper-wakes",
    .claim = "an owner who comes back while his list is handed on: each slab is with him or an orphan",
    .set_up = {fall_asleep, free_long_ago, kit_attach},
    .run = {wake, hand_on, free_second},
    .check = kit_is_sound,
};

const struct model_scenario model_sleeper_takes = {
    .name = "sleeper-takes",
    .claim = "the same with both in need of a block: each gets one of its own",
    .set_up = {fall_asleep, free_long_ago},
    .run = {refill, refill},
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
    .run = {refill, share},
    .check = kit_is_sound,
};

const struct model_scenario model_share_frees = {
    .name = "share-frees",
    .claim =
        "a block freed into a slab that its owner takes up and another shares is counted where it is then",
    .set_up = {fall_asleep, free_long_ago, kit_attach},
    .run = {wake, share, free_second},
    .check = kit_is_sound,
};
