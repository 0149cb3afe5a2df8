/*
 * option_help.c - HAKMEM_HELP=1: the option table for people, one write per line.
 */
#include "conf/option_rows.h"
#include "os/line.h"

#define LINE_BYTES_MAX 256u
#define DEFAULT_COLUMN 27u
#define VALUES_COLUMN  36u
#define HELP_COLUMN    69u

void hak_options_help(int fd) {
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    hak_text_string(&line, "NAME");
    hak_text_pad(&line, 0, DEFAULT_COLUMN);
    hak_text_string(&line, "DEFAULT");
    hak_text_pad(&line, 0, VALUES_COLUMN);
    hak_text_string(&line, "VALUES");
    hak_text_pad(&line, 0, HELP_COLUMN);
    hak_text_string(&line, "MEANING");
    hak_line_write(&line, fd);
    for (size_t i = 0; i < HAK_OPTION_ROWS; i++) {
        const struct hak_option_row *row = &hak_option_rows[i];
        hak_option_put_title(row, &line);
        hak_text_pad(&line, 0, DEFAULT_COLUMN);
        hak_option_put_default(row, &line);
        hak_text_pad(&line, 0, VALUES_COLUMN);
        hak_option_put_values(row, &line);
        hak_text_pad(&line, 0, HELP_COLUMN);
        hak_text_string(&line, row->help);
        hak_line_write(&line, fd);
    }
}
