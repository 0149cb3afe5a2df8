/*
 * own.h - the C library's names as the fuzzed archive has them: each with own_ before it, so that they live
 * beside libc's (fuzz.mk renames them). hak_ names are as in hakmem.h.
 */
#ifndef HAK_TESTS_FUZZ_OWN_H
#define HAK_TESTS_FUZZ_OWN_H

#include "hakmem.h"

#include <malloc.h>
#include <stdio.h>

void *own_malloc(size_t bytes);
void *own_calloc(size_t count, size_t bytes);
void *own_realloc(void *block, size_t bytes);
void *own_reallocarray(void *block, size_t count, size_t bytes);
void *own_memalign(size_t align, size_t bytes);
void *own_aligned_alloc(size_t align, size_t bytes);
int own_posix_memalign(void **out, size_t align, size_t bytes);
void *own_valloc(size_t bytes);
void *own_pvalloc(size_t bytes);
void own_free(void *block);
void own_cfree(void *block);
void own_free_sized(void *block, size_t bytes);
void own_free_aligned_sized(void *block, size_t align, size_t bytes);
size_t own_malloc_usable_size(const void *block);
int own_malloc_trim(size_t keep_bytes);
int own_mallopt(int parameter, int value);
struct mallinfo own_mallinfo(void);
struct mallinfo2 own_mallinfo2(void);
void own_malloc_stats(void);
int own_malloc_info(int options, FILE *stream);

/* operator new and new[], nothrow, and with an alignment. */
void *own__ZnwmRKSt9nothrow_t(size_t bytes, const void *tag);
void *own__ZnamRKSt9nothrow_t(size_t bytes, const void *tag);
void *own__ZnwmSt11align_val_tRKSt9nothrow_t(size_t bytes, size_t align, const void *tag);
void *own__ZnamSt11align_val_tRKSt9nothrow_t(size_t bytes, size_t align, const void *tag);

/* operator delete and delete[], plain, sized, aligned, and both. */
void own__ZdlPv(void *block);
void own__ZdaPv(void *block);
void own__ZdlPvm(void *block, size_t bytes);
void own__ZdaPvm(void *block, size_t bytes);
void own__ZdlPvRKSt9nothrow_t(void *block, const void *tag);
void own__ZdaPvRKSt9nothrow_t(void *block, const void *tag);
void own__ZdlPvSt11align_val_t(void *block, size_t align);
void own__ZdaPvSt11align_val_t(void *block, size_t align);
void own__ZdlPvmSt11align_val_t(void *block, size_t bytes, size_t align);
void own__ZdaPvmSt11align_val_t(void *block, size_t bytes, size_t align);

#endif
