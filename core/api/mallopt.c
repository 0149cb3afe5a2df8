/*
 * mallopt.c - glibc's tunables by function: those that have a meaning here are honoured, the rest refused.
 *
 *   M_TRIM_THRESHOLD  free memory that may stay with the process, half of it in slabs and half in large
 *                     blocks' pages, in place of the floors that adapt themselves; below 0: all of it stays
 *   M_MMAP_THRESHOLD  large blocks from this size on get a mapping of their own (above 2 MiB all do); as in
 *                     glibc, 32 MiB is the highest value taken
 *   M_PERTURB         fills new blocks (but calloc's) with the complement of the value's low byte and freed
 *                     ones with that byte; 0 ends it. Every operation takes the slow path meanwhile. Refused
 *                     in checked mode, which looks at its own fill again.
 *   M_ARENA_TEST, M_ARENA_MAX  accepted: each thread has a heap of its own, and none is ever waited for
 *
 * Returns 1 when the value was taken, 0 when it was not. Any thread; others take a change up soon.
 */
#include "base/config.h"
#if !HAK_TSAN
#include "api/glibc_malloc.h"
#include "heap/front.h"
#include "large/large.h"
#include "slab/purge.h"

#define MAP_THRESHOLD_MAX (32 * 1024 * 1024)
#define TAKEN             1
#define REFUSED           0

static int set_trim_threshold(int bytes) {
    size_t half_bytes = bytes < 0 ? (size_t)PTRDIFF_MAX / 2 : (size_t)bytes / 2;
    hak_purge_set_floor(half_bytes);
    hak_retain_set_floor(half_bytes);
    return TAKEN;
}

static int set_map_threshold(int bytes) {
    if (bytes < 0 || bytes > MAP_THRESHOLD_MAX) {
        return REFUSED;
    }
    /* relaxed: a choice between two ways that are both right */
    hak_atomic_store_relaxed(&hak_large_map_threshold, (size_t)bytes);
    return TAKEN;
}

static int set_perturb(int value) {
    if (hak_is_checked()) {
        return REFUSED;
    }
    unsigned modes = hak_front_modes() & ~HAK_FRONT_PERTURB;
    if (value != 0) {
        modes |= HAK_FRONT_PERTURB;
    }
    hak_front_set_modes(modes, (uint8_t)value);
    return TAKEN;
}

HAK_API HAK_COLD int mallopt(int parameter, int value) {
    switch (parameter) {
    case M_TRIM_THRESHOLD:
        return set_trim_threshold(value);
    case M_MMAP_THRESHOLD:
        return set_map_threshold(value);
    case M_PERTURB:
        return set_perturb(value);
    case M_ARENA_TEST:
    case M_ARENA_MAX:
        return TAKEN;
    default:
        return REFUSED;
    }
}

#endif
