/*
 * heap_table.c - see heap_table.h.
 */
#include "process/heap_table.h"
#include "base/atomic.h"
#include "hakmem.h"
#include "os/line.h"
#include "os/os.h"
#include "process/stats.h"

#define LINE_BYTES_MAX 160u
#define LABEL_COLUMN   26u
#define BYTES_WIDTH    16u
#define COUNT_WIDTH    12u

/* A column of the table of classes. */
struct column {
    char name[12];
    unsigned width;
    size_t offset_bytes; /* in struct hak_class_stats, of a size_t */
};

static const struct column columns[] = {
    {"bytes", 8, offsetof(struct hak_class_stats, block_bytes)},
    {"slabs", 8, offsetof(struct hak_class_stats, slabs)},
    {"capacity", 12, offsetof(struct hak_class_stats, capacity_blocks)},
    {"live", 12, offsetof(struct hak_class_stats, live_blocks)},
    {"cached", 12, offsetof(struct hak_class_stats, cached_blocks)},
    {"free", 12, offsetof(struct hak_class_stats, free_blocks)},
};
#define CLASS_WIDTH 5u

static void put_label(struct text *line, const char *label) {
    hak_text_string(line, label);
    hak_text_pad(line, 0, LABEL_COLUMN);
}

static void bytes_row(struct text *line, int fd, const char *label, size_t bytes) {
    put_label(line, label);
    hak_text_decimal_right(line, bytes, BYTES_WIDTH);
    hak_line_write(line, fd);
}

static void blocks_row(struct text *line, int fd, const char *label, size_t bytes, size_t blocks) {
    put_label(line, label);
    hak_text_decimal_right(line, bytes, BYTES_WIDTH);
    hak_text_decimal_right(line, blocks, COUNT_WIDTH);
    hak_line_write(line, fd);
}

static void count_row(struct text *line, int fd, const char *label, uint64_t count) {
    put_label(line, label);
    hak_text_decimal_right(line, count, BYTES_WIDTH + COUNT_WIDTH);
    hak_line_write(line, fd);
}

static void call_row(struct text *line, int fd, const char *label, _Atomic uint64_t *counter) {
    count_row(line, fd, label, hak_atomic_load_relaxed(counter)); /* relaxed: a statistic */
}

static void totals(struct text *line, int fd, const struct hak_stats *stats) {
    put_label(line, "");
    hak_text_right(line, "bytes", BYTES_WIDTH);
    hak_text_right(line, "count", COUNT_WIDTH);
    hak_line_write(line, fd);
    blocks_row(line, fd, "live", stats->live_bytes, stats->live_blocks);
    blocks_row(line, fd, "  of that above 32 KiB", stats->large_live_bytes, stats->large_live_blocks);
    bytes_row(line, fd, "cached by threads", stats->cached_bytes);
    bytes_row(line, fd, "free", stats->free_bytes);
    bytes_row(line, fd, "metadata", stats->metadata_bytes);
    bytes_row(line, fd, "mapped", stats->mapped_bytes);
    bytes_row(line, fd, "  at most so far",
              hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes_peak)); /* relaxed: a statistic */
    bytes_row(line, fd, "resident", hak_stats_resident_bytes());
    count_row(line, fd, "SuperSlabs", stats->superslabs);
    count_row(line, fd, "  of those empty", stats->superslabs_empty);
    count_row(line, fd, "thread heaps", stats->heaps);
    call_row(line, fd, "calls to map", &hak_os_counters.map_calls);
    call_row(line, fd, "calls to unmap", &hak_os_counters.unmap_calls);
    call_row(line, fd, "calls to purge", &hak_os_counters.purge_calls);
    call_row(line, fd, "calls to remap", &hak_os_counters.remap_calls);
    call_row(line, fd, "calls to protect", &hak_os_counters.protect_calls);
}

static void classes(struct text *line, int fd, const struct hak_stats *stats) {
    hak_text_right(line, "class", CLASS_WIDTH);
    for (size_t i = 0; i < HAK_COUNT_OF(columns); i++) {
        hak_text_right(line, columns[i].name, columns[i].width);
    }
    hak_line_write(line, fd);
    for (size_t class_idx = 0; class_idx < HAK_STATS_CLASSES; class_idx++) {
        const struct hak_class_stats *class_stats = &stats->classes[class_idx];
        if (class_stats->slabs == 0) {
            continue;
        }
        hak_text_decimal_right(line, class_idx, CLASS_WIDTH);
        for (size_t i = 0; i < HAK_COUNT_OF(columns); i++) {
            size_t value = *(const size_t *)((const char *)class_stats + columns[i].offset_bytes);
            hak_text_decimal_right(line, value, columns[i].width);
        }
        hak_line_write(line, fd);
    }
}

void hak_heap_table(int fd) {
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    struct hak_stats stats;
    hak_stats_collect(&stats);
    hak_text_string(&line, "hakmem: heap of process ");
    hak_text_decimal(&line, hak_os_process_id());
    hak_line_write(&line, fd);
    totals(&line, fd, &stats);
    classes(&line, fd, &stats);
}
