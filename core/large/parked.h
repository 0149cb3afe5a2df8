/*
 * parked.h - page runs that were freed a moment ago and are likely to be asked for again at once: no lock, no
 * search, some hundred instructions for a pair of malloc and free.
 *
 * A slot says what is wanted: a length in OS pages that was asked for twice, with no other length of that
 * slot in between, and not found here. A free of that length fills it, the next request of that length
 * empties it. Once is not enough: a program that starts reads files of as many lengths as there are files.
 * It is enough from when 8 MiB were live, beside which what is parked is little.
 * For everybody else a parked run is a live one of its extent, only not handed out (extent.h). Process-wide,
 * in a few shards against threads that meet: at most HAK_PARKED_SLOTS runs of at most HAK_PARKED_BYTES_MAX,
 * so memory does not grow with threads; whatever gives memory back empties the slots first. A run that is on
 * its way to or from a slot when another thread forks is nobody's in the child, which frees it.
 */
#ifndef HAK_LARGE_PARKED_H
#define HAK_LARGE_PARKED_H

#include "large/extent.h"

#define HAK_PARKED_BYTES_MAX ((size_t)256 * 1024)
#define HAK_PARKED_SHARDS    4u
#define HAK_PARKED_LENGTHS   8u /* slots of a shard, chosen by length */
#define HAK_PARKED_SLOTS     (HAK_PARKED_SHARDS * HAK_PARKED_LENGTHS)

/*
 * A run of exactly the pages that `bytes` bytes need, handed out now; or NULL, and if the length was asked
 * for before it is wanted from now on. *evicted: NULL, or a run that had to make room, no longer parked, to
 * be freed by hak_run_free_parked(). Any thread, no lock held.
 */
void *hak_parked_take(size_t bytes, void **evicted);

/* Parks the run that starts at `p`, if it is handed out and its length is wanted; false: nothing has changed.
 */
bool hak_parked_put(struct hak_extent *extent, void *p);

/* So much is live now, in blocks of this floor. Under hak_large_lock. */
void hak_parked_note_live(size_t live_bytes);

/* Empties every slot: their runs are free and dirty. Under hak_large_lock. */
void hak_parked_flush(void);

/* Forgets every slot and what was live, for the child of a fork. */
void hak_parked_reset(void);

/* What is parked at this moment: exact while no other thread allocates or frees. */
struct hak_parked_sums {
    size_t blocks;
    size_t bytes;
};
struct hak_parked_sums hak_parked_count(void);

#endif
