/*
 * glibc_malloc.h - the types and constants of glibc's <malloc.h> that hakmem answers for, under the same
 * names.
 *
 * In place of that header: musl's lacks them, and glibc's before 2.33 has no mallinfo2.
 */
#ifndef HAK_API_GLIBC_MALLOC_H
#define HAK_API_GLIBC_MALLOC_H

#include "base/compiler.h"
#include <stdio.h>

/* glibc's order of fields, which is its ABI; what each means here is in info.c. */
#define HAK_MALLINFO_FIELDS(X)                                                                               \
    X(arena) X(ordblks) X(smblks) X(hblks) X(hblkhd) X(usmblks) X(fsmblks) X(uordblks) X(fordblks) X(keepcost)

#define HAK_MALLINFO_INT(field)    int field;
#define HAK_MALLINFO_SIZE_T(field) size_t field;

struct mallinfo {
    HAK_MALLINFO_FIELDS(HAK_MALLINFO_INT)
};

struct mallinfo2 {
    HAK_MALLINFO_FIELDS(HAK_MALLINFO_SIZE_T)
};

enum {
    M_TRIM_THRESHOLD = -1,
    M_MMAP_THRESHOLD = -3,
    M_PERTURB = -6,
    M_ARENA_TEST = -7,
    M_ARENA_MAX = -8,
};

HAK_API struct mallinfo mallinfo(void);
HAK_API struct mallinfo2 mallinfo2(void);
HAK_API void malloc_stats(void);
HAK_API int malloc_info(int options, FILE *stream);
HAK_API int mallopt(int parameter, int value);

#endif
