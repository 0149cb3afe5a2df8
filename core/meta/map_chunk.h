/*
 * map_chunk.h - a chunk of memory for header maps, for maps.c alone: which of its lines maps have, and which
 * may hold anything but zeros, a bit each. Plain data and arithmetic; every function is called under the lock
 * of arena.h, or before others know of the chunk.
 */
#ifndef HAK_META_MAP_CHUNK_H
#define HAK_META_MAP_CHUNK_H

#include "base/compiler.h"
#include "base/config.h"
#include <stdint.h>

/* What one word of bits is for: the smallest OS page. */
#define HAK_CELL_LINES 64u
#define HAK_CELL_BYTES ((size_t)HAK_CELL_LINES * HAK_CACHE_LINE_BYTES)

/* The most lines that are asked for at once: how long the longest free run is matters as far as that. */
#define HAK_MAP_LINES_MAX 65u

struct hak_map_cell {
    uint64_t used;
    uint64_t stale; /* used lines too: what they hold is not known */
};

/* The first lines of the memory that it is about. Lists, room_list and owed_cells are maps.c's. */
struct hak_map_chunk {
    struct hak_map_chunk *older; /* const */
    struct hak_map_chunk *room_prev, *room_next;
    struct hak_map_chunk *owed_prev, *owed_next;
    uint32_t room_list;
    char *base;             /* const: the first line */
    uint32_t cell_count;    /* const */
    uint32_t own_lines;     /* const: up to the end of this record */
    uint32_t used_lines;    /* those and all maps' */
    uint32_t room_lines;    /* no free run is longer, if that is less than HAK_MAP_LINES_MAX */
    uint32_t full_cells;    /* the first so many have no free line */
    uint32_t dirty_cells;   /* free and stale */
    uint32_t owed_cells;    /* of them, counted as worth a purge; not 0: in the list of those */
    uint32_t purging_cell;  /* what some thread is giving back: marked as used */
    uint32_t purging_cells; /* 0: nothing is */
    bool is_fixed;          /* not in whole pages: nothing of it is ever given back */
    struct hak_map_cell cells[];
};

/* Makes zeroed memory a chunk, whose first `lead_lines` are another's. */
struct hak_map_chunk *hak_map_chunk_make(char *memory, size_t bytes, unsigned lead_lines);

/* The first run of so many free lines. If there is none, room_lines is what there is. */
bool hak_map_chunk_find(struct hak_map_chunk *chunk, unsigned lines, unsigned *first);

/* Marks free lines as used. Whether they are known to be zero. */
bool hak_map_chunk_take(struct hak_map_chunk *chunk, unsigned first, unsigned lines);

/* And as free again. */
void hak_map_chunk_give(struct hak_map_chunk *chunk, unsigned first, unsigned lines);

HAK_INLINE unsigned hak_map_chunk_free_lines(const struct hak_map_chunk *chunk) {
    return chunk->cell_count * HAK_CELL_LINES - chunk->used_lines;
}

/* Marks the first run of whole OS pages of dirty cells, from a cell on, as used and being purged. False if
 * there is none, or some thread is at it. */
bool hak_map_chunk_begin_purge(struct hak_map_chunk *chunk, unsigned from_cell);

/* It is free again. */
void hak_map_chunk_end_purge(struct hak_map_chunk *chunk, bool is_given);

/* What is wrong with its sums; NULL if nothing is. */
HAK_COLD const char *hak_map_chunk_check(const struct hak_map_chunk *chunk);

#endif
