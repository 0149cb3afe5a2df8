/*
 * malloc.c - the C library's names: what a program calls without knowing that hakmem is there.
 *
 * Each function is a thin rule (errno, overflow, alignment, as glibc 2.36 and later have them) around the
 * gates of the heap floor. ThreadSanitizer owns these names: its builds have hakmem.c alone.
 */
#include "base/config.h"
#if !HAK_TSAN
#include "api/gates.h"
#include "base/bits.h"
#include "heap/front.h"
#include "heap/reclaim.h"
#include "heap/requests.h"
#include "os/os.h"
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

HAK_GATE HAK_API void *malloc(size_t bytes) {
    return hak_alloc_gate(bytes);
}

HAK_GATE HAK_API void free(void *block) {
    hak_free_gate(block, "free");
}

void hak_free_claiming_as(const char *function, void *block, size_t bytes, size_t align) {
    hak_free_gate_claiming(block, function, bytes, align);
}

HAK_API void *calloc(size_t count, size_t bytes) {
    return hak_calloc_gate(count, bytes);
}

HAK_API void *realloc(void *block, size_t bytes) {
    return hak_request_realloc("realloc", block, bytes);
}

HAK_API void *reallocarray(void *block, size_t count, size_t bytes) {
    size_t total_bytes;
    if (__builtin_mul_overflow(count, bytes, &total_bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return hak_request_realloc("reallocarray", block, total_bytes);
}

/* ---- aligned ---------------------------------------------------------------------------------------- */

/* The largest power of two; alignments above it cannot be rounded up to one. */
#define ALIGN_MAX ((size_t)1 << (sizeof(size_t) * CHAR_BIT - 1))

/* As glibc: an alignment that is not a power of two is rounded up to one. */
HAK_API void *memalign(size_t align, size_t bytes) {
    if (align > ALIGN_MAX) {
        errno = EINVAL;
        return NULL;
    }
    if (!hak_is_pow2(align)) {
        align = align == 0 ? 1 : (size_t)2 << hak_log2(align);
    }
    return hak_request_aligned(align, bytes);
}

/* As ISO C and glibc from 2.38 on: an alignment that is not a power of two is an error. */
HAK_API void *aligned_alloc(size_t align, size_t bytes) {
    if (!hak_is_pow2(align)) {
        errno = EINVAL;
        return NULL;
    }
    return hak_request_aligned(align, bytes);
}

static HAK_NOINLINE int posix_memalign_slow(void **out, size_t align, size_t bytes) {
    if (!hak_is_pow2(align) || align < sizeof(void *)) {
        return EINVAL;
    }
    int saved_errno = errno;
    void *block = hak_request_aligned_slow(align, bytes);
    errno = saved_errno;
    if (block == NULL) {
        return ENOMEM;
    }
    *out = block;
    return 0;
}

HAK_API int posix_memalign(void **out, size_t align, size_t bytes) {
    if (HAK_UNLIKELY(align < sizeof(void *)) || HAK_UNLIKELY(!hak_is_pow2(align))) {
        return posix_memalign_slow(out, align, bytes);
    }
    void *block = hak_take_aligned(align, bytes);
    if (HAK_UNLIKELY(block == NULL)) {
        return posix_memalign_slow(out, align, bytes);
    }
    *out = block;
    return 0;
}

HAK_API HAK_COLD void *valloc(size_t bytes) {
    return hak_request_aligned(hak_os_page_bytes(), bytes);
}

HAK_API HAK_COLD void *pvalloc(size_t bytes) {
    size_t page_bytes = hak_os_page_bytes();
    if (bytes > SIZE_MAX - (page_bytes - 1)) {
        errno = ENOMEM;
        return NULL;
    }
    size_t whole_pages = hak_os_page_round(bytes);
    return hak_request_aligned(page_bytes, whole_pages == 0 ? page_bytes : whole_pages);
}

/* ---- relatives -------------------------------------------------------------------------------------- */

HAK_API size_t malloc_usable_size(void *block) {
    return hak_request_usable("malloc_usable_size", block);
}

HAK_API HAK_COLD int malloc_trim(size_t keep_bytes) {
    return hak_reclaim_pages(keep_bytes) != 0;
}

HAK_API void cfree(void *block);
HAK_API void cfree(void *block) {
    hak_free_gate(block, "cfree");
}

/* C23. The size and alignment that the caller claims are checked in checked mode alone: glibc does not
 * either. */
HAK_API void free_sized(void *block, size_t bytes);
HAK_API void free_sized(void *block, size_t bytes) {
    hak_free_gate_claiming(block, "free_sized", bytes, 0);
}

HAK_API void free_aligned_sized(void *block, size_t align, size_t bytes);
HAK_API void free_aligned_sized(void *block, size_t align, size_t bytes) {
    hak_free_gate_claiming(block, "free_aligned_sized", bytes, align);
}

/* glibc's own names for the same, which some programs call. */
#if __has_attribute(copy)
#define ALIAS_OF(target) __attribute__((alias(#target), copy(target)))
#else
#define ALIAS_OF(target) __attribute__((alias(#target)))
#endif

HAK_API void *__libc_malloc(size_t bytes) ALIAS_OF(malloc);
HAK_API void __libc_free(void *block) ALIAS_OF(free);
HAK_API void *__libc_calloc(size_t count, size_t bytes) ALIAS_OF(calloc);
HAK_API void *__libc_realloc(void *block, size_t bytes) ALIAS_OF(realloc);
HAK_API void *__libc_memalign(size_t align, size_t bytes) ALIAS_OF(memalign);
HAK_API void *__libc_valloc(size_t bytes) ALIAS_OF(valloc);
HAK_API void *__libc_pvalloc(size_t bytes) ALIAS_OF(pvalloc);
HAK_API int __posix_memalign(void **out, size_t align, size_t bytes) ALIAS_OF(posix_memalign);

#endif
