/*
 * slab.h - a slab: blocks of one class in one to eight units, its header map, and the word that governs both.
 *
 * The lease, in short (core/README.md tells it whole): a thread that frees blocks stores FREE into their
 * header bytes and then adds to the count in the slab's word, its last access to the slab. Everything else
 * (sweeping the map, carving, moving the slab between places, purging pages beneath it, retiring it) is done
 * by the holder of the lease, a bit in the same word. Nobody waits for a lease but who goes through the whole
 * heap.
 *
 * Functions that may leave work behind return an event with the lease still held; the caller must act on it.
 */
#ifndef HAK_SLAB_SLAB_H
#define HAK_SLAB_SLAB_H

#include "base/atomic.h"
#include "base/config.h"
#include "meta/classes.h"
#include "meta/maps.h"
#include "meta/registry.h"

struct slab_list;

/* Where a slab that has free blocks can be found. */
enum hak_place {
    HAK_PLACE_NOWHERE, /* full, or nearly: the free that makes it worth finding lists it */
    HAK_PLACE_WARM,    /* in its owner's warm pool, or its current slab: a hint that may be stale */
    HAK_PLACE_LISTED,  /* linked in slab->list: a class's orphans or a heap's slabs with remote frees */
};

enum hak_slab_event {
    HAK_EVENT_NONE,   /* nothing to do; the lease is not held */
    HAK_EVENT_LIST,   /* lease held: place the slab where its free blocks will be found, then release */
    HAK_EVENT_THIN,   /* lease held: few blocks are in use: hak_thin_enter(), then hak_slab_release_any() */
    HAK_EVENT_RAGGED, /* lease held: whole pages may lie free: hak_ragged_enter(), then hak_slab_release_any()
                       */
    HAK_EVENT_RETIRE, /* lease held: all blocks are counted free: hak_slab_retire() */
};

/*
 * Owner: the heap named in `word`, or nobody (0). A record belongs to its SuperSlab for ever and is reused in
 * place. Invariant while no lease is held: count in word + frees stored but not yet counted == FREE bytes
 * below carved_blocks + (capacity_blocks - carved_blocks); live + cached + those == capacity_blocks, what
 * guests cover (guests.h) counted as live or cached.
 */
struct slab {
    _Atomic uint64_t word;            /* atomic: see slab_word.h */
    _Atomic uint8_t *map;             /* const while assigned: capacity_blocks header bytes */
    uintptr_t base;                   /* const while taken: address of block 0 */
    struct slab *prev;                /* under the list's lock */
    struct slab *next;                /* under the list's lock */
    _Atomic(struct slab_list *) list; /* atomic, written under that list's lock; NULL when linked nowhere */
    uint16_t capacity_blocks;         /* const while assigned */
    _Atomic uint16_t
        ragged_blocks;      /* blocks in use at which a look for free pages is due; set under the lease */
    uint16_t carved_blocks; /* lease holder: every block below was handed out once, none above was */
    uint16_t sweep_cursor;  /* lease holder: where the next sweep starts */
    uint16_t purged_mask;   /* lease holder: of a slab of one unit, the OS pages that were given back */
    uint16_t
        purged_pages; /* lease holder, under the SuperSlab lock: how many were given back, none taken since */
    uint8_t units;    /* const while taken: length of the span */
    uint8_t unit_idx; /* const: position in the SuperSlab */
    uint8_t class_idx; /* const while assigned */
    bool is_zero;      /* lease holder: blocks from carved_blocks on are known to be zero */
};
_Static_assert(sizeof(struct slab) <= HAK_CACHE_LINE_BYTES, "a slab's record is one cache line");

/* A full slab is listed again once a sixteenth of its blocks is free: each visit then finds enough to pay for
 * itself. */
#define HAK_RELIST_SHIFT 4u

/* Free blocks from which a full slab is worth listing. */
HAK_INLINE unsigned hak_slab_relist_blocks(const struct slab *slab) {
    unsigned blocks = slab->capacity_blocks >> HAK_RELIST_SHIFT;
    return blocks == 0 ? 1 : blocks;
}

/*
 * Units of slabs that have begun to hand out blocks and have never handed out some: where they lie on a huge
 * page, that has memory there nevertheless. None of blocks longer than an OS page: those begin on no part of
 * a huge page that was not in use before. Written by lease holders; a statistic.
 */
extern _Atomic size_t hak_slab_begun_units;

/* What a slab that has begun adds to it. */
HAK_INLINE size_t hak_slab_begun_share(const struct slab *slab) {
    return hak_class_exceeds_page(slab->class_idx) ? 0 : slab->units;
}

/* Blocks below `carved_blocks` were handed out once. Lease held. */
HAK_INLINE void hak_slab_set_carved(struct slab *slab, unsigned carved_blocks) {
    slab->carved_blocks = (uint16_t)carved_blocks;
    if (HAK_UNLIKELY(carved_blocks == slab->capacity_blocks)) {
        (void)hak_atomic_add_relaxed(&hak_slab_begun_units,
                                     -hak_slab_begun_share(slab)); /* relaxed: a statistic */
    }
}

/* A slab of one unit has at most 16 OS pages: it knows which of them were purged. */
HAK_INLINE bool hak_slab_knows_purged_pages(const struct slab *slab) {
    return slab->units == 1;
}

/*
 * Sets a taken, unassigned slab up for a class: header map, registry words. Returns 0 with the lease held
 * (all blocks free, place NOWHERE), or ENOMEM with the slab unassigned as before.
 */
int hak_slab_assign(struct slab *slab, unsigned class_idx, uint32_t owner);

/*
 * Tags the registry words of a leased slab with its coming owner, so that its frees are told from those of
 * other threads. A tag is a hint: what was freed by an old one goes home all the same.
 */
void hak_slab_adopt(const struct slab *slab, uint32_t owner);

/*
 * Takes the lease by way of a warm hint. False when the hint is stale (another class, owner or place) or the
 * lease is held by somebody else, who then finds the slab placed NOWHERE and sees to it; either way the
 * caller drops the hint. On success the place is NOWHERE.
 */
bool hak_slab_lease_warm(struct slab *slab, unsigned class_idx, uint32_t owner);

/* Whether a warm hint is good, as far as can be seen without the lease. */
bool hak_slab_is_warm(const struct slab *slab, unsigned class_idx, uint32_t owner);

/* Takes the lease of an assigned slab wherever it is, leaving its place as it is. False if leased or
 * unassigned. */
bool hak_slab_lease_any(struct slab *slab);

/*
 * Gives the lease back after `taken_blocks` blocks were taken out. `place` WARM when the caller keeps a hint,
 * else NOWHERE. `owner` is the owner from now on.
 */
enum hak_slab_event hak_slab_release(struct slab *slab, unsigned taken_blocks, enum hak_place place,
                                     uint32_t owner);

/* What is due for a leased slab with that word before it is placed: RETIRE, THIN, RAGGED or NONE. Lease held.
 */
enum hak_slab_event hak_slab_unlisted_event(const struct slab *slab, uint64_t word);

/*
 * Gives the lease back to a slab that is WARM with `owner`, where there is nothing else to see to now: blocks
 * were taken out, or it was fetched ahead of need and may be wholly free.
 */
void hak_slab_release_warm(struct slab *slab, unsigned taken_blocks, uint32_t owner);

/* Gives back a lease taken by hak_slab_lease_any(), and took so many blocks; the place stays what it is
 * unless the hint was dropped. */
enum hak_slab_event hak_slab_release_any(struct slab *slab, unsigned taken_blocks);

/*
 * Counts `blocks` blocks whose headers this thread, that of the heap `freer`, has just stored FREE: the
 * caller's last access to the slab.
 */
enum hak_slab_event hak_slab_count_free(struct slab *slab, unsigned blocks, uint32_t freer);

/* Whether threads other than its owner's have freed blocks since the lease was last given back. Lease held.
 */
bool hak_slab_has_foreign_frees(const struct slab *slab);

/* The heap that owns the slab: to be asked by the lease holder. */
uint32_t hak_slab_owner(const struct slab *slab);

/*
 * Ends an assigned slab, all of whose blocks are counted free, and gives its units back. Lease held; gone
 * after. May purge: no lock held.
 */
void hak_slab_retire(struct slab *slab);

/*
 * A short map stays with a retired slab's record until its units are purged or unmapped, or one of another
 * length is wanted there, so that where slabs come and go none is asked for and given back each time. Gives
 * it back, if there is one, for who alone has the units. No lock held.
 */
void hak_slab_drop_map(struct slab *slab);

/* What the registry keeps about the units of a retired slab, so that a double free in them is named. */
#define HAK_FREED_UNIT_SHIFT 20u

HAK_INLINE uint64_t hak_freed_number(unsigned unit, size_t block_bytes) {
    return (uint64_t)unit << HAK_FREED_UNIT_SHIFT | block_bytes;
}

HAK_INLINE size_t hak_freed_block_bytes(uint64_t number) {
    return (size_t)(number & (((uint64_t)1 << HAK_FREED_UNIT_SHIFT) - 1));
}

/* Whether a block of the retired slab began at the pointer. */
HAK_INLINE bool hak_freed_is_block_start(uint64_t number, const void *pointer) {
    size_t offset = (uint16_t)(uintptr_t)pointer + (number >> HAK_FREED_UNIT_SHIFT) * HAK_UNIT_BYTES;
    return offset % hak_freed_block_bytes(number) == 0;
}

/* The slab that a header map belongs to. */
HAK_INLINE struct slab *hak_slab_of_map(const _Atomic uint8_t *map) {
    return hak_map_owner(map);
}

/* The slab of a pointer into an assigned slab. */
HAK_INLINE struct slab *hak_slab_of_block(const void *block) {
    return hak_slab_of_map(hak_word_address(hak_registry_word(block)));
}

#endif
