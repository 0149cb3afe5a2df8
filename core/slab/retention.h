/*
 * retention.h - how much free memory the slab side keeps instead of giving it back.
 *
 * The floor is a 64th of what is in use plus a MiB, less in a small container. It rises only for a heap
 * that has proved to need it: in two cycles in a row, of 256 KiB or more, half of what was purged was missed,
 * that is, memory without pages was handed out within a second, and so fast that the page faults took a share
 * of a thread's time that is worth the memory (3 %). The second and each further one raises it by what was
 * purged in it, at most to an eighth of what is in use and, beyond that, by what the large floor and caches
 * leave of HAKMEM_RETAIN_MB, which is more, unless it is set, for cycles that last; each second takes half of
 * what lay unused all through it off again. However far it has risen, what stays for that and what is in use
 * are together no more than was in use at the peak lately, and an eighth; and a SuperSlab, once large blocks
 * took one. Plain data and arithmetic; every function is called under the SuperSlab lock.
 */
#ifndef HAK_SLAB_RETENTION_H
#define HAK_SLAB_RETENTION_H

#include "base/compiler.h"
#include "conf/options.h"
#include <stdint.h>

/* A cycle begins with a purge and ends when half of what was purged was missed, or with time. */
struct retention {
    uint64_t cycle_start_ms;
    uint64_t purged_ms;  /* the last purge of the cycle */
    size_t purged_bytes; /* in this cycle; 0: none runs */
    size_t missed_bytes; /* in this cycle: handed out that the system has yet to fill with pages */
    unsigned proofs;     /* cycles in a row that ended with half missed, at most PROOFS_TO_RAISE */
    unsigned capped;     /* cycles that wanted more than HAKMEM_RETAIN_MB and cost much, since one expired */
    size_t raised_bytes; /* what the floor has risen by */
    size_t base_bytes;   /* the floor without that, when it was last asked for, */
    size_t share_bytes;  /* and what it may have risen by then beside HAKMEM_RETAIN_MB */
    size_t dirty_bytes;  /* now */
    size_t min_dirty_bytes;   /* the least since window_start_ms: memory that nobody wanted */
    size_t used_bytes;        /* in use now */
    size_t max_used_bytes;    /* the most since window_start_ms */
    size_t peak_used_bytes;   /* the most lately: each second it falls half of the way to that second's */
    size_t piece_bytes;       /* what large blocks have taken in one piece, at most; 0: nothing */
    uint64_t window_start_ms; /* when the floor was last lowered, or could have been */
    uint64_t over_since_ms;   /* when more than the floor was first found, 0: not now */
    bool is_set;              /* the program has said how much may stay */
    size_t set_bytes;         /* and this is it */
};

/* Whether a cycle runs, so that hak_retention_note_missed() wants to know. */
HAK_INLINE bool hak_retention_is_in_cycle(const struct retention *r) {
    return r->purged_bytes != 0;
}

void hak_retention_note_purged(struct retention *r, size_t bytes, uint64_t now_ms);
void hak_retention_note_missed(struct retention *r, size_t bytes, uint64_t now_ms);

/* Dirty free memory grew or shrank to this. */
void hak_retention_note_dirty(struct retention *r, size_t dirty_bytes);

/* What is in use grew or shrank to this. */
void hak_retention_note_used(struct retention *r, size_t used_bytes);

/* Memory is wanted in pieces of this length too, which what is free in shorter ones does not serve. */
void hak_retention_note_piece(struct retention *r, size_t piece_bytes);

/* Who would give memory back. */
enum hak_giver {
    HAK_GIVER_OPERATION, /* an operation of the program's */
    HAK_GIVER_HELPER,    /* the helper thread of HAKMEM_BACKGROUND=1 */
};

/* There is a helper from now on, or none. Any thread. */
HAK_COLD void hak_retention_set_helper(bool is_there);

/* What there is to give back. */
struct hak_over {
    bool is_over;        /* something is, */
    size_t excess_bytes; /* of which so many dirty bytes are beyond the floor */
};

/*
 * Whether what is beyond the floor is to go back now: HAKMEM_PURGE_MS after it was first found there. While
 * there is a helper it waits for that in any case, a tenth of a second, unless it is more than may stay for
 * cycles that last; others give back what has waited for a second. To be told each time whether there is
 * something.
 */
bool hak_retention_is_due(uint64_t *over_since_ms, struct hak_over over, enum hak_giver giver,
                          uint64_t now_ms);

/* Purges in a row that the kernel refused (locked pages). */
struct hak_refusals {
    unsigned in_row;
    uint64_t until_ms; /* there were so many that all pages may be locked: none is tried before */
};

HAK_INLINE bool hak_refusals_were_many(const struct hak_refusals *refusals, uint64_t now_ms) {
    return now_ms < refusals->until_ms;
}

/* A purge was refused, or was not; with the `most`-th in a row none is tried until then. */
void hak_refusals_note(struct hak_refusals *refusals, bool is_refused, unsigned most, uint64_t until_ms);

/* From now on `bytes` may stay, whatever is in use and however soon it is wanted again. */
void hak_retention_set(struct retention *r, size_t bytes);

/* Dirty free memory of up to this may stay in any case. Const after start. */
HAK_INLINE size_t hak_retention_base_bytes(void) {
    return (size_t)hak_options.base_floor_kib * 1024;
}

/* Those that keep free memory for proved cycles, HAKMEM_RETAIN_MB in all: two floors, and caches
 * (heap/width.h). */
enum hak_retainer { HAK_RETAINER_SLABS, HAK_RETAINER_LARGE, HAK_RETAINER_CACHES, HAK_RETAINERS };

/*
 * To be told by how much a floor is raised, whenever that changes. Each under its own lock: when two rise at
 * the same moment they may be above the bound together until the one that is not used falls.
 */
void hak_retention_note_raised(enum hak_retainer who, size_t bytes);

/* The same, of what it has risen by beside HAKMEM_RETAIN_MB. */
void hak_retention_note_beside(enum hak_retainer who, size_t bytes);

/* The caches of a thread are wider by so many bytes than before, or by so many less. Any thread. */
void hak_retention_note_wider(ptrdiff_t bytes);

/* By how much of HAKMEM_RETAIN_MB it is. Any thread. */
size_t hak_retention_raised_bytes(enum hak_retainer who);

/* Whether it is at all, so that time may let it fall. Any thread. */
bool hak_retention_is_raised(enum hak_retainer who);

/* By how much that floor, or all caches, may be raised at most, now. Any thread. */
size_t hak_retention_raise_max(enum hak_retainer who);

/* So many cycles that wanted more than may stay and cost much, none between them in vain, and they last. */
#define HAK_CAPPED_TO_LAST 16u

/*
 * The same after so many of them. Where they last a heap swings by more than HAKMEM_RETAIN_MB and does little
 * else: what it would spend on faults without end is worth more than memory that it had in use a moment ago.
 */
size_t hak_retention_capped_max(enum hak_retainer who, unsigned capped);

/* Counts a proved cycle, if it wanted more than may stay, and faulting in so many bytes since then cost much.
 */
void hak_retention_count_capped(unsigned *capped, bool wanted_more, size_t bytes, uint64_t since_ms,
                                uint64_t now_ms);

/* How many bytes of dirty free memory may stay when `live_bytes` are in use. */
size_t hak_retention_floor_bytes(struct retention *r, size_t live_bytes, uint64_t now_ms);

#endif
