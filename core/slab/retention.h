/*
 * retention.h - how much free memory the slab side keeps instead of giving it back.
 *
 * The floor is a fraction of what is in use plus a few MiB. It rises only for a heap that has proved to need
 * it: in three windows of a second in a row, half of what was purged was wanted again. It then rises by what
 * was purged in such a window, at most by HAKMEM_RETAIN_MB, and falls with each second by half of what lay
 * unused all through it. Plain data and arithmetic; every function is called under the SuperSlab lock.
 */
#ifndef HAK_SLAB_RETENTION_H
#define HAK_SLAB_RETENTION_H

#include "base/compiler.h"
#include <stdint.h>

struct retention {
    uint64_t window_start_ms;
    size_t purged_bytes;    /* in this window */
    size_t rewanted_bytes;  /* in this window: purged memory that was handed out again */
    size_t raised_bytes;    /* what the floor has risen by */
    size_t dirty_bytes;     /* now */
    size_t min_dirty_bytes; /* the least in this window: memory that nobody wanted */
    unsigned strikes;       /* windows of ping-pong in a row, at most STRIKES_TO_RAISE */
    bool is_set;            /* the program has said how much may stay */
    size_t set_bytes;       /* and this is it */
};

void hak_retention_note_purged(struct retention *r, size_t bytes, uint64_t now_ms);
void hak_retention_note_rewanted(struct retention *r, size_t bytes, uint64_t now_ms);

/* Dirty free memory grew or shrank to this. */
void hak_retention_note_dirty(struct retention *r, size_t dirty_bytes);

/* From now on `bytes` may stay, whatever is in use and however soon it is wanted again. */
void hak_retention_set(struct retention *r, size_t bytes);

/* Dirty free memory of up to this may stay in any case. */
#define HAK_RETENTION_BASE_BYTES ((size_t)4 * 1024 * 1024)

/* How many bytes of dirty free memory may stay when `live_bytes` are in use. */
size_t hak_retention_floor_bytes(struct retention *r, size_t live_bytes, uint64_t now_ms);

#endif
