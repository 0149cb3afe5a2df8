/*
 * leaks.c - see leaks.h.
 */
#include "check/leaks.h"
#include "check/records.h"
#include "check/trace_table.h"
#include "check/trace_text.h"
#include "os/line.h"

#define LINE_BYTES_MAX 128u

/* A block without a stack is in the sums alone. */
static int add_live(const struct hak_record *record, void *context) {
    struct hak_trace_sums *all = context;
    if (record->state == HAK_RECORD_LIVE) {
        all->blocks++;
        all->bytes += record->bytes;
        if (record->allocated != NULL) {
            hak_trace_add(record->allocated, record->bytes);
        }
    }
    return 0;
}

static void write_sums(int fd, const char *before, const struct hak_trace_sums *sums, const char *after) {
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    hak_text_string(&line, before);
    hak_text_decimal(&line, sums->bytes);
    hak_text_string(&line, sums->bytes == 1 ? " byte in " : " bytes in ");
    hak_text_decimal(&line, sums->blocks);
    hak_text_string(&line, sums->blocks == 1 ? " block" : " blocks");
    hak_text_string(&line, after);
    hak_line_write(&line, fd);
}

void hak_leaks_write(int fd, unsigned sites_max) {
    struct hak_trace_sums all = {0, 0};
    struct hak_trace_sums site;
    (void)hak_records_visit(add_live, &all);
    write_sums(fd, "hakmem: exit: ", &all, " still allocated");
    for (unsigned i = 0; i < sites_max; i++) {
        const struct hak_trace *trace = hak_trace_take_largest(&site);
        if (trace == NULL) {
            break;
        }
        write_sums(fd, "  ", &site, " allocated");
        hak_trace_write(trace, fd);
    }
}
