/*
 * line.h - lines of text for a descriptor, composed in the caller's buffer and written by one write(2) each.
 * One that does not fit is cut, and ends all the same.
 */
#ifndef HAK_OS_LINE_H
#define HAK_OS_LINE_H

#include "base/text.h"

/* An empty line in a buffer of `bytes` bytes. */
HAK_INLINE struct text hak_line_over(char *buffer, size_t bytes) {
    return hak_text_over(buffer, bytes - 1); /* the last character is kept for the newline */
}

/* Ends the line and writes it; it is empty then. */
HAK_COLD void hak_line_write(struct text *line, int fd);

#endif
