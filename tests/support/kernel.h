/*
 * kernel.h - for suites that define syscall() or other calls in front of libc's: the way on to the kernel.
 */
#ifndef HAK_TESTS_SUPPORT_KERNEL_H
#define HAK_TESTS_SUPPORT_KERNEL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include "support/test.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>

typedef long system_call(long number, ...);

/* libc's own syscall(). Found when first needed: hakmem's constructor comes before all that is here. */
static inline system_call *find_kernel(void) {
    static system_call *found;
    if (found == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "syscall");
        CHECK(symbol != NULL);
        memcpy(&found, &symbol, sizeof found);
    }
    return found;
}
#define kernel(...) find_kernel()(__VA_ARGS__)

/* As many as any call has. */
struct arguments {
    long of[6];
};

/* In a function whose last named parameter is `last`. */
#define ARGUMENTS_OF(last, arguments)                                                                        \
    do {                                                                                                     \
        va_list list_;                                                                                       \
        va_start(list_, last);                                                                               \
        for (unsigned i_ = 0; i_ < COUNT_OF((arguments)->of); i_++) {                                        \
            (arguments)->of[i_] = va_arg(list_, long);                                                       \
        }                                                                                                    \
        va_end(list_);                                                                                       \
    } while (0)

static inline long kernel_with(long number, const struct arguments *arguments) {
    const long *of = arguments->of;
    return kernel(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}

#endif
