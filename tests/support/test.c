/*
 * test.c - see test.h.
 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_text(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        _exit(99);
    }
}

void check_failed(const char *condition, const char *file, int line) {
    char number[16];
    char *digit = number + sizeof number - 1;
    *digit = '\0';
    do {
        *--digit = (char)('0' + line % 10);
        line /= 10;
    } while (line != 0);
    write_text(file);
    write_text(":");
    write_text(digit);
    write_text(": check failed: ");
    write_text(condition);
    write_text("\n");
    abort();
}

unsigned test_scale(void) {
    const char *text = getenv("TEST_SCALE");
    long scale = text != NULL ? strtol(text, NULL, 10) : 1;
    return scale < 1 ? 1 : scale > 1000 ? 1000 : (unsigned)scale;
}
