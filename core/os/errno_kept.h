/*
 * errno_kept.h - what the files that make system calls share: errno is the caller's.
 */
#ifndef HAK_OS_ERRNO_KEPT_H
#define HAK_OS_ERRNO_KEPT_H

#include "base/compiler.h"
#include <errno.h>
#include <stdbool.h>

/* Turns a libc result into the contract's: the errno value, with errno put back as it was. */
HAK_ALWAYS_INLINE int hak_errno_result(bool failed, int saved_errno) {
    int error = failed ? errno : 0;
    errno = saved_errno;
    return error;
}

#endif
