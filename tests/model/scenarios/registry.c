/*
 * registry.c - what is entered without a lock for readers: leaves and words of the registry, the table of
 * SuperSlabs.
 */
#include "meta/registry.h"
#include "heap/heap.h"
#include "meta/classes.h"
#include "scenarios/kit.h"
#include "scenarios/list.h"
#include "slab/superslab.h"

#define NUMBER(i) hak_word_for_number(HAK_KIND_LARGE_FREED, 7u + (i))

static _Atomic(char *) handed_over;

static char *own_unit(void) {
    size_t bytes;
    char *pool = model_pool(&bytes);
    return pool + bytes * model_thread() + bytes / 2;
}

static void fill_rows(void) {
    hak_registry_init();
}

static void enter_unit(void) {
    char *unit = own_unit();
    MODEL_CHECK(hak_registry_prepare(unit, HAK_UNIT_BYTES) == 0);
    hak_registry_store(unit, NUMBER(model_thread()));
    MODEL_CHECK(hak_registry_word(unit) == NUMBER(model_thread()));
    if (model_thread() == 0) {
        /* release: the program's own synchronisation */
        hak_atomic_store_release(&handed_over, unit);
    }
}

/* What was handed over is found; a wild pointer, low in the address space, is never taken for another one. */
static void look_up(void) {
    const char *low = (const char *)((uintptr_t)own_unit() & UINT32_MAX) - model_thread();
    size_t bytes;
    const char *first = model_pool(&bytes) + bytes / 2;
    MODEL_CHECK(hak_registry_word((const char *)((uintptr_t)first & UINT32_MAX)) == 0);
    MODEL_CHECK(hak_registry_word(low) == 0);
    /* acquire: the program's own synchronisation */
    const char *unit = hak_atomic_load_acquire(&handed_over);
    if (unit != NULL) {
        MODEL_CHECK(hak_registry_word(unit) == NUMBER(0u));
    }
    hak_word word = hak_registry_word(first);
    MODEL_CHECK(word == 0 || word == NUMBER(0u));
}

const struct model_scenario model_registry_home = {
    .name = "registry-home",
    .claim =
        "two threads that enter the first leaf agree on it; look-ups beside it find all that they may know",
    .set_up = {fill_rows},
    .run = {enter_unit, enter_unit, look_up},
};

/* The home is elsewhere, so that this leaf is mapped. */
static void settle_elsewhere(void) {
    hak_registry_init();
    MODEL_CHECK(hak_registry_prepare((const void *)((uintptr_t)1 << 40), HAK_UNIT_BYTES) == 0);
}

const struct model_scenario model_registry_leaf = {
    .name = "registry-leaf",
    .claim = "two threads that map one leaf agree on it; look-ups beside it find all that they may know",
    .set_up = {settle_elsewhere},
    .run = {enter_unit, enter_unit, look_up},
};

static void prepare_unit(void) {
    hak_registry_init();
    MODEL_CHECK(hak_registry_prepare(own_unit(), HAK_UNIT_BYTES) == 0);
}

static void enter_and_remove(void) {
    char *unit = own_unit();
    hak_registry_store(unit, NUMBER(0u));
    /* release: the program's own synchronisation */
    hak_atomic_store_release(&handed_over, unit);
    hak_registry_store(unit, NUMBER(5u));
    hak_registry_store(unit, 0);
}

/* Who was handed the unit sees its word or a later one, and never an earlier one again. */
static void follow(void) {
    /* acquire: the program's own synchronisation */
    const char *unit = hak_atomic_load_acquire(&handed_over);
    if (unit != NULL) {
        hak_word first = hak_registry_word(unit);
        hak_word second = hak_registry_word(unit);
        MODEL_CHECK(first == NUMBER(0u) || first == NUMBER(5u) || first == 0);
        MODEL_CHECK(!(first == NUMBER(5u) && second == NUMBER(0u)) && !(first == 0 && second != 0));
    }
}

const struct model_scenario model_registry_words = {
    .name = "registry-words",
    .claim = "a look-up beside insertion and removal sees the word of a moment that is not past",
    .set_up = {prepare_unit},
    .run = {enter_and_remove, follow, follow},
};

#define SLAB_WORD hak_word_for_slab(3, 0, NULL, 1)

static void enter_slab(void) {
    char *unit = own_unit();
    hak_registry_store(unit, SLAB_WORD);
    /* release: the program's own synchronisation */
    hak_atomic_store_release(&handed_over, unit);
}

/* Who was handed a block has what to divide its offset by. */
static void find_slab(void) {
    /* acquire: the program's own synchronisation */
    const char *unit = hak_atomic_load_acquire(&handed_over);
    if (unit != NULL) {
        struct hak_at at = hak_registry_at(&hak_registry, unit);
        MODEL_CHECK(at.word == SLAB_WORD &&
                    at.reciprocal >> 32 == hak_reciprocal_upper(hak_class_reciprocal(3)));
    }
}

const struct model_scenario model_registry_reciprocals = {
    .name = "registry-reciprocals",
    .claim = "who is handed a block of a slab finds the class's reciprocal beside the unit's word",
    .set_up = {prepare_unit},
    .run = {enter_slab, find_slab},
};

/* Stores a word only where that needs no memory. */
static void enter_if_prepared(void) {
    char *unit = own_unit();
    if (hak_registry_is_prepared(unit)) {
        hak_registry_store(unit, NUMBER(model_thread()));
        MODEL_CHECK(hak_registry_word(unit) == NUMBER(model_thread()));
    }
}

const struct model_scenario model_registry_prepared = {
    .name = "registry-prepared",
    .claim = "who is told that another thread has mapped a leaf finds the words he stores in it",
    .set_up = {settle_elsewhere},
    .run = {enter_unit, enter_if_prepared},
};

/* ---- the table of SuperSlabs ---- */

static void map_one(void) {
    uint32_t zero_units;
    MODEL_CHECK(hak_superslab_take_whole(&zero_units) != NULL);
}

static void have_one(void) {
    hak_registry_init();
    map_one();
}

static void walk(void) {
    struct superslab *superslab;
    for (size_t i = 0; (superslab = hak_superslab_at(i)) != NULL; i++) {
        MODEL_CHECK(superslab->slabs[5].unit_idx == 5);
    }
}

const struct model_scenario model_record_table = {
    .name = "record-table",
    .claim = "who finds a SuperSlab's record in the table finds it filled in",
    .set_up = {have_one},
    .run = {map_one, walk, map_one},
};
