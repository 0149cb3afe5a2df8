/*
 * names.h - the names by which stress tests allocate: libc's, or hak_ ones with TEST_HAK_NAMES,
 * for builds in which a sanitizer owns malloc.
 */
#ifndef HAK_TESTS_SUPPORT_NAMES_H
#define HAK_TESTS_SUPPORT_NAMES_H

#if defined(__SANITIZE_THREAD__)
#define TEST_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_UNDER_TSAN 1
#endif
#endif

/* How many times longer a step takes here: divides the number of steps. */
#ifdef TEST_UNDER_TSAN
#define TEST_SLOWNESS 8u
#else
#define TEST_SLOWNESS 1u
#endif

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
