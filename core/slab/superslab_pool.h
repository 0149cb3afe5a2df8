/*
 * superslab_pool.h - the shared pool's state: which SuperSlab is in which tier, bucket and list.
 *
 * For this floor alone. Every function here is called under hak_superslab_lock and makes no
 * system call. Lists are edited nowhere else.
 */
#ifndef HAK_SLAB_SUPERSLAB_POOL_H
#define HAK_SLAB_SUPERSLAB_POOL_H

#include "meta/classes.h"
#include "slab/dirty.h"
#include "slab/huge.h"
#include "slab/ragged.h"
#include "slab/retention.h"
#include "slab/superslab.h"

/* What the last look that purged nothing found may stay. */
struct hak_settled {
    size_t dirty_bytes; /* and of header maps a part of that (HAK_MAPS_FLOOR_SHIFT) */
    size_t empty_count; /* SuperSlabs in the LRU */
    uint64_t at_ms;     /* when it was */
    unsigned gives;     /* that need no look of their own yet, if it was a moment ago */
};

struct superslab_pool {
    /* [tier HOT or DRAINING][number of free units]: a full SuperSlab is in bucket 0 */
    struct superslab *buckets[2][HAK_UNITS_PER_SUPERSLAB + 1];
    struct superslab *lru_oldest, *lru_newest; /* tier FREE */
    struct hak_dirty_list dirty;               /* with dirty units or thin slabs */
    struct hak_dirty_list paused;              /* those where a purge failed a moment ago */
    struct superslab *spare;                   /* tier NONE */
    size_t empty_count;                        /* length of the LRU */
    _Atomic bool has_empty;                    /* whether that is not 0: a hint without the lock */
    size_t mapped_count;                       /* records with memory */
    size_t whole_count;
    size_t free_units;            /* in HOT, DRAINING and FREE */
    size_t dirty_units;           /* of those, not known zero */
    size_t light_units;           /* of those, light */
    size_t thin_bytes;            /* units of thin slabs, less what was purged in them */
    size_t purged_bytes;          /* given back beneath free blocks of slabs */
    size_t long_units;            /* of slabs whose blocks are longer than an OS page */
    size_t huge_zero_units;       /* free units of huge SuperSlabs that nobody has written to */
    struct hak_refusals refusals; /* of purges, for steps */
    uint64_t unmap_retry_ms;      /* no unmapping before that time: the last one failed (too many mappings) */
    uint64_t maps_over_since_ms; /* when more of free header maps than may stay was first found, 0: not now */
    uint64_t maps_retry_ms;      /* no purge of these before that time: the last one failed (locked pages) */
    struct retention retention;
    struct hak_settled settled;
    struct huge_pace huge_pace;
    struct ragged ragged;
};
extern struct superslab_pool hak_superslab_pool;

/* Changes the masks of a SuperSlab and moves it to the tier, bucket and lists that they ask for. */
struct hak_unit_change {
    uint32_t freed_zero;   /* become free and zero */
    uint32_t freed_dirty;  /* become free and dirty */
    uint32_t taken;        /* free -> a slab's */
    uint32_t purge_begun;  /* free -> purging */
    uint32_t purge_done;   /* purging -> free and zero */
    uint32_t purge_failed; /* purging -> free and dirty */
    bool is_long;          /* blocks of the slab that has `taken` are longer than an OS page */
};
void hak_superslab_change(struct superslab *superslab, struct hak_unit_change change);

/* Marks a taken slab thin or not, with so many of its OS pages given back; keeps the sums. */
void hak_superslab_set_thin(struct slab *slab, bool is_thin, unsigned purged_pages);

/* Of a slab that is about to give its units back so many OS pages were purged: if few are left, they are
 * light. */
void hak_superslab_note_light(struct slab *slab, unsigned purged_pages);

/* Nothing is thin or purged any more: for the child of a fork. */
void hak_superslab_forget_thin(void);

/* What was handed out of an assigned slab since it was set up, or of a retired one. */
HAK_INLINE size_t hak_superslab_carved_bytes(const struct slab *slab) {
    return slab->carved_blocks * hak_class_block_bytes[slab->class_idx];
}

/* What hak_superslab_is_filled() says, under the lock. */
HAK_INLINE bool hak_superslab_lies_on_filled(const struct slab *slab) {
    return (hak_superslab_of(slab)->filled_units >> slab->unit_idx & 1u) != 0;
}

/* What of a slab may hold memory: all of its span, or what was handed out of a clean one so far. */
size_t hak_superslab_touched_bytes(const struct slab *slab);

/* At most this lies in so many dirty units, of which so many are light. */
HAK_INLINE size_t hak_superslab_bytes_in(size_t units, size_t light_units) {
    return units * HAK_UNIT_BYTES - light_units * (HAK_UNIT_BYTES - HAK_LIGHT_BYTES);
}

/* What a purge would give back: of dirty units, and at most of thin slabs. */
HAK_INLINE size_t hak_superslab_dirty_bytes(void) {
    return hak_superslab_bytes_in(hak_superslab_pool.dirty_units, hak_superslab_pool.light_units) +
           hak_superslab_pool.thin_bytes;
}

/* NONE -> HOT, all units free and zero, its memory new at `base`. */
void hak_superslab_none_to_hot(struct superslab *superslab, uintptr_t base);

/*
 * Whether a new SuperSlab for slabs that take of huge ones what nobody has written to may be a huge page:
 * that stays within 5 % of what is in use, free units and half of what slabs in use may still hand out for
 * the first time. By HAKMEM_THP=auto slabs of blocks longer than an OS page count on neither side: they take
 * nothing of it, and what of them is in use may hold little memory. Nor may it while huge pages come slowly
 * (huge.h): to be asked once for each that is mapped, since those are counted.
 */
bool hak_superslab_may_be_huge(void);

/* Whether slabs of the class take of huge SuperSlabs what nobody has written to, and have new ones that are:
 * not those whose blocks may be touched in part, unless HAKMEM_THP=always. */
bool hak_superslab_takes_huge(unsigned class_idx);

/* It is huge no more, and its free units are dirty; the caller tells the kernel, without the lock. Says what
 * it was. */
bool hak_superslab_clear_huge(struct superslab *superslab);

/* Free units that were prefaulted are dirty from now on. */
void hak_superslab_clear_prefaulted(struct superslab *superslab);

/* FREE -> WHOLE and back; FREE -> NONE (still mapped) and, with the masks it had, NONE -> FREE when the
 * system refused to take it. */
void hak_superslab_free_to_whole(struct superslab *superslab);
void hak_superslab_whole_to_free(struct superslab *superslab, uint32_t zero_units);
void hak_superslab_free_to_none(struct superslab *superslab);
void hak_superslab_none_to_free(struct superslab *superslab);

/* Spare records. */
void hak_superslab_push_spare(struct superslab *superslab);
struct superslab *hak_superslab_pop_spare(void);

/* A run of `units` free units for a slab of the class, in the fullest SuperSlab of the best tier: its first
 * unit in *unit_idx, or NULL. */
struct superslab *hak_superslab_choose(unsigned units, unsigned class_idx, unsigned *unit_idx);

/* A SuperSlab in use with a free unit that holds few pages, else one that holds none: the unit in *unit_idx,
 * or NULL if there is none in the fullest ones. */
struct superslab *hak_superslab_choose_light(unsigned *unit_idx);

/* Notes a debt if there may be something to purge; and that there is nothing left. */
void hak_superslab_note_owed(void);
void hak_superslab_note_paid(void);

/* Units were given back: the same, but for a few times after a look that found that as much may stay. */
void hak_superslab_note_given(void);

/* A look has found nothing to purge now, where `keep_bytes` may stay. And that what it found counts no more.
 */
void hak_superslab_settle(size_t keep_bytes, uint64_t now_ms);
void hak_superslab_unsettle(void);

/* Bytes of dirty free units that may stay. */
size_t hak_superslab_floor_bytes(uint64_t now_ms);

/* And of header maps that are free: what slabs of the smallest blocks need for as much is half of that. */
#define HAK_MAPS_FLOOR_SHIFT 3u

/* The oldest empty SuperSlab if the LRU is beyond one of its bounds, else NULL. */
struct superslab *hak_superslab_lru_victim(uint64_t now_ms);

#endif
