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
    struct hak_tally *all = context;
    if (record->state == HAK_RECORD_LIVE) {
        all->blocks++;
        all->bytes += record->bytes;
        if (record->allocated != NULL) {
            hak_trace_tally(record->allocated, record->bytes);
        }
    }
    return 0;
}

static void write_tally(int fd, const char *before, const struct hak_tally *tally, const char *after) {
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    hak_text_string(&line, before);
    hak_text_decimal(&line, tally->bytes);
    hak_text_string(&line, tally->bytes == 1 ? " byte in " : " bytes in ");
    hak_text_decimal(&line, tally->blocks);
    hak_text_string(&line, tally->blocks == 1 ? " block" : " blocks");
    hak_text_string(&line, after);
    hak_line_write(&line, fd);
}

void hak_leaks_write(int fd, unsigned sites_max) {
    struct hak_tally all = {0, 0};
    struct hak_tally site;
    (void)hak_records_visit(add_live, &all);
    write_tally(fd, "hakmem: exit: ", &all, " still allocated");
    for (unsigned i = 0; i < sites_max; i++) {
        const struct hak_trace *trace = hak_trace_take_largest(&site);
        if (trace == NULL) {
            break;
        }
        write_tally(fd, "  ", &site, " allocated");
        hak_trace_write(trace, fd);
    }
}
