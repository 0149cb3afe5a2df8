/*
 * libc.h - functions of the C library and the loader that checked mode alone needs.
 *
 * Looked up by name when checked mode begins, not linked: a process without it then has no slot to bind for
 * them, and a C library that lacks one (musl has no backtrace) serves all the same. NULL: not there. Const
 * after hak_check_find_libc(). Needs _GNU_SOURCE.
 */
#ifndef HAK_CHECK_LIBC_H
#define HAK_CHECK_LIBC_H

#include <dlfcn.h>
#include <pthread.h>

#define HAK_DLADDR_SYMBOL 1 /* dladdr1() gives the symbol: RTLD_DL_SYMENT, where there is such a name */

struct hak_check_libc {
    int (*backtrace)(void **frames, int count);
    int (*dladdr)(const void *address, Dl_info *info);
    int (*dladdr1)(const void *address, Dl_info *info, void **more, int which); /* musl has none */
    void *malloc;               /* whosever is called, or its entry in a program at a fixed address */
#ifdef DLFO_STRUCT_HAS_EH_DBASE /* glibc 2.35 and later */
    int (*find_object)(void *address, struct dl_find_object *found);
#endif
    pthread_t (*self)(void);
    int (*getattr)(pthread_t thread, pthread_attr_t *attributes);
    int (*getstack)(const pthread_attr_t *attributes, void **low, size_t *bytes);
    int (*destroy)(pthread_attr_t *attributes);
};
extern struct hak_check_libc hak_check_libc;

/* In a constructor that comes before the C library's: what main() gets. */
void hak_check_note_arguments(int argc, char **argv, char **environment);

/*
 * In such a constructor, before something that opens a library: glibc would start with that, and hand it and
 * itself the arguments that it had got: none. So its own constructors, which bear being called twice, get
 * them first. Does nothing where none were noted.
 */
void hak_check_start_libc(void);

/* In a constructor: takes the loader's lock and may allocate. A program linked with -static has no loader:
 * all NULL.
 */
void hak_check_find_libc(void);

#endif
