/*
 * maps.h - memory for header maps: given out in cache lines, and back to the system an OS page at a time.
 *
 * Apart from all other records: memory that was once a map is never anything else, holds no links while it is
 * free, stays mapped, and is cleared by atomic stores, because a look-up of a stale or wild pointer may read
 * it at any time. Any thread; under the lock of arena.h, which is not held across system calls.
 */
#ifndef HAK_META_MAPS_H
#define HAK_META_MAPS_H

#include "base/atomic.h"
#include "base/compiler.h"
#include <stdint.h>

struct hak_map_chunk;

/*
 * What stands before each map that is in use; it keeps the map 16-byte aligned. Stored atomically, since a
 * stale look-up may take it for headers of a map that was longer; read by who knows the map to be in use.
 */
struct hak_map_prefix {
    _Atomic(void *) owner;
    _Atomic(struct hak_map_chunk *) chunk;
};

/* A map of so many headers, at most HAK_SLAB_BLOCKS_MAX, all NEVER, readable 16 bytes beyond its end; NULL
 * when out of memory. */
_Atomic uint8_t *hak_map_alloc(unsigned headers, void *owner);

/* Takes back what hak_map_alloc(headers, ...) returned. */
void hak_map_free(_Atomic uint8_t *map, unsigned headers);

/* Whether maps of that many headers are of the same number of lines. */
bool hak_map_is_as_long(unsigned headers, unsigned others);

/* Whether one is so short that it may stay with what it was for. */
bool hak_map_is_short(unsigned headers);

/* All of a map in use NEVER again. */
void hak_map_clear(_Atomic uint8_t *map, unsigned headers);

/* The owner of a map that is in use. */
HAK_INLINE void *hak_map_owner(const _Atomic uint8_t *map) {
    const struct hak_map_prefix *prefix = (const struct hak_map_prefix *)(const void *)map - 1;
    return hak_atomic_load_relaxed(&prefix->owner); /* relaxed: who told of the map has ordered that */
}

/* Free memory in chunks that are worth a purge, parts of longer OS pages counted in. A hint. */
size_t hak_maps_owed_bytes(void);

/*
 * Gives back some of that by one system call; how many it made, 0 or 1. What the system refuses adds nothing
 * to *given_bytes, and is not asked for again before more beside it is free. Slow: no lock held.
 */
unsigned hak_maps_purge(size_t *given_bytes);

/* Gives back every OS page that no map has, however many calls that takes, of each chunk until one is
 * refused. Bytes given. Slow: no lock held. */
HAK_COLD size_t hak_maps_trim(void);

/* For the child of a fork, alone in its process: what another thread was giving back is free. */
HAK_COLD void hak_maps_rebuild(void);

/* Checks sums and lists; false with the broken invariant in *why. */
HAK_COLD bool hak_maps_verify(const char **why);

#endif
