/*
 * dlopen.c - dlopen without RTLD_DEEPBIND; in the shared library alone.
 *
 * A library loaded with that flag binds libc's free, while libc's strdup calls our malloc: libc then gets a
 * block that it does not know, and our free is never asked. So the flag is cleared, unless
 * HAKMEM_DEEPBIND=keep. The next dlopen looks at its return address to learn who called, and takes that
 * object's RUNPATH and $ORIGIN: it is jumped to, not called, so that it sees the program's call, not ours.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/atomic.h"
#include "base/compiler.h"
#include "conf/options.h"
#include <dlfcn.h>

#ifndef RTLD_DEEPBIND
#define RTLD_DEEPBIND 0 /* musl: the flag is unknown, and dlopen alone */
#endif

/* A jump in place of a call and return, in unoptimised builds too. */
#if __has_attribute(musttail)
#define TAIL_CALLING
#define TAIL_RETURN __attribute__((musttail)) return
#else
#define TAIL_CALLING __attribute__((optimize("O2", "optimize-sibling-calls", "omit-frame-pointer")))
#define TAIL_RETURN  return
#endif

typedef void *(*dlopen_function)(const char *file, int mode);

HAK_API TAIL_CALLING void *dlopen(const char *file, int mode);

static _Atomic(dlopen_function) next_dlopen;

static HAK_NOINLINE dlopen_function find_next(void) {
    dlopen_function next = hak_atomic_load_relaxed(&next_dlopen); /* relaxed: everybody finds the same */
    if (next == NULL) {
        next = (dlopen_function)dlsym(RTLD_NEXT, "dlopen");
        hak_atomic_store_relaxed(&next_dlopen, next); /* relaxed: the same */
    }
    return next;
}

static HAK_NOINLINE int kept_mode(int mode) {
    return hak_options.deepbind == HAK_DEEPBIND_KEEP ? mode : mode & ~RTLD_DEEPBIND;
}

TAIL_CALLING void *dlopen(const char *file, int mode) {
    dlopen_function next = find_next();
    mode = kept_mode(mode);
    TAIL_RETURN next(file, mode);
}
