/*
 * libc.c - see libc.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* Dl_info */
#endif
#include "check/libc.h"
#include <link.h>

struct hak_check_libc hak_check_libc;

/* Weak: a program linked with -static has no loader to ask. */
extern __typeof(dlsym) dlsym __attribute__((weak));

void hak_check_find_libc(void) {
    if (dlsym == NULL) {
        return;
    }
    hak_check_libc = (struct hak_check_libc){
        .backtrace = (__typeof(hak_check_libc.backtrace))dlsym(RTLD_DEFAULT, "backtrace"),
        .dladdr = (__typeof(hak_check_libc.dladdr))dlsym(RTLD_DEFAULT, "dladdr"),
        .dladdr1 = (__typeof(hak_check_libc.dladdr1))dlsym(RTLD_DEFAULT, "dladdr1"),
        .malloc = dlsym(RTLD_DEFAULT, "malloc"),
#ifdef DLFO_STRUCT_HAS_EH_DBASE
        .find_object = (__typeof(hak_check_libc.find_object))dlsym(RTLD_DEFAULT, "_dl_find_object"),
#endif
        .self = (__typeof(hak_check_libc.self))dlsym(RTLD_DEFAULT, "pthread_self"),
        .getattr = (__typeof(hak_check_libc.getattr))dlsym(RTLD_DEFAULT, "pthread_getattr_np"),
        .getstack = (__typeof(hak_check_libc.getstack))dlsym(RTLD_DEFAULT, "pthread_attr_getstack"),
        .destroy = (__typeof(hak_check_libc.destroy))dlsym(RTLD_DEFAULT, "pthread_attr_destroy"),
    };
}

/* Of a constructor that came before the C library's; no argv: it did not. */
static struct {
    int argc;
    char **argv;
    char **environment;
} noted;

void hak_check_note_arguments(int argc, char **argv, char **environment) {
    noted.argc = argc;
    noted.argv = argv;
    noted.environment = environment;
}

#ifdef __GLIBC__
typedef void (*constructor)(int argc, char **argv, char **environment);

/* What libraries have in their dynamic section under DT_INIT and so on; no address is 0 there. */
static ElfW(Addr) entry_of(const struct link_map *library, ElfW(Sxword) tag) {
    const ElfW(Dyn) *entry = library->l_ld;
    while (entry->d_tag != DT_NULL && entry->d_tag != tag) {
        entry++;
    }
    return entry->d_tag == DT_NULL ? 0 : entry->d_un.d_val;
}

void hak_check_start_libc(void) {
    Dl_info info;
    struct link_map *libc;
    __typeof(dladdr1) *find = dlsym == NULL ? NULL : (__typeof(dladdr1) *)dlsym(RTLD_DEFAULT, "dladdr1");
    const void *inside = find == NULL ? NULL : dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
    if (noted.argv == NULL || inside == NULL || find(inside, &info, (void **)&libc, RTLD_DL_LINKMAP) == 0) {
        return;
    }
    ElfW(Addr) first = entry_of(libc, DT_INIT);
    if (first != 0) { /* before 2.34 */
        ((constructor)(libc->l_addr + first))(noted.argc, noted.argv, noted.environment);
    }
    const constructor *others = (const constructor *)(libc->l_addr + entry_of(libc, DT_INIT_ARRAY));
    size_t count = entry_of(libc, DT_INIT_ARRAYSZ) / sizeof *others;
    for (size_t i = 0; i < count; i++) {
        others[i](noted.argc, noted.argv, noted.environment);
    }
}
#else
void hak_check_start_libc(void) {
}
#endif
