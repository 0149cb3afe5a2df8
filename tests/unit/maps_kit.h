/*
 * maps_kit.h - what the suites of header maps share: maps that know what is in them, and a chunk of memory
 * that holds maps of the test's alone.
 */
#ifndef HAK_TESTS_UNIT_MAPS_KIT_H
#define HAK_TESTS_UNIT_MAPS_KIT_H

#include "base/config.h"
#include "meta/arena.h"
#include "meta/map_chunk.h"
#include "meta/maps.h"
#include "os/os.h"
#include "support/test.h"

#include <stdbool.h>
#include <string.h>

#define SLACK_BYTES      16u                                              /* readable behind a map */
#define CHUNK_LINES      ((size_t)1024 * 1024 / HAK_CACHE_LINE_BYTES)     /* of all but the first two */
#define LINES_OF_LONGEST (HAK_SLAB_BLOCKS_MAX / HAK_CACHE_LINE_BYTES + 1) /* a map with its ends */
#define WHOLE_MAPS       (CHUNK_LINES / LINES_OF_LONGEST)                 /* of those in a chunk, at most */
#define FILLERS_MAX      2048u

static inline void check_maps(void) {
    const char *why = "";
    if (!hak_maps_verify(&why)) {
        print_error("%s\n", why);
        CHECK(!"header maps are sound");
    }
}

struct range {
    const char *start;
    size_t bytes;
};

static inline bool are_disjoint(struct range a, struct range b) {
    return a.start + a.bytes <= b.start || b.start + b.bytes <= a.start;
}

struct map {
    _Atomic uint8_t *headers;
    unsigned count;
    uint8_t value; /* of all of them, and of the slack */
};

static inline struct hak_map_chunk *chunk_of(const struct map *map) {
    return ((const struct hak_map_prefix *)(const void *)map->headers - 1)->chunk;
}

/* Aligned, zero, and its owner's; then it is written to, every time with another value. */
static inline void map_take(struct map *map, unsigned count) {
    static uint8_t last_value;
    map->headers = hak_map_alloc(count, map);
    CHECK(map->headers != NULL && (uintptr_t)map->headers % HAK_ALIGN_BYTES == 0);
    map->count = count;
    last_value = (uint8_t)(last_value % UINT8_MAX + 1);
    map->value = last_value;
    for (unsigned i = 0; i < count + SLACK_BYTES; i++) {
        CHECK(map->headers[i] == HAK_HEADER_NEVER);
    }
    memset((void *)(uintptr_t)map->headers, map->value, count + SLACK_BYTES);
}

static inline void map_check(const struct map *map) {
    if (map->headers != NULL) {
        CHECK(hak_map_owner(map->headers) == map);
        for (unsigned i = 0; i < map->count + SLACK_BYTES; i++) {
            CHECK(map->headers[i] == map->value);
        }
    }
}

static inline void map_give(struct map *map) {
    map_check(map);
    hak_map_free(map->headers, map->count);
    map->headers = NULL;
}

/* Purges until nothing is owed. Bytes. */
static inline size_t purge_all(void) {
    size_t given_bytes = 0;
    for (unsigned calls = 0; hak_maps_purge(&given_bytes) != 0; calls++) {
        CHECK(calls < CHUNK_LINES); /* or what has gone back is still owed */
    }
    return given_bytes;
}

/* A chunk that nobody else has maps in. What is free elsewhere is taken, for as long as it lasts. */
struct whole {
    struct hak_map_chunk *chunk;
    struct map maps[WHOLE_MAPS + 1];
    unsigned count;
};

static struct map fillers[FILLERS_MAX];
static unsigned fillers_count, wholes_count;

static inline unsigned lines_for_maps(const struct hak_map_chunk *c) {
    return c->cell_count * HAK_CELL_LINES - c->own_lines;
}

/* The first of its maps is there. */
static inline void begin_chunk(struct whole *whole) {
    for (;; fillers_count++) {
        struct map *map = &fillers[fillers_count];
        CHECK(fillers_count < FILLERS_MAX);
        map_take(map, HAK_SLAB_BLOCKS_MAX);
        whole->chunk = chunk_of(map);
        if (whole->chunk->cell_count * HAK_CELL_LINES == CHUNK_LINES &&
            whole->chunk->used_lines - whole->chunk->own_lines == LINES_OF_LONGEST) {
            map_give(map);
            break;
        }
    }
    whole->count = 0;
    wholes_count++;
}

/* Of the longest maps, as many as it has room for. */
static inline void fill_chunk(struct whole *whole) {
    begin_chunk(whole);
    unsigned most = lines_for_maps(whole->chunk) / LINES_OF_LONGEST;
    for (; whole->count < most; whole->count++) {
        map_take(&whole->maps[whole->count], HAK_SLAB_BLOCKS_MAX);
        CHECK(chunk_of(&whole->maps[whole->count]) == whole->chunk);
    }
}

/* Frees those maps but every so many-th; 0: all. */
static inline void give_maps(struct whole *whole, unsigned from, unsigned end, unsigned keep_every) {
    for (unsigned i = from; i < end; i++) {
        if (whole->maps[i].headers != NULL && (keep_every == 0 || i % keep_every != 0)) {
            map_give(&whole->maps[i]);
        }
    }
}

static inline void end_chunk(struct whole *whole) {
    give_maps(whole, 0, whole->count, 0);
    CHECK(wholes_count != 0);
    if (--wholes_count == 0) {
        while (fillers_count != 0) {
            map_give(&fillers[--fillers_count]);
        }
    }
}

/* In memory are pages of which lines are in use, and no others. */
static inline void check_pages(const struct hak_map_chunk *c, bool (*is_resident)(const char *page)) {
    unsigned page_cells = (unsigned)(hak_os_page_bytes() / HAK_CELL_BYTES);
    for (unsigned cell = 0; cell < c->cell_count; cell += page_cells) {
        uint64_t used = 0;
        for (unsigned i = 0; i < page_cells; i++) {
            used |= c->cells[cell + i].used;
        }
        CHECK(is_resident(c->base + cell * HAK_CELL_BYTES) == (used != 0));
    }
}

#endif
