/*
 * gather.h - a new block from the pages of several kept pieces, none of which is long enough.
 *
 * Free memory that holds pages is used before new memory is asked for, however it is cut up: pages move by
 * mremap, some ten nanoseconds each, where a fault takes a microsecond; and the process never holds more than
 * what was live at its peak. Takes hak_large_lock itself; no lock held. Any thread.
 */
#ifndef HAK_LARGE_GATHER_H
#define HAK_LARGE_GATHER_H

#include <stddef.h>
#include <stdint.h>

/* Fewer pages are not worth the calls that move them. */
#define HAK_GATHER_PART_BYTES_MIN ((size_t)256 * 1024)

/*
 * Returns a live block of `bytes` bytes, whole units, at `align`; its bytes from *dirty_bytes on are known to
 * be zero. Every part but the last has at least part_min_bytes of pages. NULL when no kept piece has pages
 * worth moving, or the kernel refuses.
 */
void *hak_gather(size_t bytes, size_t align, size_t part_min_bytes, size_t *dirty_bytes, uint64_t now_ms);

#endif
