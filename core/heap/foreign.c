/*
 * foreign.c - see foreign.h. libc's functions are looked up in a constructor: in free it would be too late,
 * because libc calls free while it holds locks of its own, and the loader's lock must not follow those.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "heap/foreign.h"
#include "conf/options.h"
#include <dlfcn.h>

/* Weak: a program linked with -static has no loader to ask, and no libraries either. */
extern __typeof(dlsym) dlsym __attribute__((weak));

typedef void (*free_function)(void *block);
typedef void *(*realloc_function)(void *block, size_t bytes);
typedef size_t (*usable_size_function)(void *block);

/* Const after the constructor; NULL unless HAKMEM_DEEPBIND=keep. */
static free_function next_free;
static realloc_function next_realloc;
static usable_size_function next_usable_size;

/* Without a priority, so that it runs after the constructor that reads the options, which has one. */
__attribute__((constructor)) static void find_next_functions(void) {
    if (hak_options.deepbind != HAK_DEEPBIND_KEEP || dlsym == NULL) {
        return;
    }
    next_free = (free_function)dlsym(RTLD_NEXT, "free");
    next_realloc = (realloc_function)dlsym(RTLD_NEXT, "realloc");
    next_usable_size = (usable_size_function)dlsym(RTLD_NEXT, "malloc_usable_size");
}

HAK_COLD bool hak_foreign_free(void *block) {
    if (next_free == NULL) {
        return false;
    }
    next_free(block);
    return true;
}

HAK_COLD bool hak_foreign_realloc(void *block, size_t bytes, void **moved) {
    if (next_realloc == NULL) {
        return false;
    }
    *moved = next_realloc(block, bytes);
    return true;
}

HAK_COLD bool hak_foreign_usable_size(void *block, size_t *usable_bytes) {
    if (next_usable_size == NULL) {
        return false;
    }
    *usable_bytes = next_usable_size(block);
    return true;
}
