/*
 * trace_text.c - see trace_text.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* Dl_info */
#endif
#include "check/trace_text.h"
#include "check/libc.h"
#include "check/trace_table.h"
#include "os/line.h"

static const char indent[] = "    ";

void hak_trace_put_frame(const void *return_address, struct text *line) {
    uintptr_t address = (uintptr_t)return_address - 1;
    Dl_info where;
    if (hak_check_libc.dladdr == NULL || hak_check_libc.dladdr((const void *)address, &where) == 0) {
        hak_text_hex(line, address);
        return;
    }
    if (where.dli_sname != NULL) {
        hak_text_string(line, where.dli_sname);
        hak_text_char(line, '+');
        hak_text_hex(line, address - (uintptr_t)where.dli_saddr);
        hak_text_string(line, " (");
    }
    hak_text_string(line, where.dli_fname);
    hak_text_char(line, '+');
    hak_text_hex(line, address - (uintptr_t)where.dli_fbase);
    if (where.dli_sname != NULL) {
        hak_text_char(line, ')');
    }
}

void hak_trace_write(const struct hak_trace *trace, int fd) {
    char buffer[HAK_TRACE_LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    void *const *frames = NULL;
    unsigned count = hak_trace_frames(trace, &frames);
    for (unsigned i = 0; i < count || (i == 0 && count == 0); i++) {
        hak_text_string(&line, indent);
        if (count == 0) {
            hak_text_string(&line, "(its stack was not kept)");
        } else {
            hak_text_char(&line, '#');
            hak_text_decimal(&line, i);
            hak_text_char(&line, ' ');
            hak_trace_put_frame(frames[i], &line);
        }
        hak_line_write(&line, fd);
    }
}
