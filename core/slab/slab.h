/*
 * slab.h - a slab: blocks of one class in one to eight units, its header map, and the word that governs both.
 *
 * See core/README.md, "the lease", for who may change what. In short: a thread that frees blocks stores FREE
 * into their header bytes and then adds to the count in the slab's word, its last access to the slab;
 * everything else (sweeping the map, carving, moving the slab between lists, retiring it) is done by the
 * holder of the lease, a bit in the same word. Nobody waits for a lease.
 */
#ifndef HAK_SLAB_SLAB_H
#define HAK_SLAB_SLAB_H

#include "base/atomic.h"
#include "base/config.h"
#include "os/lock.h"

struct slab_list;

/* Where a slab that has free blocks can be found. */
enum hak_place {
    HAK_PLACE_NOWHERE, /* full, or nearly: the free that makes it worth finding lists it */
    HAK_PLACE_WARM,    /* in its owner's warm pool, or its current slab: a hint that may be stale */
    HAK_PLACE_LISTED,  /* linked in slab->list: a class's orphans or a heap's slabs with remote frees */
};

/*
 * Owner: the heap named in `word`, or nobody (0). A record belongs to its SuperSlab for ever and is reused in
 * place. Invariant when no lease is held: counted free blocks in word == FREE bytes below carved_blocks whose
 * free has been counted + (capacity_blocks - carved_blocks); live + cached + counted + not yet counted ==
 * capacity_blocks.
 */
struct slab {
    _Atomic uint64_t word; /* count, lease, place, class, owner: see slab_word.h */
    _Atomic uint8_t *map;  /* lease holder writes, const while assigned: capacity_blocks header bytes */
    uintptr_t base;        /* const while assigned: address of block 0 */
    struct slab *prev;     /* under list's lock */
    struct slab *next;     /* under list's lock */
    _Atomic(struct slab_list *) list; /* written under that list's lock; NULL when linked nowhere */
    uint16_t capacity_blocks;         /* const while assigned */
    uint16_t carved_blocks;           /* lease holder: blocks below were handed out before; none above was */
    uint16_t sweep_cursor;            /* lease holder: where the next sweep starts */
    uint8_t units;                    /* const while taken: length of the span */
    uint8_t unit_idx;                 /* const: position in the SuperSlab */
    uint8_t class_idx;                /* const while assigned */
    bool is_zero;                     /* lease holder: blocks from carved_blocks on are known to be zero */
    uint16_t relist_blocks; /* const while assigned: free blocks from which a full slab is worth listing */
    uint32_t fork_epoch;    /* lease holder: see slab_rebuild */
};

_Static_assert(sizeof(struct slab) <= HAK_CACHE_LINE_BYTES, "a slab's record is one cache line");

#endif
