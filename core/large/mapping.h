/*
 * mapping.h - mappings: pieces of address space of whole units, each a live block or kept free for reuse.
 *
 * A piece lies in one kernel mapping, or in several whose seams it knows, alone or beside pieces that were
 * cut from the same ("neighbours"; only these are ever joined, so that a block can always be moved by
 * mremap). Neighbours together have no more seams than one piece may. Records are out of band and
 * type-stable. Every function here needs hak_large_lock; none makes a system call. While a thread makes one
 * for a piece, the piece is in transit: its record is that thread's alone. A registry word of kind MAPPED
 * stands for the first unit of exactly the live pieces; a freed one leaves a LARGE_FREED mark there.
 */
#ifndef HAK_LARGE_MAPPING_H
#define HAK_LARGE_MAPPING_H

#include "base/config.h"
#include "large/seams.h"
#include "meta/registry.h"

enum hak_mapping_state {
    HAK_MAPPING_SPARE,   /* the record has no memory */
    HAK_MAPPING_TRANSIT, /* some thread makes a system call for it */
    HAK_MAPPING_LIVE,
    HAK_MAPPING_KEPT,
};

/*
 * Owner: this floor, under hak_large_lock. Invariants: base and bytes are multiples of a unit; dirty_bytes
 * <= bytes, and 0 unless KEPT or TRANSIT; before->after == this when before is not NULL, and likewise after.
 */
struct hak_mapping {
    uintptr_t base;
    size_t bytes;
    size_t dirty_bytes; /* the bytes from here on are known to be zero, while the piece is free */
    enum hak_mapping_state state;
    struct hak_seams seams;     /* all kernel mappings but the first start here */
    struct hak_mapping *before; /* neighbours in the same kernel mapping */
    struct hak_mapping *after;
    struct hak_mapping *newer; /* kept list; spare list (older alone) */
    struct hak_mapping *older;
    struct hak_mapping *all_next; /* const once published: every record ever made */
};

/* What is kept and live, for counting. */
struct hak_mapping_totals {
    size_t live_count;
    size_t live_bytes;
    size_t kept_count;
    size_t kept_bytes;
    size_t seams; /* of all pieces */
};
extern struct hak_mapping_totals hak_mapping_totals;

/* Records: a spare one made TRANSIT, or NULL; new zeroed ones put among the spare. */
bool hak_mapping_has_spare(void);
struct hak_mapping *hak_mapping_take_spare(void);
void hak_mapping_add_spares(struct hak_mapping *records, unsigned count);

/* Every record, to be followed by all_next. */
struct hak_mapping *hak_mapping_first(void);

/* Bytes of a block with a mapping of its own: whole units. `bytes` is at most HAK_BLOCK_BYTES_MAX. */
HAK_INLINE size_t hak_mapping_round(size_t bytes) {
    return hak_round_up(bytes, HAK_UNIT_BYTES);
}

/* Memory that is the caller's becomes a live block: stores its word. The registry is prepared for
 * the first unit. The record's seams are those of the memory already. */
void hak_mapping_transit_to_live(struct hak_mapping *mapping, void *base, size_t bytes);

/* The block is about to be moved: its word becomes a mark, it has no neighbours any more. */
void hak_mapping_live_to_transit(struct hak_mapping *mapping);

/* The block is free: its word becomes a mark; it is joined with kept neighbours. */
void hak_mapping_live_to_kept(struct hak_mapping *mapping);

/* A kept piece is about to be reused, moved, cut or unmapped. Its neighbours stay noted. */
void hak_mapping_kept_to_transit(struct hak_mapping *mapping);
void hak_mapping_transit_to_kept(struct hak_mapping *mapping);
void hak_mapping_transit_to_spare(struct hak_mapping *mapping);

/* The kept piece that serves `bytes` at `align` with least left over, or NULL. */
struct hak_mapping *hak_mapping_best_fit(size_t bytes, size_t align);

/*
 * The kept piece to gather pages from for `bytes` bytes: the one with least more of them than that, else with
 * most. NULL when none has `dirty_min_bytes` or all have more than `seams_max` seams.
 */
struct hak_mapping *hak_mapping_best_to_gather(size_t bytes, size_t dirty_min_bytes, unsigned seams_max);

/* The live piece that contains `p`, or NULL. Goes through all records. */
struct hak_mapping *hak_mapping_around(const void *p);

/* The piece kept longest, or NULL. */
struct hak_mapping *hak_mapping_oldest(void);

/* Cuts a TRANSIT or LIVE piece to `bytes`; the rest becomes a kept piece. False: no spare record, or
 * the rest would start where the registry is not prepared. */
bool hak_mapping_cut(struct hak_mapping *mapping, size_t bytes);

/* Extends a LIVE piece to at least `bytes` over the kept neighbour behind it; false when there is no room. */
bool hak_mapping_absorb(struct hak_mapping *mapping, size_t bytes);

/* The piece loses the seams from `bytes` on, which come out in *gone, since its end is about to be unmapped;
 * and gets them back if that failed. */
void hak_mapping_cut_seams(struct hak_mapping *mapping, size_t bytes, struct hak_seams *gone);
void hak_mapping_restore_seams(struct hak_mapping *mapping, size_t bytes, struct hak_seams *gone);

/* The pages of `part`, a piece in transit, now lie in `mapping` from `offset_bytes` on: a seam there, and the
 * part's. It has none then. */
void hak_mapping_take_seams(struct hak_mapping *mapping, size_t offset_bytes, struct hak_mapping *part);

/* The piece ends its kernel mapping from now on: what lay behind it was unmapped. */
void hak_mapping_sever_after(struct hak_mapping *mapping);

/* The piece was moved away from its neighbours. */
void hak_mapping_sever(struct hak_mapping *mapping);

/* A LIVE piece is `bytes` long now: its end was unmapped, mapped, or is about to be. */
void hak_mapping_resize_live(struct hak_mapping *mapping, size_t bytes);

/* Whether a rest of `rest_bytes` behind a block of `bytes` bytes is worth a piece of its own. */
bool hak_mapping_is_worth_cutting(size_t bytes, size_t rest_bytes);

/* Checks totals, words and neighbours; adds to the sums; sets *why to what broke. */
void hak_mapping_check(size_t *live_bytes, size_t *live_blocks, size_t *dirty_bytes, const char **why);

/* Blocks up to this are cheaply copied. */
#define HAK_MAPPING_COPY_BYTES_MAX ((size_t)4 * 1024 * 1024)

/*
 * Whether a block is to grow as a copy in a kept piece, if one has the pages already: by an eighth or more,
 * and not so long that copying costs more than the faults of the longer block.
 */
HAK_INLINE bool hak_mapping_may_copy(size_t old_bytes, size_t bytes) {
    return old_bytes <= HAK_MAPPING_COPY_BYTES_MAX && bytes - old_bytes >= old_bytes / 8;
}

/* Whether there is a kept piece for `bytes` bytes whose pages are there. Lock held. */
bool hak_mapping_has_warm(size_t bytes);

#endif
