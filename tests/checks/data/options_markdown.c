/*
 * options_markdown.c - writes the README's table of options from the rows that the parser uses.
 */
#include "conf/option_rows.h"
#include "os/os.h"
#include <unistd.h>

#define TABLE_BYTES_MAX 16384u

/* A bar would end the cell. */
static void put_cell(struct text *table, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        hak_text_string(table, text[i] == '|' ? "\\" : "");
        hak_text_char(table, text[i]);
    }
}

static void put_column(struct text *table, const struct hak_option_row *row,
                       void (*put)(const struct hak_option_row *row, struct text *text)) {
    char buffer[128];
    struct text cell = hak_text_over(buffer, sizeof buffer);
    put(row, &cell);
    put_cell(table, cell.start, cell.used_bytes);
}

int main(void) {
    static char buffer[TABLE_BYTES_MAX];
    struct text table = hak_text_over(buffer, sizeof buffer);
    hak_text_string(&table, "| name | default | values | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < HAK_OPTION_ROWS; i++) {
        const struct hak_option_row *row = &hak_option_rows[i];
        hak_text_string(&table, "| `");
        put_column(&table, row, hak_option_put_title);
        hak_text_string(&table, "` | ");
        put_column(&table, row, hak_option_put_default);
        hak_text_string(&table, " | ");
        put_column(&table, row, hak_option_put_values);
        hak_text_string(&table, " | ");
        hak_text_string(&table, row->help);
        hak_text_string(&table, " |\n");
    }
    hak_os_write(STDOUT_FILENO, table.start, table.used_bytes);
    return 0;
}
