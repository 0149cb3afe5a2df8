/*
 * deepbind_strdup.c - a library that frees what libc's strdup allocated, with its own idea of free.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <string.h>

/* Returns the length of the copy. Under RTLD_DEEPBIND `free` here is libc's. */
size_t plugin_strdup_and_free(const char *text) {
    char *copy = strdup(text);
    if (copy == NULL) {
        return 0;
    }
    size_t length = strlen(copy);
    free(copy);
    return length;
}
