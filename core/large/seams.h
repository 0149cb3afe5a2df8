/*
 * seams.h - where a piece of address space goes over from one kernel mapping into the next.
 *
 * A block that was put together from kept pieces (gather.c) is several kernel mappings, and mremap moves one
 * at a time. A seam is counted in units from the piece's start; one at 0 says that the piece starts a kernel
 * mapping though a neighbour lies before it. Plain arithmetic; the piece's owner says under which lock.
 */
#ifndef HAK_LARGE_SEAMS_H
#define HAK_LARGE_SEAMS_H

#include "base/assert.h"
#include "base/config.h"

#define HAK_SEAMS_MAX 60u

/* Invariant: count <= HAK_SEAMS_MAX; units[0..count) rise and are below the piece's length. */
struct hak_seams {
    unsigned count;
    uint32_t units[HAK_SEAMS_MAX];
};

/* Adds a seam behind all others. */
HAK_INLINE void hak_seams_add(struct hak_seams *seams, size_t offset_bytes) {
    HAK_ASSERT(seams->count < HAK_SEAMS_MAX && offset_bytes >> HAK_UNIT_SHIFT <= UINT32_MAX);
    seams->units[seams->count++] = (uint32_t)(offset_bytes >> HAK_UNIT_SHIFT);
}

/* Where the kernel mapping ends that `offset_bytes` of a piece of `bytes` bytes lies in. */
HAK_INLINE size_t hak_seams_next(const struct hak_seams *seams, size_t offset_bytes, size_t bytes) {
    for (unsigned i = 0; i < seams->count; i++) {
        size_t seam_bytes = (size_t)seams->units[i] << HAK_UNIT_SHIFT;
        if (seam_bytes > offset_bytes) {
            return seam_bytes;
        }
    }
    return bytes;
}

/* Where the last of the kernel mappings starts. */
HAK_INLINE size_t hak_seams_last(const struct hak_seams *seams) {
    return seams->count == 0 ? 0 : (size_t)seams->units[seams->count - 1] << HAK_UNIT_SHIFT;
}

/* Moves here the seams of a piece that now starts at `offset_bytes` of this one. */
HAK_INLINE void hak_seams_append(struct hak_seams *seams, struct hak_seams *more, size_t offset_bytes) {
    for (unsigned i = 0; i < more->count; i++) {
        hak_seams_add(seams, offset_bytes + ((size_t)more->units[i] << HAK_UNIT_SHIFT));
    }
    more->count = 0;
}

/* Cuts at `offset_bytes`: the seams from there on become those of the rest. */
HAK_INLINE void hak_seams_cut(struct hak_seams *seams, size_t offset_bytes, struct hak_seams *rest) {
    unsigned count = seams->count;
    rest->count = 0;
    seams->count = 0;
    for (unsigned i = 0; i < count; i++) {
        size_t seam_bytes = (size_t)seams->units[i] << HAK_UNIT_SHIFT;
        if (seam_bytes < offset_bytes) {
            seams->count++;
        } else {
            hak_seams_add(rest, seam_bytes - offset_bytes);
        }
    }
}

#endif
