/*
 * foreign.h - blocks of libc's own malloc, which reach hakmem only under HAKMEM_DEEPBIND=keep.
 *
 * A library bound deeply gets its blocks from libc and may pass them to a program whose free is ours. Each
 * function says true when it has dealt with the pointer, and false when the pointer is a caller's bug:
 * always, unless the option says keep. Called for pointers that the registry does not know, with no lock
 * held.
 */
#ifndef HAK_HEAP_FOREIGN_H
#define HAK_HEAP_FOREIGN_H

#include "base/compiler.h"

/* Frees by libc's free. */
bool hak_foreign_free(void *block);

/* *moved is what libc's realloc returned: the block stays libc's, or NULL and errno. */
bool hak_foreign_realloc(void *block, size_t bytes, void **moved);

/* *usable_bytes by libc's malloc_usable_size. */
bool hak_foreign_usable_size(void *block, size_t *usable_bytes);

#endif
