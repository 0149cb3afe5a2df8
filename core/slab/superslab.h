/*
 * superslab.h - SuperSlabs: 2 MiB of address space at a multiple of 2 MiB, 32 units, and who has which.
 *
 * Hands out runs of units to slabs (one to eight) and whole SuperSlabs to the large floor, from the fullest
 * SuperSlab first, so that thinly used ones empty. Knows which free units are known to be zero and which are
 * dirty: hold stale data that a purge would give back. Empty SuperSlabs wait in an LRU with bounds in count,
 * bytes and age. Does not know blocks. One lock of rank SUPERSLAB, never held across a system call.
 */
#ifndef HAK_SLAB_SUPERSLAB_H
#define HAK_SLAB_SUPERSLAB_H

#include "base/bits.h"
#include "base/config.h"
#include "os/lock.h"
#include "slab/huge.h"
#include "slab/slab.h"

/* A unit that had no pages, of which no more than this was handed out since, is light: most of its pages hold
 * no memory. So is one of a slab of which all but this was purged when it was given back. */
#define HAK_LIGHT_BYTES ((size_t)HAK_UNIT_BYTES / 4)

/* How much a SuperSlab is used; decides who is asked for units first. */
enum hak_tier {
    HAK_TIER_HOT,      /* used: hands out units */
    HAK_TIER_DRAINING, /* little used: hands out units only when no HOT one can, so that it empties */
    HAK_TIER_FREE,     /* empty: in the LRU */
    HAK_TIER_WHOLE,    /* lent whole to the large floor */
    HAK_TIER_NONE,     /* record without memory: spare, or on its way to or from the system */
};

/*
 * Owner: this floor. The record outlives its memory and is reused for other SuperSlabs only (type-stable), so
 * that a stale pointer to one of its slabs reads a slab. Invariant, under the lock, for HOT, DRAINING and
 * FREE: free_units, purging_units and the spans of taken slabs are disjoint and cover all 32 units;
 * zero_units is a subset of free_units, long_units and filled_units of what slabs have. A thin slab is a
 * taken one.
 */
struct superslab {
    struct slab slabs[HAK_UNITS_PER_SUPERSLAB]; /* slab i is the one that starts at unit i, if any */
    uintptr_t base;                             /* const while mapped */
    uint32_t free_units;                        /* under lock: mask */
    uint32_t zero_units;                        /* under lock: mask, free units whose bytes are all zero */
    uint32_t purging_units;                     /* under lock: mask, units that some thread is giving back */
    uint32_t light_units;  /* under lock: mask, see HAK_LIGHT_BYTES; taken ones may be, too */
    uint32_t long_units;   /* under lock: mask, slabs' whose blocks are longer than an OS page */
    uint32_t filled_units; /* under lock: mask, slabs' from when it was a huge page: all have memory */
    uint32_t thin_slabs;   /* under lock: mask, first units of thin slabs (thin.h) */
    uint32_t ragged_slabs; /* under lock: mask, first units of those that wait (ragged.h) */
    uint8_t free_count;    /* under lock: units in free_units, as the pool's sums have them, */
    uint8_t dirty_count;   /* of those, dirty, */
    uint8_t light_count;   /* and of the dirty ones, light */
    enum hak_tier tier;    /* under lock */
    bool is_in_dirty_list; /* under lock: in one of two, */
    bool is_paused;        /* under lock: that of those that are not to be purged now */
    bool is_huge;          /* under lock: the kernel may use a huge page for it */
    bool is_prefaulted;    /* under lock: all of it has memory, but counts as clean until a trim */
    struct superslab *prev, *next;             /* under lock: bucket, LRU or spare list */
    struct superslab *dirty_prev, *dirty_next; /* under lock: with dirty units or thin slabs, oldest first */
    uint64_t paused_until_ms;                  /* under lock */
    uint64_t emptied_ms;                       /* under lock: when it became FREE */
};

/*
 * Finds `units` (1 to 8) contiguous free units for a slab of the class, where one lay before if it can, and
 * maps a new SuperSlab if there are none. Returns the slab record of the first unit with base, units and
 * is_zero set, unassigned, or NULL when out of memory. The registry is prepared for the range. Slow: no lock
 * held.
 */
struct slab *hak_superslab_take_units(unsigned units, unsigned class_idx);

/*
 * The same of one free unit that holds few pages, or else none, for blocks no longer than an OS page; NULL
 * when the fullest SuperSlabs have neither. Makes no system call.
 */
struct slab *hak_superslab_take_light(void);

/*
 * Gives the units of an unassigned slab back. `is_zero`: nothing was written there since they were known
 * zero. What that leaves above the floor is owed to the system: see hak_purge_is_owed().
 */
void hak_superslab_give_units(struct slab *slab, bool is_zero);

/*
 * An empty SuperSlab for the large floor alone: 2 MiB at `base`, registry prepared, words not yet stored.
 * NULL when out of memory. `zero_units` is a mask of the units that are known to be zero and hold no memory,
 * also when it comes back. Slow: no lock held.
 */
struct superslab *hak_superslab_take_whole(uint32_t *zero_units);

/* And back; then a step of purge.h, which makes the system calls that are returned, calls_max at most. */
unsigned hak_superslab_give_whole(struct superslab *superslab, uint32_t zero_units, unsigned calls_max);

/*
 * Before a part of it is purged: no huge page from now on, or the kernel would fill up again what was given
 * back. Returns the number of system calls that took, 0 or 1. Slow: no lock held.
 */
unsigned hak_superslab_split(struct superslab *superslab);

/* Whether what nobody wrote to in a slab holds memory as well, since it lay on a huge page. */
HAK_COLD bool hak_superslab_is_filled(const struct slab *slab);

/* The units of a taken slab, as a mask. */
HAK_INLINE uint32_t hak_superslab_span(const struct slab *slab) {
    return hak_mask32(slab->units) << slab->unit_idx;
}

/* Free units that hold stale data, as a mask. Under the lock. */
HAK_INLINE uint32_t hak_superslab_dirty(const struct superslab *superslab) {
    return superslab->free_units & ~superslab->zero_units;
}

/* The SuperSlab that a slab record belongs to. */
HAK_INLINE struct superslab *hak_superslab_of(const struct slab *slab) {
    return (struct superslab *)(uintptr_t)(slab - slab->unit_idx);
}

/* Every record ever made, by index; NULL beyond the last. Any thread; records are never unmapped. */
struct superslab *hak_superslab_at(size_t index);

/* The same for the records of their units, each a slab's or not. */
HAK_INLINE struct slab *hak_slab_at(size_t index) {
    struct superslab *superslab = hak_superslab_at(index / HAK_UNITS_PER_SUPERSLAB);
    return superslab != NULL ? &superslab->slabs[index % HAK_UNITS_PER_SUPERSLAB] : NULL;
}

/* Whether there are units that a slab could have with their pages. A hint. */
bool hak_superslab_has_dirty(void);

struct hak_superslab_counts {
    size_t mapped;      /* SuperSlabs with memory */
    size_t empty;       /* of those, in the LRU */
    size_t whole;       /* of those, lent to the large floor */
    size_t free_units;  /* of those not lent whole */
    size_t dirty_units; /* of those, what a purge would give back */
    size_t thin_bytes;  /* of thin slabs, what a purge may give back at most */
};
HAK_COLD struct hak_superslab_counts hak_superslab_count(void);

/*
 * Gives dirty memory back at once, without the limits of purge.h, until at most `keep_bytes` of it stay,
 * whole empty SuperSlabs first (those are unmapped). Returns the bytes given back. Slow: no lock held.
 */
HAK_COLD size_t hak_superslab_trim(size_t keep_bytes);

/* What HAKMEM_SS_PREFAULT brought into memory and nobody has written to is to be given back by a trim that
 * follows. Slow: no lock held. */
HAK_COLD void hak_superslab_end_prefault(void);

/* Visits the memory of every SuperSlab not lent to the large floor. The visitor may make system calls. */
HAK_COLD void hak_superslab_visit_mapped(hak_range_visitor visitor, void *context);

/* Whether the address lies in a SuperSlab that has memory. Goes through all of them: for rare paths. */
HAK_COLD bool hak_superslab_covers(const void *pointer);

/* SuperSlabs mapped since start, and those of them that are huge pages. */
uint64_t hak_superslab_births(void);
uint64_t hak_superslab_huge_births(void);

/* How quickly one of these came. Slow: no lock held. */
void hak_superslab_note_huge(enum hak_huge_speed speed);

/*
 * For the child of a fork, alone in its process: puts the masks right where other threads were cut off
 * between taking units and assigning them. Every slab record is in its final state.
 */
HAK_COLD void hak_superslab_rebuild(void);

/*
 * Checks the invariants of every SuperSlab; false with the broken one in *why. Units on their way from the
 * pool to a slab are nobody's for a moment: where other threads allocate, ask again when that is the answer.
 */
extern const char hak_superslab_units_are_lost[];
HAK_COLD bool hak_superslab_verify(const char **why);

extern struct hak_lock hak_superslab_lock;

#endif
