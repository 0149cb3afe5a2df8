/*
 * retain.h - how much free large memory stays with the process: the floor, and what moves it.
 *
 * Free pages that hold stale data ("dirty": a purge would give memory back) stay as long as their sum is
 * within the floor: a MiB, less in a small container, plus a 64th of what is live, or an eighth while the
 * last cycle was proved: at least a third of what was given back was fetched again within a second. The floor
 * rises by the size of a cycle where two running are proved. What lay free at once stays then, or, where it
 * went back bit by bit, as much more as was fetched. It rises by what the floor of slabs leaves of
 * HAKMEM_RETAIN_MB at most, which is more, unless it is set, for cycles that last; beyond that, in a heap
 * whose size goes up and down about a level, by half of what is live at most, and by no more than what is
 * missing to the peak of what was live. It falls as memory lies unused for whole seconds.
 *
 * A mapping most of which is beyond all that was ever live is growth, and fetches nothing. What is freed
 * next, if it is shorter, was copied to it: an array that doubles leaves halves, each too short for what it
 * wants next, and they would come on top of the peak. Of these no more than the 64th stays.
 *
 * Counts and decides, frees nothing itself (release.c does). All state is under hak_large_lock.
 */
#ifndef HAK_LARGE_RETAIN_H
#define HAK_LARGE_RETAIN_H

#include "base/compiler.h"
#include "os/lock.h"
#include "slab/retention.h"

/* The lock of the large floor; everything in core/large that is not const is under it unless it says so. */
extern struct hak_lock hak_large_lock;

/* Const once threads exist, or written under hak_large_lock. */
struct hak_large_policy {
    size_t floor_bytes;         /* dirty bytes that may always stay */
    unsigned floor_live_shift;  /* and the live bytes shifted right by this */
    unsigned proved_live_shift; /* or by this, while the last cycle was proved */
    unsigned proof_count;       /* cycles in a row that prove one */
    uint64_t proof_ms;          /* how soon a cycle's memory must be wanted again; also the step of ageing */
    size_t release_bytes_max;   /* of others' that one operation may give back, 1 MiB more or less */
    size_t kept_count_max;      /* free mappings kept, whatever their size */
    size_t move_min_bytes;      /* realloc moves pages instead of copying from this size up, see run.c */
    _Atomic size_t parked_bytes_max; /* the longest run that is parked (parked.h); read without the lock */
    size_t cut_bytes_max;   /* a kept piece is cut within its first so many bytes: each 4 GiB of them want a
                               leaf */
    size_t seams_count_max; /* seams of all pieces from which on none is gathered: the kernel limits maps */
    size_t moved_count_max; /* live mappings above which realloc copies page runs, for the same reason */
};
extern struct hak_large_policy hak_large_policy;

/* What runs give back no mapping would have used, and the other way round; so each has its cycles. */
enum hak_large_kind { HAK_LARGE_RUNS, HAK_LARGE_MAPPINGS, HAK_LARGE_KINDS };

struct hak_cycle {
    size_t returned_bytes; /* given back in the cycle that runs; 0: none runs */
    size_t fetched_bytes;  /* fetched again in it */
    size_t peak_bytes;     /* dirty_bytes before the giving back, above the floor's constant part */
    uint64_t started_ms;   /* when memory was first given back in it */
    uint64_t returned_ms;  /* and last */
    unsigned proofs;       /* cycles in a row that were fetched again in time */
    unsigned capped;       /* cycles that wanted more than may stay and cost much, since one expired */
};

/*
 * Under hak_large_lock. Invariants: live_bytes is the sum over live runs and live mappings; dirty_bytes the
 * sum over free runs and kept mappings; min_dirty_bytes <= dirty_bytes.
 */
struct hak_retain {
    size_t live_blocks;
    size_t live_bytes;
    size_t dirty_bytes;
    size_t peak_live_bytes; /* the most that live_bytes ever was */
    size_t raised_bytes;    /* what proved cycles raised the floor by, within HAKMEM_RETAIN_MB */
    size_t beyond_bytes;    /* what they want beyond that */
    size_t min_dirty_bytes; /* the least dirty_bytes since min_since_ms: memory that nobody wanted */
    uint64_t min_since_ms;
    uint64_t touched_ms; /* the last operation */
    struct hak_cycle cycles[HAK_LARGE_KINDS];
    size_t outgrown_bytes;  /* what is no longer than this was copied to the last mapping; 0: that was no
                               growth */
    bool is_outgrown;       /* such a mapping was freed in this operation */
    uint64_t over_since_ms; /* when more than the floor was first found, 0: not now */
    struct hak_refusals refusals;
};
extern struct hak_retain hak_retain;

/* To be called first in each operation that changes what is free; `now_ms` from hak_os_now_ms(). Lock held.
 */
void hak_retain_touch(uint64_t now_ms);

/* A block became live or was freed. Lock held. */
void hak_retain_add_live(size_t bytes);
void hak_retain_remove_live(size_t bytes);

/* The mapping that this operation frees had so many bytes. Lock held. */
void hak_retain_note_freed(size_t bytes);

/* Free bytes became dirty, or dirty ones were taken, purged or unmapped. Lock held. */
void hak_retain_add_dirty(size_t bytes);
void hak_retain_remove_dirty(size_t bytes);

/* `bytes` were given back to the system (they are no longer in dirty_bytes). Lock held. */
void hak_retain_returned(enum hak_large_kind kind, size_t bytes, uint64_t now_ms);

/* `bytes` were handed out that the system has yet to fill with pages, where free memory of the kind would
 * have served. Lock held. */
void hak_retain_fetched(enum hak_large_kind kind, size_t bytes, uint64_t now_ms);

/* At start, before there are threads: no more than `bytes` may always stay, since the container is small. */
HAK_COLD void hak_retain_bound_floor(size_t bytes);

/* From now on `bytes` may stay, whatever is live and whatever cycles prove. Takes the lock. */
void hak_retain_set_floor(size_t bytes);

/* How many dirty bytes are to be given back; 0 when the floor is kept. Lock held. */
size_t hak_retain_excess(void);

/* Asks whether dirty_bytes leaves its floor at this moment. Lock held. */
HAK_INLINE bool hak_retain_is_over(void) {
    return hak_retain_excess() != 0;
}

#endif
