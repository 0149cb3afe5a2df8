/*
 * trim.h - malloc_trim: all threads' free memory back to the system.
 */
#ifndef HAK_PROCESS_TRIM_H
#define HAK_PROCESS_TRIM_H

#include "base/compiler.h"
#include <stddef.h>

/*
 * Gives back what is free anywhere, but for about keep_bytes; other threads keep the blocks in their caches.
 * Returns the bytes given back. Takes time in proportion to the heap. Any thread; no lock held.
 */
HAK_COLD size_t hak_process_trim(size_t keep_bytes);

#endif
