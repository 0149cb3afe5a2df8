/*
 * front_table.c - see front_table.h.
 */
#include "process/front_table.h"
#include "heap/heap.h"
#include "meta/classes.h"
#include "os/line.h"
#include "os/os.h"
#include <string.h>

#define LINE_BYTES_MAX    512u
#define CLASS_WIDTH       5u
#define BLOCK_WIDTH       8u
#define NUMBER_WIDTH_MIN  10u
#define PERCENT_WIDTH     8u
#define COLUMN_NAME_BYTES 20u
#define COLUMN_GAP        2u

struct column {
    char name[COLUMN_NAME_BYTES];
    size_t offset_bytes; /* in struct front_counts */
};

#define COLUMN(counter, help) {.name = #counter, .offset_bytes = offsetof(struct front_counts, counter)},
static const struct column all_columns[] = {HAK_FRONT_COUNTERS(COLUMN)};

static const struct column warm_columns[] = {
    {"hits", offsetof(struct front_counts, warm_hits)},
    {"misses", offsetof(struct front_counts, warm_misses)},
    {"prefills", offsetof(struct front_counts, warm_prefills)},
};

/* A table for people: which columns, and whether a rate of hits stands behind them. */
struct layout {
    const char *title;
    const struct column *columns;
    size_t column_count;
    bool has_warm_rate;
};

static uint64_t value_of(const struct front_counts *counts, const struct column *column) {
    return *(const uint64_t *)((const char *)counts + column->offset_bytes);
}

static void add(struct front_counts *sums, const struct front_counts *counts) {
#define ADD(counter, help) sums->counter += counts->counter;
    HAK_FRONT_COUNTERS(ADD)
#undef ADD
}

static unsigned width_of(const struct column *column) {
    size_t name_bytes = strlen(column->name);
    return (unsigned)(name_bytes > NUMBER_WIDTH_MIN ? name_bytes : NUMBER_WIDTH_MIN) + COLUMN_GAP;
}

/* Hits per hundred, with one decimal. */
static void put_rate(struct text *line, uint64_t hits, uint64_t misses) {
    uint64_t per_mille = hits + misses == 0 ? 0 : hits * 1000u / (hits + misses);
    hak_text_decimal_right(line, per_mille / 10u, PERCENT_WIDTH - 2u);
    hak_text_char(line, '.');
    hak_text_decimal(line, per_mille % 10u);
}

static void put_numbers(struct text *line, const struct layout *layout, const struct front_counts *counts) {
    for (size_t i = 0; i < layout->column_count; i++) {
        const struct column *column = &layout->columns[i];
        hak_text_decimal_right(line, value_of(counts, column), width_of(column));
    }
    if (layout->has_warm_rate) {
        put_rate(line, counts->warm_hits, counts->warm_misses);
    }
}

static void put_heading(struct text *line, const struct layout *layout) {
    hak_text_right(line, "class", CLASS_WIDTH);
    hak_text_right(line, "bytes", BLOCK_WIDTH);
    for (size_t i = 0; i < layout->column_count; i++) {
        hak_text_right(line, layout->columns[i].name, width_of(&layout->columns[i]));
    }
    if (layout->has_warm_rate) {
        hak_text_right(line, "hits %", PERCENT_WIDTH);
    }
}

static bool is_used(const struct layout *layout, const struct front_counts *counts) {
    for (size_t i = 0; i < layout->column_count; i++) {
        if (value_of(counts, &layout->columns[i]) != 0) {
            return true;
        }
    }
    return false;
}

static void write_table(const struct layout *layout, int fd) {
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    struct front_counts sums = {0};
    hak_text_string(&line, layout->title);
    hak_text_decimal(&line, hak_os_process_id());
    hak_line_write(&line, fd);
    put_heading(&line, layout);
    hak_line_write(&line, fd);
    for (unsigned class_idx = 0; class_idx < HAK_CLASS_COUNT; class_idx++) {
        struct front_counts counts = {0};
        hak_heap_sum_counters(class_idx, &counts);
        if (!is_used(layout, &counts)) {
            continue;
        }
        hak_text_decimal_right(&line, class_idx, CLASS_WIDTH);
        hak_text_decimal_right(&line, hak_class_block_bytes[class_idx], BLOCK_WIDTH);
        put_numbers(&line, layout, &counts);
        hak_line_write(&line, fd);
        add(&sums, &counts);
    }
    hak_text_right(&line, "all", CLASS_WIDTH);
    hak_text_right(&line, "", BLOCK_WIDTH);
    put_numbers(&line, layout, &sums);
    hak_line_write(&line, fd);
}

void hak_warm_pool_table(int fd) {
    static const struct layout layout = {.title = "hakmem: warm pools of process ",
                                         .columns = warm_columns,
                                         .column_count = HAK_COUNT_OF(warm_columns),
                                         .has_warm_rate = true};
    write_table(&layout, fd);
}

void hak_front_table(int fd) {
    static const struct layout layout = {.title = "hakmem: front end of process ",
                                         .columns = all_columns,
                                         .column_count = HAK_COUNT_OF(all_columns)};
    write_table(&layout, fd);
}

void hak_front_dump(int fd) {
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_line_over(buffer, sizeof buffer);
    hak_text_string(&line, "class,block_bytes");
    for (size_t i = 0; i < HAK_COUNT_OF(all_columns); i++) {
        hak_text_char(&line, ',');
        hak_text_string(&line, all_columns[i].name);
    }
    hak_line_write(&line, fd);
    for (unsigned class_idx = 0; class_idx < HAK_CLASS_COUNT; class_idx++) {
        struct front_counts counts = {0};
        hak_heap_sum_counters(class_idx, &counts);
        hak_text_decimal(&line, class_idx);
        hak_text_char(&line, ',');
        hak_text_decimal(&line, hak_class_block_bytes[class_idx]);
        for (size_t i = 0; i < HAK_COUNT_OF(all_columns); i++) {
            hak_text_char(&line, ',');
            hak_text_decimal(&line, value_of(&counts, &all_columns[i]));
        }
        hak_line_write(&line, fd);
    }
}
