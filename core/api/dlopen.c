/*
 * dlopen.c - dlopen and dlmopen without RTLD_DEEPBIND; in the shared library alone.
 *
 * A library loaded with that flag binds libc's free, while libc's strdup calls our malloc: libc then gets a
 * block that it does not know, and our free is never asked. So the flag is cleared, unless
 * HAKMEM_DEEPBIND=keep. In a namespace of its own it stays: hakmem is not there. The next dlopen looks at its
 * return address to learn who called, and takes that object's RUNPATH and $ORIGIN: it is jumped to, not
 * called, so that it sees the program's call, not ours.
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

typedef void (*any_function)(void);

/* The function of that name in the objects behind this one; `known` holds it once it was found. */
static HAK_NOINLINE any_function find_next(_Atomic(any_function) *known, const char *name) {
    any_function next = hak_atomic_load_relaxed(known); /* relaxed: everybody finds the same */
    if (next == NULL) {
        next = (any_function)dlsym(RTLD_NEXT, name);
        hak_atomic_store_relaxed(known, next); /* relaxed: the same */
    }
    return next;
}

static HAK_NOINLINE int kept_mode(int mode) {
    return hak_options.deepbind == HAK_DEEPBIND_KEEP ? mode : mode & ~RTLD_DEEPBIND;
}

typedef void *(*dlopen_function)(const char *file, int mode);

HAK_API TAIL_CALLING void *dlopen(const char *file, int mode);

TAIL_CALLING void *dlopen(const char *file, int mode) {
    static _Atomic(any_function) known;
    dlopen_function next = (dlopen_function)find_next(&known, "dlopen");
    mode = kept_mode(mode);
    TAIL_RETURN next(file, mode);
}

#ifdef LM_ID_BASE /* glibc */
typedef void *(*dlmopen_function)(Lmid_t namespace, const char *file, int mode);

HAK_API TAIL_CALLING void *dlmopen(Lmid_t namespace, const char *file, int mode);

TAIL_CALLING void *dlmopen(Lmid_t namespace, const char *file, int mode) {
    static _Atomic(any_function) known;
    dlmopen_function next = (dlmopen_function)find_next(&known, "dlmopen");
    mode = namespace == LM_ID_BASE ? kept_mode(mode) : mode;
    TAIL_RETURN next(namespace, file, mode);
}
#endif
