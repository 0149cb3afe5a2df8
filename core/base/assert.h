/*
 * assert.h - assertions of the debug flavour. The argument always compiles, so neither flavour rots.
 */
#ifndef HAK_BASE_ASSERT_H
#define HAK_BASE_ASSERT_H

#include "base/compiler.h"
#include "base/config.h"

/* Writes "hakmem: assertion failed: TEXT (FILE:LINE)" to stderr and aborts. Defined in os/fatal.c. */
HAK_NORETURN void hak_assert_failed(const char *text, const char *file, int line);

#define HAK_ASSERT(condition)                                                                                \
    do {                                                                                                     \
        if (!HAKMEM_BUILD_RELEASE && HAK_UNLIKELY(!(condition))) {                                           \
            hak_assert_failed(#condition, __FILE__, __LINE__);                                               \
        }                                                                                                    \
    } while (0)

#endif
