/*
 * lists.c - orphans and adoption, a heap's slabs with remote frees, threads that end and begin.
 */
#include "floor/floor.h"
#include "heap/heap.h"
#include "heap/supply.h"
#include "scenarios/kit.h"
#include "scenarios/list.h"
#include "slab/orphans.h"

static struct block_ref refs[2 * KIT_BLOCKS + 1];
static struct block_ref taken[3];

static void refill_first(void) {
    kit_refill(&taken[0]);
}

static void refill_second(void) {
    kit_refill(&taken[1]);
}

static void free_first(void) {
    kit_free(&refs[0]);
}

static void free_second(void) {
    kit_free(&refs[1]);
}

/* A slab of which two blocks are free is an orphan. */
static void leave_an_orphan(void) {
    kit_take(KIT_CLASS, refs, KIT_BLOCKS);
    kit_return(&refs[KIT_BLOCKS - 2], 2);
    hak_supply_flush(hak_heap_attach(), KIT_CLASS);
}

static void one_block_each(void) {
    MODEL_CHECK(taken[0].block != taken[1].block);
    kit_is_sound();
}

const struct model_scenario model_orphan_adopt = {
    .name = "orphan-adopt",
    .claim = "two threads that want an orphan: one adopts it, each gets a block of its own",
    .set_up = {leave_an_orphan, kit_attach, kit_attach},
    .run = {refill_first, refill_second},
    .check = one_block_each,
};

const struct model_scenario model_orphan_free = {
    .name = "orphan-free",
    .claim = "frees into an orphan while it is adopted are counted where it is then",
    .set_up = {leave_an_orphan, kit_attach, kit_attach},
    .run = {refill_first, free_first, free_second},
    .check = kit_is_sound,
};

/* ---- a thread ends ---- */

static void own_two_slabs(void) {
    kit_take(KIT_CLASS, refs, KIT_BLOCKS + 1);
}

const struct model_scenario model_thread_exit_free = {
    .name = "thread-exit",
    .claim = "blocks freed while their owner ends are found by whoever comes next, in a list that is open",
    .set_up = {own_two_slabs, kit_attach},
    .run = {model_thread_exit, free_first},
    .check = kit_is_sound,
};

/* ---- the owner's list ---- */

static void fill_two_slabs(void) {
    kit_take_of_two_slabs(refs, 2 * KIT_BLOCKS + 1); /* one more, so that both are exhausted and nowhere */
}

static void drain(void) {
    hak_supply_drain_remote(hak_heap_attach());
}

const struct model_scenario model_remote_list = {
    .name = "remote-list",
    .claim = "two slabs put into their owner's list while he takes them up: each is in it or with him",
    .set_up = {fill_two_slabs, kit_attach, kit_attach},
    .run = {drain, free_first, free_second},
    .check = kit_is_sound,
};

/* ---- a heap is born ---- */

/* The first operation of this thread: its heap gets a number, adopts the orphan, and exhausts it. */
static void take_over(void) {
    kit_take(KIT_CLASS, taken, 3);
}

const struct model_scenario model_heap_birth = {
    .name = "heap-birth",
    .claim = "who frees into a slab that a new heap just adopted finds that heap by its number",
    .set_up = {leave_an_orphan},
    .run = {free_first, take_over},
    .check = kit_is_sound,
};

const struct model_scenario model_heap_birth_frees = {
    .name = "heap-birth-frees",
    .claim = "the same with two that free",
    .set_up = {leave_an_orphan, NULL, kit_attach},
    .run = {free_first, take_over, free_second},
    .check = kit_is_sound,
    .is_deep = true,
};

/* What reports and verification do. */
static void walk_heaps(void) {
    for (uint32_t id = 1; id <= hak_heap_last_id(); id++) {
        const struct heap *heap = hak_heap_by_id(id);
        MODEL_CHECK(heap == NULL || heap->id == id);
    }
}

const struct model_scenario model_heap_table = {
    .name = "heap-table",
    .claim = "who finds a heap in the table finds it filled in",
    .set_up = {kit_attach},
    .run = {walk_heaps, kit_attach, kit_attach},
};

/* ---- whoever lists a slab, or takes it up, finds all its blocks free ---- */

/* Two blocks of a slab were ever handed out, one is live; this thread leases it by its hint. */
static void carve_two(void) {
    kit_take(KIT_CLASS, refs, 2);
    kit_return(&refs[1], 1);
}

/* Takes another block, frees it, and gives the slab up to the orphans. */
static void carve_on_and_orphan(void) {
    struct heap *heap = hak_heap_attach();
    struct block_ref more[2];
    MODEL_CHECK(hak_supply_take(heap, KIT_CLASS, more, 2) == 2);
    kit_return(more, 2);
    hak_supply_flush(heap, KIT_CLASS);
}

/* The same; what it takes then may lie in the units of the slab that it retired, with the same header map. */
static void orphan_and_go_on(void) {
    struct block_ref next;
    carve_on_and_orphan();
    kit_refill(&next);
}

const struct model_scenario model_orphan_complete = {
    .name = "orphan-complete",
    .claim = "the free that completes a slab while it becomes an orphan retires it, or who lists it does",
    .set_up = {carve_two, kit_attach},
    .run = {orphan_and_go_on, free_first},
    .check = kit_is_sound,
};

/* The side of the first heap, where there are two, is a list that the second one brings along. */
const struct model_scenario model_orphan_side = {
    .name = "orphan-side",
    .claim = "who leaves an orphan on the side that a new heap has opened finds the list open",
    .set_up = {carve_two},
    .run = {carve_on_and_orphan, kit_attach},
    .check = kit_is_sound,
};

static void exhaust_two(void) {
    struct block_ref of_other[KIT_BLOCKS];
    kit_take(KIT_CLASS, refs, KIT_BLOCKS);
    kit_take(KIT_CLASS, of_other, KIT_BLOCKS);
}

/* The first lists the slab with its owner, the rest completes it. */
static void free_one_then_all(void) {
    kit_free(&refs[0]);
    for (unsigned i = 1; i < KIT_BLOCKS; i++) {
        kit_use(&refs[i]);
    }
    kit_return(&refs[1], KIT_BLOCKS - 1);
}

/* As orphan_and_go_on(). */
static void drain_and_go_on(void) {
    struct block_ref next;
    drain();
    kit_refill(&next);
}

const struct model_scenario model_drain_complete = {
    .name = "drain-complete",
    .claim = "an owner that takes up a slab all of whose blocks are freed meanwhile retires it, or they do",
    .set_up = {exhaust_two, kit_attach},
    .run = {drain_and_go_on, free_one_then_all},
    .check = kit_is_sound,
};
