/*
 * orphans.c - see orphans.h.
 */
#include "slab/orphans.h"
#include "base/bits.h"
#include "slab/ragged.h"
#include "slab/slab_word.h"

/* The sparse ones and side 0, which every process has, and those that threads bring along. */
#define LISTS_OF_ALL  (2 * HAK_CLASS_COUNT)
#define LISTS_OF_MANY ((HAK_ORPHAN_SIDES_MAX - 1) * HAK_CLASS_COUNT)

HAK_CONTENDED static struct slab_list lists_of_all[LISTS_OF_ALL] = {
    [0 ... LISTS_OF_ALL - 1] = {.lock = HAK_LOCK_INIT(HAK_RANK_SLAB_LIST), .is_open = true}};
static HAK_TABLE _Alignas(HAK_CACHE_LINE_BYTES) struct slab_list lists_of_many[LISTS_OF_MANY];

_Static_assert(HAK_CLASS_COUNT * sizeof(struct slab_list) % HAK_CACHE_LINE_BYTES == 0,
               "no line is of two sides: threads of one would wait for those of the other");

HAK_READ_MOSTLY _Atomic unsigned hak_orphan_sides_now = 1;

HAK_READ_MOSTLY static _Atomic unsigned groups_now = HAK_ORPHAN_GROUPS_MIN;

_Static_assert((HAK_ORPHAN_SIDES_MAX & (HAK_ORPHAN_SIDES_MAX - 1)) == 0, "a heap's side is its lowest bits");
_Static_assert((HAK_ORPHAN_GROUPS_MIN & (HAK_ORPHAN_GROUPS_MIN - 1)) == 0,
               "and its group the lowest of these");
_Static_assert(HAK_WORD_TAGS % HAK_ORPHAN_SIDES_MAX == 0, "a heap and its tag are on one side");

struct slab_list *hak_orphans_at(unsigned list_idx) {
    return list_idx < LISTS_OF_ALL ? &lists_of_all[list_idx] : &lists_of_many[list_idx - LISTS_OF_ALL];
}

static void open_lists(unsigned first, unsigned end) {
    for (unsigned i = first; i < end; i++) {
        hak_orphans_at(i)->lock.rank = HAK_RANK_SLAB_LIST;
        hak_orphans_at(i)->is_open = true;
    }
}

void hak_orphans_note_heaps(uint32_t heaps) {
    unsigned before = hak_orphan_sides();
    unsigned sides = before;
    while (sides < heaps && sides < HAK_ORPHAN_SIDES_MAX) {
        sides *= 2;
    }
    if (sides != before) {
        open_lists((before + 1) * HAK_CLASS_COUNT, (sides + 1) * HAK_CLASS_COUNT);
        /* release: pairs with the acquire in hak_orphan_sides(): who sees the lists finds them open */
        hak_atomic_store_release(&hak_orphan_sides_now, sides);
    }
}

static HAK_COLD void double_groups(struct slab_list *list) {
    unsigned groups = hak_atomic_load_relaxed(&groups_now); /* relaxed: an order of looking, here and below */
    if (groups < HAK_ORPHAN_SIDES_MAX && hak_slab_list_tell_crowded(list)) {
        hak_atomic_store_relaxed(&groups_now, 2 * groups); /* relaxed: as above */
    }
}

static enum hak_slab_event push(struct slab_list *list, struct slab *slab) {
    enum hak_slab_event event = HAK_EVENT_NONE;
    do {
        (void)hak_slab_list_push(list, slab, HAK_OWNER_NOBODY, &event);
    } while (hak_ragged_or_thin_enter(slab, event));
    return event;
}

enum hak_slab_event hak_orphans_push(struct slab *slab) {
    unsigned tag = hak_word_tag(hak_registry_word((const void *)slab->base));
    return push(hak_orphans_of(slab->class_idx, hak_orphan_side_of(tag)), slab);
}

enum hak_slab_event hak_sparse_push(struct slab *slab) {
    return push(hak_sparse_of(slab->class_idx), slab);
}

/*
 * An orphan of some side. All sides with the same `group_bits` lowest bits are a group: the members of the
 * heap's own group come first, then those of the next one.
 */
static struct slab *pop_of_sides(unsigned class_idx, uint32_t heap_id, unsigned side_bits,
                                 unsigned group_bits) {
    unsigned member_bits = side_bits - group_bits;
    for (unsigned i = 0; i >> side_bits == 0; i++) {
        unsigned group = (heap_id + (i >> member_bits)) & hak_mask32(group_bits);
        unsigned member = i & hak_mask32(member_bits);
        struct slab_list *list = hak_orphans_of(class_idx, group | member << group_bits);
        struct slab *slab = hak_slab_list_pop(list);
        if (member_bits != 0 && HAK_UNLIKELY(hak_slab_list_is_crowded(list))) {
            double_groups(list);
        }
        if (slab != NULL) {
            return slab;
        }
    }
    return NULL;
}

struct slab *hak_orphans_pop(unsigned class_idx, uint32_t heap_id, bool produces_only) {
    unsigned side_bits = hak_ctz32(hak_orphan_sides());
    unsigned group_bits =
        hak_ctz32(hak_atomic_load_relaxed(&groups_now)); /* relaxed: as in double_groups() */
    group_bits = produces_only && group_bits < side_bits ? group_bits : side_bits;
    struct slab *slab = pop_of_sides(class_idx, heap_id, side_bits, group_bits);
    return slab != NULL ? slab : hak_slab_list_pop(hak_sparse_of(class_idx));
}

bool hak_orphans_look_empty(unsigned class_idx) {
    bool is_empty = hak_slab_list_looks_empty(hak_sparse_of(class_idx));
    unsigned sides = hak_orphan_sides();
    for (unsigned side = 0; side < sides && is_empty; side++) {
        is_empty = hak_slab_list_looks_empty(hak_orphans_of(class_idx, side));
    }
    return is_empty;
}

bool hak_orphans_below(unsigned class_idx) {
    bool is_empty = true;
    for (unsigned c = 0; c < class_idx && is_empty; c++) {
        is_empty = hak_orphans_look_empty(c);
    }
    return !is_empty;
}
