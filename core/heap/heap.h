/*
 * heap.h - a thread's heap: per class a unified cache, a current slab, a warm pool; and the table of all
 * heaps.
 *
 * The hot part is thread-local: one pointer per class. Until a class is hot in a thread (and before there is
 * a heap at all) it points at a static empty cache, which is full as well, so that neither the allocation
 * path nor the free path tests for "initialised". Records are never unmapped and are reused by later threads.
 */
#ifndef HAK_HEAP_HEAP_H
#define HAK_HEAP_HEAP_H

#include "base/compiler.h"
#include "base/config.h"
#include "heap/counters.h"
#include "slab/blocks.h"
#include "slab/huge.h"
#include "slab/slab_list.h"

#define HAK_WARM_SLABS_MAX 16u

/* Stands in the slot above a cache's last one: a push that finds it there has no room. */
#define HAK_CACHE_STOP ((void *)1)

/* How far a class swings, see width.h. Owner: the heap's thread. */
struct class_width {
    uint16_t spilled_blocks; /* since the last row of refills */
    uint16_t swing_blocks;   /* spilled by the smallest of the swings in a row */
    uint16_t least_blocks;   /* in the cache at looks: fewest, */
    uint16_t most_blocks;    /* and most */
    uint16_t sample_blocks;  /* of the last spill that was large enough to judge by, 0: none yet; */
    uint16_t sample_units;   /* these lay in so many units */
    uint8_t looks;           /* of that, so far */
    uint8_t swings;          /* deep ones in a row */
    uint8_t shallow;         /* those of at most half the capacity, in a row */
    uint8_t halves;          /* of these, those of half of it, in a row */
    uint8_t doublings;       /* of the plain bound */
    uint8_t proofs;          /* times that few blocks were not enough, up to those that double the bound */
    bool is_ending;          /* spills narrow the cache until the next row of refills */
    uint32_t kept_kib;       /* what the cache may keep from going back since it spilled far once more */
    uint32_t ended_ms;       /* when spills in a row last went through twice the capacity, low bits */
};

/*
 * Per class of a heap. Owner: the heap's thread.
 * Array: [0] has block NULL (pop finds the cache empty), [1 .. capacity_blocks] entries, [capacity_blocks +
 * 1] has block HAK_CACHE_STOP. The top pointer points one past the newest entry.
 */
struct class_state {
    struct block_ref *array;               /* NULL while the class is cold */
    void *marked_block;                    /* that stood there */
    struct block_ref *metered_top;         /* the top pointer while the front is metered, else NULL */
    struct slab *current;                  /* hint: the slab that the last refill did not exhaust */
    struct slab *warm[HAK_WARM_SLABS_MAX]; /* hints, the newest last */
    uint16_t capacity_blocks;              /* 0 while cold */
    uint16_t refill_blocks;                /* how many a refill asks for */
    uint16_t refills_in_row;               /* since the last spill */
    uint16_t staying_blocks;               /* while it has fewer, a foreign one may stay (homeward.h), */
    uint16_t staying_max;                  /* or so many, if the thread's share has pages for them */
    uint16_t marked;                       /* position in the array, 0: none; see hak_cache_mark() */
    uint8_t warm_count;                    /* slabs in `warm` */
    uint8_t heat;                          /* operations on this class while cold */
    uint8_t misses_in_row;                 /* refills in a row that found no slab in the warm pool */
    uint8_t refills_alone;                 /* in a row, between which it was not seen to send a block home */
    bool is_used : 1;                      /* anything here needs flushing at exit */
    bool exports : 1;                      /* what is allocated here others free: see supply.h */
    bool has_begun : 1;                    /* a new slab was taken for this thread */
    struct class_width width;
    struct front_counters counters;
};

/* Freed blocks of other threads' slabs, see homeward.h. Owner: the heap's thread. */
struct homeward {
    struct tally tally;
    _Atomic unsigned count; /* blocks since the last flush: at least those that are not counted yet */
    unsigned count_max;     /* so many are counted at once, */
    int64_t bytes_left;     /* or so many bytes of blocks more */
    int32_t pages_left;     /* that caches may pin beyond what each may in any case (staying_blocks) */
    uint32_t refusals_left; /* until it is counted anew */
    uint32_t row_left;      /* blocks that may stay before the thread allocates again, */
    int64_t until_slow;     /* which it has done when its own (struct hak_tls) is another */
};

/* What all caches of a thread have spilled in a row, without a refill, see width.h. Owner: the heap's thread.
 */
struct spill_row {
    size_t bytes;      /* of classes that are not wide */
    uint32_t ended_ms; /* when that last was much, low bits */
    bool is_ending;    /* each further spill narrows one class more: it is the end of something, */
    bool keeps_much;   /* or came too soon for that and keeps too much */
    uint8_t narrowed;  /* so many classes have become narrow for it */
};

#define HAK_NEVER_SLOW          INT64_MAX       /* allocations: more than a thread makes */
#define HAK_ALWAYS_SLOW         (INT64_MIN / 2) /* and each of so many is a slow one */
#define HAK_UPKEEP_ALLOCATIONS  16384           /* from one upkeep to the next: see upkeep.h; */
#define HAK_UPKEEP_WHILE_RAGGED 2048 /* at most, while ragged slabs wait for turns that time gives */

/* See sampled.h. Owner: the heap's thread. */
struct sampling {
    uint64_t chance;    /* state of a generator */
    int64_t until_slow; /* what the last thread that had this heap left */
    int64_t left;       /* of the interval, beyond what hak_tls.until_slow counts */
};

struct heap {
    uint32_t id;               /* const: position in the table, from 1 on */
    bool is_metered;           /* owner only: the front's tops are parked in metered_top */
    uint8_t turns_due;         /* owner only: of ragged slabs, for new ones that were taken (slab/ragged.h) */
    bool has_given_back;       /* owner only: what this operation may, before its refill */
    uint16_t ragged_gap;       /* owner only: allocations from one look after ragged slabs to the next */
    int32_t until_look;        /* owner only: about as many until classes are looked at again */
    uint32_t looked_ms;        /* owner only: when the marks of all were looked at last, low bits */
    uint64_t unused;           /* owner only: mask of classes whose marks nobody had come to then */
    uint32_t guest_bytes_left; /* owner only: of guests, until a turn is due as for a new slab */
    struct huge_watch huge_watch; /* owner only */
    struct heap *next_free;       /* under the heaps lock */
    _Atomic bool is_attached;     /* written under the heaps lock: some thread has it */
    /* From here on a line that others write. */
    _Alignas(HAK_CACHE_LINE_BYTES) struct slab_list remote; /* slabs that were full and got frees of others */
    _Atomic uint64_t remote_waits_since_ms;   /* 0 unless others have seen it wait: see sleepers.h */
    _Atomic size_t remote_waits_since_mapped; /* so many SuperSlabs were mapped then */
    uint32_t looked_at;                       /* owner only: the heap that it looked at last in sleepers.c */
    uint64_t wide;                            /* owner only: mask of classes that are wider, see width.h */
    struct spill_row row;
    struct homeward homeward;
    struct sampling sampling;
    struct class_state classes[HAK_CLASS_COUNT];
};

enum hak_thread_state {
    HAK_THREAD_FRESH,    /* never allocated */
    HAK_THREAD_ATTACHED, /* has a heap */
    HAK_THREAD_EXITED,   /* its heap is gone; the last destructors get theirs block by block */
};

#define HAK_LOW_OF_NO_HEAP (1u << HAK_WORD_LOW_BITS) /* above every word's lower bits */

struct hak_tls {
    struct block_ref *top[HAK_CLASS_COUNT + 1]; /* the last is of no class, and always HAK_NO_CACHE_TOP */
    struct heap *heap;                          /* NULL unless ATTACHED */
    uint32_t low;  /* hak_word_low_of_heap() of it; without a heap such that no word is of a class */
    uint8_t state; /* enum hak_thread_state */
    uint8_t exit_rounds;
    int64_t until_slow; /* allocations before one is slow: upkeep.h, sampled.h; below 0: now */
};
extern HAK_TLS struct hak_tls hak_tls;

_Static_assert(sizeof(struct hak_tls) <= 416, "with what else is thread-local, dlopen allows 448 bytes");

/* The empty and full cache: bottom and stop alone. */
extern struct block_ref hak_no_cache[2];
#define HAK_NO_CACHE_TOP (&hak_no_cache[1])

/* The heap of the calling thread, made if need be; NULL for a thread that has exited or when out of memory.
 */
struct heap *hak_heap_attach(void);

/* The end of the thread that has this heap, which must be the caller's, is of interest from now on: whether
 * it has given it back, whoever has it then. */
void hak_heap_watch_end(const struct heap *heap);
bool hak_heap_watched_has_ended(void);

/* Fills the caller's heap's caches as HAKMEM_TINY_PREWARM_ asks; what they hold already counts. */
void hak_heap_prewarm(struct heap *heap);

/*
 * Parks the calling thread's tops, so that every allocation and free comes to the slow path, or puts them
 * back. Its frees of whatever block then fail the gate's first compare.
 */
void hak_heap_set_metered(struct heap *heap, bool is_metered);

/* A heap for one operation of a thread that cannot have one; NULL when out of memory. */
struct heap *hak_heap_borrow(void);
void hak_heap_give_back(struct heap *heap);

/* The heap with that number, attached or not; NULL if there never was one. */
struct heap *hak_heap_by_id(uint32_t id);

/* Highest number of a heap so far. */
uint32_t hak_heap_last_id(void);

/* Whether a thread that had a heap has ended. Any thread. */
bool hak_heap_has_changed_hands(void);

/* Heaps that some thread has, now. Any thread. */
uint32_t hak_heap_attached_count(void);

/*
 * Returns everything that the heap holds, caches and warm slabs, so that any thread can use it. Its arrays
 * stay if keep_arrays. The owner calls; what the child of a fork does with the heaps of others: child.h.
 */
void hak_heap_flush(struct heap *heap, bool keep_arrays);

/*
 * In the child of a fork, alone: the heaps of all threads but the survivor's become free, without looking at
 * what their owners, cut off anywhere, had in hand; lists of remote frees are emptied. Small arrays are lost.
 */
HAK_COLD void hak_heap_abandon_others(struct heap *survivor);

/* Sees to a slab after an event, lease held: lists it where its owner finds it, or retires it. Slow: no lock
 * held. */
void hak_heap_handle_event(struct slab *slab, enum hak_slab_event event, void *heap_or_null);

/* Sums of the class's counters over all threads, living and gone. */
HAK_COLD void hak_heap_sum_counters(unsigned class_idx, struct front_counts *sums);

extern struct hak_lock hak_heaps_lock;

/* The top pointer of a class, wherever it is kept now. */
HAK_INLINE struct block_ref **hak_heap_top_slot(struct heap *heap, unsigned class_idx) {
    return heap->is_metered ? &heap->classes[class_idx].metered_top : &hak_tls.top[class_idx];
}

#endif
