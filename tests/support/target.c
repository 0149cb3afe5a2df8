/*
 * target.c - see target.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/target.h"
#include "support/test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool hak_is_there(void) {
    int (*volatile verify)(char *, size_t) = hak_verify;
    return verify != NULL;
}

void *function_named(const char *name) {
    return dlsym(RTLD_DEFAULT, name);
}

const char *library_path(void) {
    return getenv("TEST_SO");
}

bool library_is_debug(void) {
    const char *flavour = getenv("TEST_FLAVOUR");
    return flavour != NULL && strcmp(flavour, "debug") == 0;
}

/* A library that could not be preloaded must not look like one that passes. */
static void check_preload(void) {
    const char *flavour = getenv("TEST_FLAVOUR");
    CHECK(hak_is_there() || flavour == NULL || flavour[0] == '\0');
}

void check_heap(void) {
    check_preload();
    char why[256] = "";
    if (hak_is_there() && hak_verify(why, sizeof why) != 0) {
        fprintf(stderr, "hak_verify: %s\n", why);
        CHECK(!"every invariant of the heap holds");
    }
}

int heap_is_sound(void **state) {
    (void)state;
    check_heap();
    return 0;
}
