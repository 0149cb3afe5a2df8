/*
 * line.c - see line.h.
 */
#include "os/line.h"
#include "os/os.h"

void hak_line_write(struct text *line, int fd) {
    line->capacity_bytes++;
    hak_text_char(line, '\n');
    hak_os_write(fd, line->start, line->used_bytes);
    *line = hak_line_over(line->start, line->capacity_bytes);
}
