/*
 * foreign.c - fills hak_foreign (diagnose.h) with libc's own functions, under HAKMEM_DEEPBIND=keep alone.
 *
 * In a constructor: in free it would be too late, because libc calls free while it holds locks of its own,
 * and the loader's lock must not be taken behind those.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "conf/options.h"
#include "heap/diagnose.h"
#include <dlfcn.h>

/* Weak: a program linked with -static has no loader to ask, and no libraries either. */
extern __typeof(dlsym) dlsym __attribute__((weak));

/* Without a priority, so that it runs after the constructor that reads the options, which has one. */
__attribute__((constructor)) static void find_next_functions(void) {
    if (hak_options.deepbind != HAK_DEEPBIND_KEEP || dlsym == NULL) {
        return;
    }
    struct hak_foreign next = {
        .free = (__typeof(next.free))dlsym(RTLD_NEXT, "free"),
        .realloc = (__typeof(next.realloc))dlsym(RTLD_NEXT, "realloc"),
        .usable_size = (__typeof(next.usable_size))dlsym(RTLD_NEXT, "malloc_usable_size"),
    };
    if (next.free != NULL && next.realloc != NULL && next.usable_size != NULL) {
        hak_foreign = next;
    }
}
