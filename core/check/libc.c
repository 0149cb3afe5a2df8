/*
 * libc.c - see libc.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* Dl_info */
#endif
#include "check/libc.h"

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
