/*
 * names.h - the names by which stress tests allocate: libc's, or hak_ ones with TEST_HAK_NAMES,
 * for builds in which a sanitizer owns malloc.
 */
#ifndef HAK_TESTS_SUPPORT_NAMES_H
#define HAK_TESTS_SUPPORT_NAMES_H

#ifdef TEST_HAK_NAMES
#include "hakmem.h"

#define TEST_MALLOC(bytes)              hak_malloc(bytes)
#define TEST_CALLOC(count, bytes)       hak_calloc(count, bytes)
#define TEST_REALLOC(block, bytes)      hak_realloc(block, bytes)
#define TEST_MEMALIGN(alignment, bytes) hak_aligned_alloc(alignment, bytes)
#define TEST_FREE(block)                hak_free(block)
#define TEST_USABLE_SIZE(block)         hak_usable_size(block)
#define TEST_TRIM()                     ((void)hak_trim(0))
#else
#include <malloc.h>
#include <stdlib.h>

#define TEST_MALLOC(bytes)              malloc(bytes)
#define TEST_CALLOC(count, bytes)       calloc(count, bytes)
#define TEST_REALLOC(block, bytes)      realloc(block, bytes)
#define TEST_MEMALIGN(alignment, bytes) memalign(alignment, bytes)
#define TEST_FREE(block)                free(block)
#define TEST_USABLE_SIZE(block)         malloc_usable_size(block)
#define TEST_TRIM()                     ((void)malloc_trim(0))
#endif

#endif
