/*
 * parked.h - page runs that were freed a moment ago and are likely to be asked for again: no lock, no search
 * of all that is free.
 *
 * In each shard the run that came last, if there was none, has a slot of its own, where both ends of a buffer
 * at a time go first (some 200 instructions); the others lie in rows by their length (parked_slots.h).
 *
 * A free parks a run whose length is wanted: one that was asked for twice, with no other length of the same
 * remainder in between. Once is not enough: a program that starts reads files of as many lengths as there are
 * files. From when 8 MiB were live every length is wanted, since what is parked is little beside that; and
 * from when 512 runs were freed within 8 ms, up to a greater length, since buffers then come and go so fast
 * that the lock is what they wait for. A request takes a run that is at most an eighth longer than it needs;
 * after those 512, if there is none, one of up to twice its length, the one in the slot of its own of up to
 * four times, on loan. Few are out on loan at a time. Those that never come back are forgotten by halves, one
 * in 128 requests at most, so little memory lies unused that way for long. For everybody else a parked run is
 * a live one of its extent, only not handed out (extent.h). Process-wide, in a shard for each processor or
 * so, at least four, against threads that meet; so memory does not grow with threads; each parks within a
 * bound, for which older runs make room, and whatever gives memory back empties them first. A run that is on
 * its way to or from a shard when another thread forks is nobody's in the child, which frees it.
 */
#ifndef HAK_LARGE_PARKED_H
#define HAK_LARGE_PARKED_H

#include "large/extent.h"

#define HAK_PARKED_BYTES_MAX  ((size_t)256 * 1024)  /* of a run, */
#define HAK_PARKED_BUSY_MAX   ((size_t)1024 * 1024) /* or where buffers come and go fast */
#define HAK_PARKED_REMAINDERS 8u

/* What a shard may park, beside its part of the share of what is live that the floor has (retain.h); twice as
 * much where buffers come and go fast, or three times, if all shards together then park no more than that. */
#define HAK_PARKED_SHARD_BYTES ((size_t)512 * 1024)
#define HAK_PARKED_BUSY_BYTES  ((size_t)12 * 1024 * 1024)

/*
 * A run of the pages that `bytes` bytes need, or some more, handed out now; or NULL, and if the length was
 * asked for before it is wanted from now on. Any thread, no lock held.
 */
void *hak_parked_take(size_t bytes);

/* Its halves, in this order: from where a buffer at a time comes to lie, and from elsewhere. */
void *hak_parked_take_latest(size_t bytes);
void *hak_parked_take_other(size_t bytes);

/*
 * Parks the run that starts at `p`, if it is handed out and its length is wanted; false: it is as it was.
 * *evicted: NULL, or a run that had to make room, no longer parked, to be freed by hak_run_free_parked(). Any
 * thread, no lock held.
 */
bool hak_parked_put(struct hak_extent *extent, void *p, void **evicted);

/* The same where hak_parked_take_latest() finds it; false: hak_parked_put() may have room, or there is none.
 */
bool hak_parked_put_latest(struct hak_extent *extent, void *p);

/* So much is live now, in blocks of this floor, and so much may stay for that. Under hak_large_lock. */
void hak_parked_note_live(size_t live_bytes, size_t share_bytes);

/* A run on loan is at most so many times as long as what it was asked for, but for the latest one. */
#define HAK_PARKED_LOAN_FACTOR 2u

/* Whether a run of `run_bytes` may serve a request of `bytes`, both whole OS pages, on loan. */
HAK_INLINE bool hak_parked_may_lend(size_t bytes, size_t run_bytes) {
    return bytes <= run_bytes && run_bytes <= bytes * HAK_PARKED_LOAN_FACTOR;
}

/* A run was freed under hak_large_lock, past here. */
void hak_parked_note_free(uint64_t now_ms);

/*
 * Empties every shard: the runs are free and dirty. A run whose row is not noted, because two threads noted
 * something at once, stays until the next recount, unless it is thorough: then it looks at all slots, which
 * other processors write. Under hak_large_lock.
 */
HAK_COLD void hak_parked_flush(bool is_thorough);

/* Forgets every run, what was asked for and what was live, for the child of a fork. */
void hak_parked_reset(void);

/* What is parked at this moment: exact while no other thread allocates or frees. A run that moves from one
 * slot to another meanwhile may count twice, or not at all. */
struct hak_parked_sums {
    size_t blocks;
    size_t bytes;
};
struct hak_parked_sums hak_parked_count(void);

#endif
