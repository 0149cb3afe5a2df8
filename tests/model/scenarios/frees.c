/*
 * frees.c - remote frees against the owner's sweep, and against each other.
 */
#include "heap/front.h"
#include "heap/homeward.h"
#include "heap/supply.h"
#include "scenarios/kit.h"
#include "scenarios/list.h"
#include "slab/purge.h"

static struct block_ref refs[KIT_BLOCKS];
static struct block_ref taken[2];
static unsigned taken_count;

static void fill_a_slab(void) {
    kit_take(KIT_CLASS, refs, KIT_BLOCKS);
}

static void free_first(void) {
    kit_free(&refs[0]);
}

static void free_second(void) {
    kit_free(&refs[1]);
}

/* The owner's refill: what it gets is its own. */
static void refill(void) {
    struct heap *heap = hak_heap_attach();
    taken_count = hak_supply_take(heap, KIT_CLASS, taken, 1);
    MODEL_CHECK(taken_count == 1);
    kit_use(&taken[0]);
}

const struct model_scenario model_remote_free = {
    .name = "remote-free",
    .claim =
        "a block freed remotely reaches the owner's refill with all its last user wrote, or stays listed",
    .set_up = {fill_a_slab, kit_attach},
    .run = {refill, free_first},
    .check = kit_is_sound,
};

/* One more block than the slab has: it is exhausted, and nowhere until something in it is freed. */
static void exhaust_a_slab(void) {
    struct block_ref next;
    fill_a_slab();
    kit_take(KIT_CLASS, &next, 1);
}

static void free_two(void) {
    kit_free(&refs[0]);
    kit_free(&refs[1]);
}

static void drain_and_refill(void) {
    struct heap *heap = hak_heap_attach();
    hak_supply_drain_remote(heap);
    refill();
}

const struct model_scenario model_remote_listing = {
    .name = "remote-listing",
    .claim =
        "the first free of an exhausted slab lists it with its owner, the second finds it listed or taken",
    .set_up = {exhaust_a_slab, kit_attach},
    .run = {drain_and_refill, free_two},
    .check = kit_is_sound,
};

const struct model_scenario model_remote_frees = {
    .name = "remote-frees",
    .claim = "two remote frees and the owner's refill: none is lost, none is handed out twice",
    .set_up = {fill_a_slab, kit_attach, kit_attach},
    .run = {refill, free_first, free_second},
    .check = kit_is_sound,
};

/* ---- retirement ---- */

/* All but two blocks are free, and the slab is a warm hint of its owner. */
static void leave_two(void) {
    fill_a_slab();
    kit_return(&refs[2], KIT_BLOCKS - 2);
}

/* The stale hint, while others free the last blocks: the slab is the owner's, or gone, never both. */
static void refill_by_hint(void) {
    refill();
    MODEL_CHECK(kit_slab(&taken[0])->class_idx == KIT_CLASS);
}

const struct model_scenario model_retire = {
    .name = "retire",
    .claim = "of the frees that complete a slab one retires it, once, unless its owner takes of it first",
    .set_up = {leave_two, kit_attach, kit_attach},
    .run = {refill_by_hint, free_first, free_second},
    .check = kit_is_sound,
};

static struct block_ref other[1];

static void free_both(void) {
    kit_use(&refs[0]);
    kit_use(&refs[1]);
    kit_return(refs, 2);
}

/* The units of a slab that may just have been retired become one of another class. */
static void take_another_class(void) {
    kit_take(KIT_CLASS - 1, other, 1);
    kit_use(&other[0]);
}

const struct model_scenario model_retire_reuse = {
    .name = "retire-reuse",
    .claim = "a hint to a slab that was retired and is another class's by now is dropped",
    .set_up = {leave_two, kit_attach, kit_attach},
    .run = {refill_by_hint, free_both, take_another_class},
    .check = kit_is_sound,
};

/* ---- the gates ---- */

static _Atomic(void *) handed_over;

static void attach_and_hold_one(void) {
    kit_take(KIT_CLASS, refs, 1);
}

static void allocate_and_hand_over(void) {
    void *block = hak_alloc_gate(8000);
    MODEL_CHECK(block != NULL);
    *(unsigned *)block = 1;
    /* release: the program's own synchronisation */
    hak_atomic_store_release(&handed_over, block);
    void *next = hak_alloc_gate(8000);
    MODEL_CHECK(next != NULL);
    ++*(unsigned *)next;
}

static void free_what_comes(void) {
    /* acquire: the program's own synchronisation */
    void *block = hak_atomic_load_acquire(&handed_over);
    if (block != NULL) {
        ++*(unsigned *)block;
        hak_free_gate(block, "free()");
        hak_homeward_flush(hak_tls.heap);
    }
}

const struct model_scenario model_far_free = {
    .name = "far-free",
    .claim = "a block that another thread frees by the gate goes home in its batch, and its owner may get it",
    .set_up = {attach_and_hold_one, kit_attach},
    .run = {allocate_and_hand_over, free_what_comes},
    .check = kit_is_sound,
};

/* ---- frees that are not counted yet: the owner's sweep finds them all the same ---- */

/* One block is free and counted, so that the owner's refill looks for more. */
static void leave_one_counted(void) {
    fill_a_slab();
    kit_return(&refs[KIT_BLOCKS - 1], 1);
}

static void sweep_two_of(unsigned class_idx) {
    taken_count = hak_supply_take(hak_heap_attach(), class_idx, taken, 2);
    MODEL_CHECK(taken_count != 0);
    for (unsigned i = 0; i < taken_count; i++) {
        kit_use(&taken[i]);
    }
}

static void sweep_two(void) {
    sweep_two_of(KIT_CLASS);
}

static void free_by_gate(void) {
    kit_use(&refs[0]);
    hak_free_gate(refs[0].block, "free()");
}

static void free_at_once(void) {
    struct heap *heap = hak_heap_attach();
    kit_use(&refs[0]);
    (void)hak_block_return(refs[0], heap->id, hak_heap_handle_event, heap);
    hak_purge_pay();
}

/* The same in a slab of sixteen blocks: what is freed lies in the second word of its headers. */
static struct block_ref many[KIT_BLOCKS_MANY];

static void leave_one_of_many_counted(void) {
    kit_take(KIT_CLASS_MANY, many, KIT_BLOCKS_MANY);
    if (many[0].header > many[KIT_BLOCKS_MANY - 1].header) {
        struct block_ref swap = many[0];
        many[0] = many[KIT_BLOCKS_MANY - 1];
        many[KIT_BLOCKS_MANY - 1] = swap;
    }
    kit_return(&many[0], 1);
}

static void sweep_two_of_many(void) {
    sweep_two_of(KIT_CLASS_MANY);
}

static void free_last_by_gate(void) {
    kit_use(&many[KIT_BLOCKS_MANY - 1]);
    hak_free_gate(many[KIT_BLOCKS_MANY - 1].block, "free()");
}

static void be_metered(void) {
    hak_front_set_modes(HAK_FRONT_METERED, 0);
}

static void be_release(void) {
    model_is_release = true;
}

const struct model_scenario model_far_sweep = {
    .name = "far-sweep",
    .claim = "a block that another thread freed by the gate is the owner's with all its last user wrote",
    .set_up = {leave_one_counted, kit_attach},
    .run = {sweep_two, free_by_gate},
    .check = kit_is_sound,
};

const struct model_scenario model_far_sweep_release = {
    .name = "far-sweep-release",
    .claim = "the same in the release flavour, which does not tell two frees apart",
    .prepare = be_release,
    .set_up = {leave_one_counted, kit_attach},
    .run = {sweep_two, free_by_gate},
    .check = kit_is_sound,
};

const struct model_scenario model_far_sweep_metered = {
    .name = "far-sweep-metered",
    .claim = "the same where every operation takes the slow path",
    .prepare = be_metered,
    .set_up = {leave_one_counted, kit_attach},
    .run = {sweep_two, free_by_gate},
    .check = kit_is_sound,
};

const struct model_scenario model_far_sweep_many = {
    .name = "far-sweep-many",
    .claim = "the same for each of the words in which headers are read",
    .set_up = {leave_one_of_many_counted, kit_attach},
    .run = {sweep_two_of_many, free_last_by_gate},
    .check = kit_is_sound,
};

const struct model_scenario model_cold_sweep = {
    .name = "cold-sweep",
    .claim = "a block that goes home alone, past a cold class's cache, likewise, before it is counted too",
    .set_up = {leave_one_counted, kit_attach},
    .run = {sweep_two, free_at_once},
    .check = kit_is_sound,
};
