/*
 * guests.c - blocks of a larger class in the holes of slabs (slab/guests.h): freed, while others take what
 * lies beneath them, count, retire, verify.
 */
#include "slab/guests.h"
#include "floor/floor.h"
#include "heap/front.h"
#include "heap/supply.h"
#include "scenarios/kit.h"
#include "scenarios/list.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "slab/thin.h"

#define HOST_CLASS   KIT_CLASS_MANY
#define HOST_BLOCKS  KIT_BLOCKS_MANY
#define GUEST_CLASS  (KIT_CLASS + 1) /* 9 KiB, the largest of those that may be guests */
#define GUEST_BLOCKS 3u              /* that it covers */

static struct slab *host;         /* the first one that a search comes to */
static struct slab *another_host; /* where a search that finds no row in that one ends */
static struct block_ref guest;    /* the program's: the first blocks of the host */
static struct block_ref taken[4];
static unsigned taken_count;

static struct block_ref block_of(const struct slab *slab, unsigned block_idx) {
    return (struct block_ref){.block = (void *)(slab->base + block_idx * hak_class_block_bytes[HOST_CLASS]),
                              .header = &slab->map[block_idx]};
}

static void free_block(const struct slab *slab, unsigned block_idx) {
    struct block_ref ref = block_of(slab, block_idx);
    kit_free(&ref);
}

/* The program writes to each block that the guest covers. */
static void use_guest(const struct block_ref *ref) {
    for (unsigned i = 0; i < GUEST_BLOCKS; i++) {
        struct block_ref covered = {.block = (char *)ref->block + i * hak_class_block_bytes[HOST_CLASS]};
        kit_use(&covered);
    }
}

static void take_guest(struct block_ref *ref) {
    struct heap *heap = hak_heap_attach();
    MODEL_CHECK(hak_guests_take(GUEST_CLASS, heap->id, ref, 1, hak_heap_handle_event, heap) == 1);
    use_guest(ref);
}

static void free_blocks(const struct slab *slab, unsigned first, unsigned end) {
    for (unsigned i = first; i < end; i++) {
        free_block(slab, i);
    }
}

/* Two slabs with free blocks in a row: an orphan, and another one or, so that none but this thread has it, a
 * slab of this heap's; it has taken of a third one since. */
static void leave_holes(unsigned free_in_host, bool is_own) {
    struct block_ref refs[2 * HOST_BLOCKS + 1];
    kit_take(HOST_CLASS, refs, is_own ? 2 * HOST_BLOCKS + 1 : 2 * HOST_BLOCKS);
    host = kit_slab(&refs[0]);
    another_host = kit_slab(&refs[HOST_BLOCKS]);
    MODEL_CHECK(host < another_host);
    free_blocks(host, 0, free_in_host);
    hak_supply_flush(hak_heap_attach(), HOST_CLASS);
    free_blocks(another_host, HOST_BLOCKS - GUEST_BLOCKS, HOST_BLOCKS);
    if (!is_own) {
        hak_supply_flush(hak_heap_attach(), HOST_CLASS);
    }
    hak_atomic_store_relaxed(&hak_thin_matters, true); /* relaxed: before the threads */
    model_ms_per_look = 1200;                          /* a count that is wrong is not looked at for ever */
    model_free_looks = 2;
}

/* Both are orphans; in the first a guest is live, with one free block behind it and two that are alone. */
static void leave_guest(void) {
    leave_holes(GUEST_BLOCKS + 1, false);
    free_block(host, GUEST_BLOCKS + 2);
    free_block(host, GUEST_BLOCKS + 4);
    take_guest(&guest);
    MODEL_CHECK(guest.header == &host->map[0]);
    hak_cached_to_live(guest.header, HAK_HEADER_LIVE + GUEST_CLASS);
}

static void free_guest(void) {
    use_guest(&guest);
    hak_free_gate(guest.block, "free()");
}

static void take_other_guest(void) {
    take_guest(&taken[0]);
}

const struct model_scenario model_guest_free = {
    .name = "guest-free",
    .claim = "a guest that is freed: of what it covered another guest gets what is free, and as it was left",
    .set_up = {leave_guest, kit_attach},
    .run = {take_other_guest, free_guest},
    .check = kit_is_sound,
};

/* A refill of the host's own class. */
static unsigned take_blocks(struct block_ref *refs, unsigned want) {
    unsigned count = hak_supply_take(hak_heap_attach(), HOST_CLASS, refs, want);
    MODEL_CHECK(count != 0);
    for (unsigned i = 0; i < count; i++) {
        kit_use(&refs[i]);
    }
    return count;
}

/* Takes blocks of the host's own class out of it, and gives them back: they are no guest. */
static void sweep_and_return(void) {
    kit_return(taken, take_blocks(taken, 4));
}

const struct model_scenario model_guest_sweep = {
    .name = "guest-sweep",
    .claim = "a guest that is freed: a refill gets the blocks that it covered one by one, as they are left",
    .set_up = {leave_guest, kit_attach},
    .run = {sweep_and_return, free_guest},
    .check = kit_is_sound,
};

/* ---- counts ---- */

/* The guest and one block more are all that is live in the host. */
static void leave_guest_and_one(void) {
    leave_guest();
    hak_atomic_store_relaxed(&hak_thin_matters, false); /* relaxed: before the threads */
    free_block(host, GUEST_BLOCKS + 1);
    free_block(host, GUEST_BLOCKS + 3);
    free_blocks(host, GUEST_BLOCKS + 5, HOST_BLOCKS - 1);
}

static void free_last_block(void) {
    free_block(host, HOST_BLOCKS - 1);
}

static void is_retired(void) {
    /* relaxed: after the threads */
    MODEL_CHECK(!hak_slab_word_is_assigned(hak_atomic_load_relaxed(&host->word)));
    kit_is_sound();
}

const struct model_scenario model_guest_retire = {
    .name = "guest-retire",
    .claim = "of two threads that free the last guest and the last block of a slab one retires it, once",
    .set_up = {leave_guest_and_one, kit_attach},
    .run = {free_guest, free_last_block},
    .check = is_retired,
};

static void leave_orphan_and_own(void) {
    leave_holes(GUEST_BLOCKS + 3, true);
}

/* None if the orphan that is left has just been taken: a search needs one. */
static void take_a_guest_if_any(void) {
    struct heap *heap = hak_heap_attach();
    taken_count = hak_guests_take(GUEST_CLASS, heap->id, taken, 1, hak_heap_handle_event, heap);
    if (taken_count != 0) {
        use_guest(&taken[0]);
    }
}

/* Adopts the orphan, and uses its hint to it, which somebody may have leased meanwhile. */
static void adopt_and_refill(void) {
    take_blocks(&taken[1], 1);
    take_blocks(&taken[2], 1);
}

/* Nobody has kept the lease of a slab. */
static void nothing_is_leased(void) {
    struct slab *slab;
    for (size_t i = 0; (slab = hak_slab_at(i)) != NULL; i++) {
        MODEL_CHECK(
            !hak_slab_word_is_leased(hak_atomic_load_relaxed(&slab->word))); /* relaxed: the last one */
    }
    kit_is_sound();
}

const struct model_scenario model_guest_hint = {
    .name = "guest-hint",
    .claim = "a slab that is adopted while guests are taken out of it: its count is right, it is found again",
    .set_up = {leave_orphan_and_own, kit_attach},
    .run = {take_a_guest_if_any, adopt_and_refill},
    .check = nothing_is_leased,
};

static void free_a_block(void) {
    free_block(host, HOST_BLOCKS - 1);
}

static void free_another_block(void) {
    free_block(host, HOST_BLOCKS - 2);
}

static void leave_orphans(void) {
    leave_holes(GUEST_BLOCKS + 1, false);
}

const struct model_scenario model_guest_release = {
    .name = "guest-release",
    .claim = "guests are taken out of a slab while two threads free blocks of it: its count is right",
    .set_up = {leave_orphans, kit_attach, kit_attach},
    .run = {take_other_guest, free_a_block, free_another_block},
    .check = kit_is_sound,
};

/* ---- verification ---- */

static void verify(void) {
    kit_is_sound();
}

const struct model_scenario model_guest_verify = {
    .name = "guest-verify",
    .claim = "verification beside the free of a guest finds nothing broken",
    .set_up = {leave_guest, kit_attach},
    .run = {verify, free_guest},
    .check = kit_is_sound,
};
