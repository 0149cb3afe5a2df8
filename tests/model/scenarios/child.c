/*
 * child.c - the child of a fork: its threads find the heap put right, by whichever of them comes first.
 */
#include "heap/child.h"
#include "heap/heap.h"
#include "heap/supply.h"
#include "scenarios/kit.h"
#include "scenarios/list.h"

static struct block_ref refs[KIT_BLOCKS];
static struct block_ref lost[2];
static struct block_ref taken[MODEL_THREADS_MAX];

static void take_some(void) {
    kit_take(KIT_CLASS, refs, 2);
}

/* Another thread of the parent, with blocks in its cache and a slab leased. */
static void take_and_vanish(void) {
    kit_take(KIT_CLASS, lost, 2);
    struct block_ref cached;
    MODEL_CHECK(hak_supply_take(hak_heap_attach(), KIT_CLASS, &cached, 1) == 1);
    (void)hak_slab_lease_any(kit_slab(&lost[0]));
}

static void begin(void) {
    hak_child_begin();
}

static void fork_now(void) {
    model_as(0, take_some);
    model_as(3, take_and_vanish);
    model_as(0, begin);
}

static void allocate(void) {
    hak_child_rebuild_if_pending();
    kit_take(KIT_CLASS, &taken[model_thread()], 1);
    kit_use(&taken[model_thread()]);
}

const struct model_scenario model_child_rebuild = {
    .name = "child-rebuild",
    .claim = "two threads of a child: one rebuilds, the other waits for it, both find the heap right",
    .prepare = fork_now,
    .run = {allocate, allocate},
    .check = kit_is_sound,
};
