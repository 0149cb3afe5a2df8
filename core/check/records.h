/*
 * records.h - what checked mode knows of each block: its size, who allocated it, who freed it.
 *
 * One record per address, in tables of their own, far from the blocks. A record outlives its block until the
 * address is given out again, so that a late double free still finds who freed it; but where ever new
 * addresses come, as with large blocks of many sizes, no longer than until as many others were given out as
 * the table has room for. Sharded by address, a lock of rank RECORDS per shard, held for the look-up, and
 * while the table is made anew. Any thread.
 */
#ifndef HAK_CHECK_RECORDS_H
#define HAK_CHECK_RECORDS_H

#include "check/trace.h"
#include "os/lock.h"

enum hak_record_state {
    HAK_RECORD_LIVE,        /* the program's */
    HAK_RECORD_FREEING,     /* a thread is at it */
    HAK_RECORD_QUARANTINED, /* freed, nobody may write to it */
    HAK_RECORD_RELEASED,    /* its memory may serve others */
};

enum hak_record_kind {
    HAK_RECORD_INLINE,  /* in a slab or of the large floor: the red zone is the rest of its memory */
    HAK_RECORD_GUARDED, /* in a mapping of its own, between guard pages */
};

/* Const but for bytes, state, is_old, freed and freeing_thread, which change under the shard's lock. */
struct hak_record {
    uintptr_t address;                 /* what the program has; 0: an unused entry */
    size_t bytes;                      /* what it asked for */
    const struct hak_trace *allocated; /* by whom */
    const struct hak_trace *freed;     /* NULL while LIVE, or not kept */
    uint32_t allocating_thread;        /* number of its heap; 0: a thread that has exited */
    uint32_t freeing_thread;
    uint8_t align_shift; /* log2 of the alignment that was asked for */
    uint8_t kind;        /* enum hak_record_kind */
    uint8_t state;       /* enum hak_record_state */
    bool is_old;         /* its block was RELEASED already when the table was made; nobody else's business */
};

/* Whether it is of a live block between guard pages. */
HAK_INLINE bool hak_record_is_live_guarded(const struct hak_record *record) {
    return record->kind == HAK_RECORD_GUARDED && record->state == HAK_RECORD_LIVE;
}

/* Once, in a constructor, before anything else of this file. */
void hak_records_prepare(void);

/* Enters a block that was just allocated, in place of an earlier one at its address. False when out of
 * memory. */
bool hak_records_enter(const struct hak_record *record);

/* A copy of the record of the block that starts there; false when there is none. */
bool hak_records_get(const void *address, struct hak_record *record);

/*
 * LIVE -> FREEING: of two threads that free one block exactly one gets true. *record is the record
 * afterwards; with false what it was, its address 0 when there is none.
 */
bool hak_record_live_to_freeing(const void *address, const struct hak_trace *trace, uint32_t thread,
                                struct hak_record *record);

/* FREEING -> LIVE again, at that size: a block that realloc makes smaller where it lies. */
void hak_record_freeing_to_live(const void *address, size_t bytes);

/* FREEING -> QUARANTINED, when the block is filled. */
void hak_record_freeing_to_quarantined(const void *address);

/* QUARANTINED -> RELEASED, before the memory goes. */
void hak_record_quarantined_to_released(const void *address);

/*
 * Visits every record, the shard's lock held, so that what it says stands while the visitor runs; other than
 * 0 ends the visit and is returned. The visitor takes no lock of this rank or below.
 */
typedef int (*hak_record_visitor)(const struct hak_record *record, void *context);
int hak_records_visit(hak_record_visitor visitor, void *context);

/* The same for a handler of faults, but for what is under a lock that cannot be had soon: the thread that was
 * interrupted may hold it. */
HAK_COLD int hak_records_visit_soon(hak_record_visitor visitor, void *context);

/* Visits the pages of live blocks between guard pages, the places for sampled ones, and the records' tables;
 * the visitor as above. */
void hak_records_visit_mapped(hak_range_visitor visitor, void *context);

/* QUARANTINED or FREEING -> RELEASED where end_free() returns true: in the child of a fork, alone. */
void hak_records_forget(bool (*end_free)(const void *block));

/* For fork: every lock of this file. */
void hak_records_for_each_lock(void (*action)(struct hak_lock *));

#endif
