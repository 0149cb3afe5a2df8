/*
 * fresh_path.h - where a suite may put a file.
 */
#ifndef HAK_TESTS_SUPPORT_FRESH_PATH_H
#define HAK_TESTS_SUPPORT_FRESH_PATH_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A file in the suite's own directory that does not exist yet. */
static inline const char *fresh_path(const char *name) {
    static char path[4096];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : "/tmp", name);
    (void)unlink(path);
    return path;
}

#endif
