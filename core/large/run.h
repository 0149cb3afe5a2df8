/*
 * run.h - blocks that are page runs of an extent: allocation, freeing, growing in place, moving out.
 *
 * Takes hak_large_lock itself; the caller holds no lock. Any thread.
 */
#ifndef HAK_LARGE_RUN_H
#define HAK_LARGE_RUN_H

#include "large/extent.h"

/* Whether a block of `bytes` at `align` can be a run at all. */
bool hak_run_can_hold(size_t bytes, size_t align);

/*
 * Makes a live run of at least `bytes` bytes at `align`, taking a SuperSlab when no extent has room. False
 * when out of memory. run->dirty says which pages are not known to be zero.
 */
bool hak_run_alloc(size_t bytes, size_t align, struct hak_run *run);

/* Zeroes what is dirty of the first `bytes` bytes. */
void hak_run_zero(const struct hak_run *run, size_t bytes);

/* Frees the live run that starts exactly at `p`; false when there is none. */
bool hak_run_free(struct hak_extent *extent, const void *p);

/* Frees a run that was taken out of its slot and is nobody's (parked.h). */
void hak_run_free_parked(const void *p);

/* Bytes of the live run that starts exactly at `p`; 0 when there is none. */
size_t hak_run_bytes(const struct hak_extent *extent, const void *p);

enum hak_run_fit {
    HAK_RUN_NOT_LIVE, /* no live run starts at p */
    HAK_RUN_RESIZED,  /* done, in place */
    HAK_RUN_HELD,     /* no room, but to be moved: the run is held for hak_run_moved() */
    HAK_RUN_NO_ROOM,  /* no room, and too short to be moved */
    HAK_RUN_COPY,     /* no room, and better copied, unless little of it holds anything */
};

/* Under hak_large_lock. */
struct hak_run_growth {
    unsigned moves_left;  /* before runs that grow are copied where that is better */
    unsigned cold_copies; /* to memory without pages, more than to such that has them */
};
extern struct hak_run_growth hak_run_growth;

/* What a copy would be, if there may be one where the pages could move. */
enum hak_copy { HAK_COPY_NONE, HAK_COPY_RUN, HAK_COPY_MAPPED };

/* Makes the live run at `p` as long as `bytes` ask for, if it can be done in place. *old_bytes: its length.
 */
enum hak_run_fit hak_run_resize(struct hak_extent *extent, const void *p, size_t bytes, enum hak_copy copy,
                                size_t *old_bytes);

/* A run was copied because it was better; is_cold: to memory that has no pages yet. */
void hak_run_note_copied(bool is_cold);

/* The held run's pages were moved away and it reads as zeros (true): it is free. Or they were not: live. */
void hak_run_moved(struct hak_extent *extent, const void *p, bool has_moved);

#endif
