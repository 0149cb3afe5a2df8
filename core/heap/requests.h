/*
 * requests.h - what a program may ask for beyond malloc and free: aligned blocks, realloc, usable sizes.
 *
 * `function` is the C library's function that was called, for the fatal line about a wrong pointer. Any
 * thread.
 */
#ifndef HAK_HEAP_REQUESTS_H
#define HAK_HEAP_REQUESTS_H

#include "base/compiler.h"

/* A block at a multiple of `align`, a power of two; NULL with errno ENOMEM when there is no memory. */
void *hak_request_aligned(size_t align, size_t bytes);

/* The same for who has found none at hand (hak_take_aligned()). */
void *hak_request_aligned_slow(size_t align, size_t bytes);

/* The block size of the smallest class that holds `bytes` and whose every block is aligned; 0 if there is
 * none. */
size_t hak_request_class_bytes(size_t align, size_t bytes);

/* As realloc(3) of glibc: (NULL, n) allocates, (p, 0) frees and returns NULL. NULL and ENOMEM leave the block
 * alone. */
void *hak_request_realloc(const char *function, void *block, size_t bytes);

/* The part of it that gives a live block of `old_bytes` another place, except that one which is to be smaller
 * stays as it is when there is no memory. */
void *hak_request_move(const char *function, void *block, size_t old_bytes, size_t bytes);

/* Bytes of the live block that may be used; 0 for NULL. */
size_t hak_request_usable(const char *function, const void *block);

/* Whether `pointer` is the start of a live block. Any value. */
bool hak_request_owns(const void *pointer);

/* The usable size that a block of `bytes` would have; `bytes` itself when there can be none. */
size_t hak_request_good_size(size_t bytes);

#endif
