/*
 * maps.c - see maps.h and map_chunk.h.
 *
 * A map gets the first lines that are free, of the chunk that has the least room that will do: so chunks that
 * are little used empty. What room a chunk is known to have is never too little; a search that finds less
 * puts it right, so that each is searched in vain once for each map that it gave out.
 *
 * A chunk is worth a purge when eight times as much of it is free, and holds memory, as is in use: a system
 * call then gives back several pages, and a heap of the smallest blocks, whose maps are longer than a page,
 * makes at most some eighth more calls for them than for its slabs.
 */
#include "meta/maps.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"
#include "meta/arena.h"
#include "meta/map_chunk.h"
#include "os/os.h"

#define SLACK_BYTES 16u /* behind a map: room for the last vector load of a sweep */
_Static_assert(sizeof(struct hak_map_prefix) + HAK_SLAB_BLOCKS_MAX + SLACK_BYTES <=
                   HAK_MAP_LINES_MAX * HAK_CACHE_LINE_BYTES,
               "the longest map is not longer");

#define SHORT_LINES 2u /* of a unit at most a 512th */

#define FIRST_BYTES  HAK_META_BYTES_MAX
#define SECOND_BYTES ((size_t)256 * 1024)
#define CHUNK_BYTES  ((size_t)1024 * 1024)

/* Lists of chunks by the longest map that they may have room for; of those that have room for any by what is
 * free in all, each of twice as much. */
#define DOUBLINGS 9u
#define ROOMS     (HAK_MAP_LINES_MAX + DOUBLINGS)

/* What makes a chunk worth a purge: so many cells, and so many more for each cell's worth of lines in use. */
#define WORTH_CELLS          4u
#define WORTH_CELLS_PER_USED 8u

static struct {
    struct hak_map_chunk *newest;         /* under lock */
    struct hak_map_chunk *rooms[ROOMS];   /* under lock; the first is of full ones */
    uint64_t has_room[(ROOMS + 63) / 64]; /* under lock: which of these lists are not empty, a bit each */
    struct hak_map_chunk *owed;           /* under lock */
    _Atomic size_t owed_cells;            /* written under lock */
} maps;

static unsigned lines_of(unsigned headers) {
    size_t bytes = sizeof(struct hak_map_prefix) + headers + SLACK_BYTES;
    HAK_ASSERT(headers != 0 && headers <= HAK_SLAB_BLOCKS_MAX);
    return (unsigned)((bytes + HAK_CACHE_LINE_BYTES - 1) / HAK_CACHE_LINE_BYTES);
}

static unsigned list_of(const struct hak_map_chunk *c) {
    return c->room_lines < HAK_MAP_LINES_MAX
               ? c->room_lines
               : HAK_MAP_LINES_MAX + hak_log2(hak_map_chunk_free_lines(c) / HAK_MAP_LINES_MAX | 1u);
}

static void note_room(unsigned list) {
    uint64_t bit = (uint64_t)1 << list % 64;
    uint64_t *word = &maps.has_room[list / 64];
    *word = maps.rooms[list] != NULL ? *word | bit : *word & ~bit;
}

/* The first list from that one on that is not empty; ROOMS if there is none. */
static unsigned next_room(unsigned list) {
    for (unsigned i = list / 64; i < sizeof maps.has_room / sizeof maps.has_room[0]; i++) {
        uint64_t left = maps.has_room[i] & (i == list / 64 ? UINT64_MAX << list % 64 : UINT64_MAX);
        if (left != 0) {
            return i * 64 + hak_ctz64(left);
        }
    }
    return ROOMS;
}

static void room_link(struct hak_map_chunk *c) {
    unsigned list = list_of(c);
    c->room_list = list;
    c->room_prev = NULL;
    c->room_next = maps.rooms[list];
    if (c->room_next != NULL) {
        c->room_next->room_prev = c;
    }
    maps.rooms[list] = c;
    note_room(list);
}

static void room_unlink(struct hak_map_chunk *c) {
    *(c->room_prev != NULL ? &c->room_prev->room_next : &maps.rooms[c->room_list]) = c->room_next;
    if (c->room_next != NULL) {
        c->room_next->room_prev = c->room_prev;
    }
    note_room(c->room_list);
}

static void owed_link(struct hak_map_chunk *c) {
    c->owed_prev = NULL;
    c->owed_next = maps.owed;
    if (maps.owed != NULL) {
        maps.owed->owed_prev = c;
    }
    maps.owed = c;
}

static void owed_unlink(struct hak_map_chunk *c) {
    *(c->owed_prev != NULL ? &c->owed_prev->owed_next : &maps.owed) = c->owed_next;
    if (c->owed_next != NULL) {
        c->owed_next->owed_prev = c->owed_prev;
    }
}

/* So many of its cells count as worth a purge. */
static void set_owed(struct hak_map_chunk *c, unsigned cells) {
    if (cells == c->owed_cells) {
        return;
    }
    if (c->owed_cells == 0) {
        owed_link(c);
    } else if (cells == 0) {
        owed_unlink(c);
    }
    /* relaxed: written under the lock, read as a hint */
    size_t sum = hak_atomic_load_relaxed(&maps.owed_cells) + cells - c->owed_cells;
    hak_atomic_store_relaxed(&maps.owed_cells, sum); /* relaxed: as above */
    c->owed_cells = cells;
}

static bool is_worth_a_purge(const struct hak_map_chunk *c) {
    unsigned used_cells = (c->used_lines - c->own_lines) / HAK_CELL_LINES;
    return !c->is_fixed && c->purging_cells == 0 &&
           c->dirty_cells >= WORTH_CELLS + WORTH_CELLS_PER_USED * used_cells;
}

static void update_owed(struct hak_map_chunk *c) {
    set_owed(c, is_worth_a_purge(c) ? c->dirty_cells : 0);
}

/* Puts the chunk into the list that its room asks for. */
static void update_room(struct hak_map_chunk *c) {
    if (list_of(c) != c->room_list) {
        room_unlink(c);
        room_link(c);
    }
}

/* Lines for a map; NULL if no chunk has room. */
static struct hak_map_chunk *take_locked(unsigned lines, unsigned *first, bool *is_zero) {
    for (unsigned list = next_room(lines); list < ROOMS; list = next_room(list + 1)) {
        struct hak_map_chunk *next;
        for (struct hak_map_chunk *c = maps.rooms[list]; c != NULL; c = next) {
            next = c->room_next;
            bool is_found = hak_map_chunk_find(c, lines, first);
            *is_zero = is_found && hak_map_chunk_take(c, *first, lines);
            update_room(c);
            if (c->owed_cells != 0) { /* else it may have been refused */
                update_owed(c);
            }
            if (is_found) {
                return c;
            }
        }
    }
    return NULL;
}

/* How long the next chunk is. The first is a piece of the arena's first, and small processes have no other.
 */
static size_t next_bytes(void) {
    hak_lock_acquire(&hak_meta_lock);
    size_t bytes = maps.newest == NULL          ? FIRST_BYTES
                   : maps.newest->older == NULL ? SECOND_BYTES
                                                : CHUNK_BYTES;
    hak_lock_release(&hak_meta_lock);
    return bytes;
}

/* Threads that race here each add a chunk; both are used up. */
static bool grow(void) {
    size_t bytes = next_bytes();
    bool is_first = bytes == FIRST_BYTES;
    char *memory = is_first ? hak_meta_alloc(bytes) : hak_meta_map_chunk(bytes);
    if (memory == NULL) {
        return false;
    }
    struct hak_map_chunk *c = hak_map_chunk_make(memory, bytes, is_first ? 0 : HAK_META_CHUNK_LEAD_LINES);
    hak_lock_acquire(&hak_meta_lock);
    c->older = maps.newest;
    maps.newest = c;
    room_link(c);
    hak_lock_release(&hak_meta_lock);
    return true;
}

bool hak_map_is_as_long(unsigned headers, unsigned others) {
    return lines_of(headers) == lines_of(others);
}

bool hak_map_is_short(unsigned headers) {
    return lines_of(headers) <= SHORT_LINES;
}

void hak_map_clear(_Atomic uint8_t *map, unsigned headers) {
    size_t bytes = (size_t)lines_of(headers) * HAK_CACHE_LINE_BYTES - sizeof(struct hak_map_prefix);
    hak_meta_clear((void *)map, bytes);
}

_Atomic uint8_t *hak_map_alloc(unsigned headers, void *owner) {
    unsigned lines = lines_of(headers);
    unsigned first;
    bool is_zero;
    for (;;) {
        hak_lock_acquire(&hak_meta_lock);
        struct hak_map_chunk *c = take_locked(lines, &first, &is_zero);
        hak_lock_release(&hak_meta_lock);
        if (c != NULL) {
            char *memory = c->base + (size_t)first * HAK_CACHE_LINE_BYTES;
            struct hak_map_prefix *prefix = (struct hak_map_prefix *)(void *)memory;
            _Atomic uint8_t *map = (_Atomic uint8_t *)(void *)(prefix + 1);
            if (!is_zero) {
                hak_map_clear(map, headers);
            }
            /* relaxed: the registry's word or the slab's tells others of the map */
            hak_atomic_store_relaxed(&prefix->owner, owner);
            hak_atomic_store_relaxed(&prefix->chunk, c); /* relaxed: as above */
            return map;
        }
        if (!grow()) {
            return NULL;
        }
    }
}

void hak_map_free(_Atomic uint8_t *map, unsigned headers) {
    const struct hak_map_prefix *prefix = (const struct hak_map_prefix *)(const void *)map - 1;
    struct hak_map_chunk *c = hak_atomic_load_relaxed(&prefix->chunk); /* relaxed: see hak_map_owner() */
    unsigned first = (unsigned)((size_t)((const char *)prefix - c->base) / HAK_CACHE_LINE_BYTES);
    unsigned lines = lines_of(headers);
    hak_lock_acquire(&hak_meta_lock);
    hak_map_chunk_give(c, first, lines);
    update_room(c);
    update_owed(c);
    hak_lock_release(&hak_meta_lock);
}

size_t hak_maps_owed_bytes(void) {
    return hak_atomic_load_relaxed(&maps.owed_cells) * HAK_CELL_BYTES; /* relaxed: a hint */
}

/* False when it is refused. The lock is held on entry, and again at the end. */
static bool purge_marked(struct hak_map_chunk *c, size_t *given_bytes) {
    set_owed(c, 0);
    size_t bytes = c->purging_cells * HAK_CELL_BYTES;
    char *memory = c->base + c->purging_cell * HAK_CELL_BYTES;
    hak_lock_release(&hak_meta_lock);
    bool is_given = hak_os_purge(memory, bytes) == 0;
    hak_lock_acquire(&hak_meta_lock);
    hak_map_chunk_end_purge(c, is_given);
    update_room(c);
    if (is_given) {
        *given_bytes += bytes;
        update_owed(c);
    }
    return is_given;
}

unsigned hak_maps_purge(size_t *given_bytes) {
    struct hak_map_chunk *c;
    hak_lock_acquire(&hak_meta_lock);
    while ((c = maps.owed) != NULL && !hak_map_chunk_begin_purge(c, 0)) {
        set_owed(c, 0); /* OS pages are longer than what is free */
    }
    if (c != NULL) {
        (void)purge_marked(c, given_bytes);
    }
    hak_lock_release(&hak_meta_lock);
    return c != NULL;
}

size_t hak_maps_trim(void) {
    size_t given_bytes = 0;
    hak_lock_acquire(&hak_meta_lock);
    for (struct hak_map_chunk *c = maps.newest; c != NULL; c = c->older) {
        unsigned from_cell = 0;
        bool is_given = true;
        while (is_given && hak_map_chunk_begin_purge(c, from_cell)) {
            from_cell = c->purging_cell + c->purging_cells;
            is_given = purge_marked(c, &given_bytes);
        }
    }
    hak_lock_release(&hak_meta_lock);
    return given_bytes;
}

void hak_maps_rebuild(void) {
    hak_lock_acquire(&hak_meta_lock);
    for (struct hak_map_chunk *c = maps.newest; c != NULL; c = c->older) {
        if (c->purging_cells != 0) {
            hak_map_chunk_end_purge(c, false);
            update_room(c);
            update_owed(c);
        }
    }
    hak_lock_release(&hak_meta_lock);
}

static const char *check_sum(void) {
    size_t owed_cells = 0;
    hak_lock_acquire(&hak_meta_lock);
    for (const struct hak_map_chunk *c = maps.newest; c != NULL; c = c->older) {
        owed_cells += c->owed_cells;
    }
    /* relaxed: written under the lock */
    bool is_sum = owed_cells == hak_atomic_load_relaxed(&maps.owed_cells);
    hak_lock_release(&hak_meta_lock);
    return is_sum ? NULL : "header maps: what is to be purged is not the sum of all chunks";
}

bool hak_maps_verify(const char **why) {
    const char *broken = NULL;
    hak_lock_acquire(&hak_meta_lock);
    const struct hak_map_chunk *c = maps.newest;
    hak_lock_release(&hak_meta_lock);
    /* One at a time: who wants a map waits no longer than for that. */
    for (; c != NULL && broken == NULL; c = c->older) {
        hak_lock_acquire(&hak_meta_lock);
        broken = hak_map_chunk_check(c);
        hak_lock_release(&hak_meta_lock);
    }
    broken = broken != NULL ? broken : check_sum();
    if (broken != NULL) {
        *why = broken;
    }
    return broken == NULL;
}
