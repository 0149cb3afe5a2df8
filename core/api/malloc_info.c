/*
 * malloc_info.c - glibc's malloc_info: the heap as XML, in glibc's shape (version 1).
 *
 * One heap, number 0. A <size> row stands for the free and cached blocks of a class, from..to the requests
 * that it serves. "fast" are blocks in threads' unified caches, "rest" is what else is free in the heap,
 * "mmap" live large blocks with a mapping of their own. `aspace` is what the heap has mapped for blocks,
 * `system` that and the mappings; "max" is the most that was mapped for everything. All figures are taken
 * before anything is written, so that the stream's own allocations do not disturb them.
 */
#include "base/config.h"
#if !HAK_TSAN
#include "api/glibc_malloc.h"
#include "base/atomic.h"
#include "base/text.h"
#include "hakmem.h"
#include "os/os.h"
#include "process/stats.h"
#include <errno.h>

#define LINE_BYTES_MAX 192u

/* The text goes to the stream line by line: a stack may be small. */
struct xml {
    FILE *stream;
    bool has_failed;
};

struct attribute {
    const char *name;
    size_t value;
};

/* Writes <element type="type" name="value" .../>; `type` may be NULL. */
static void put_element(struct xml *xml, const char *element, const char *type,
                        const struct attribute *attributes, size_t count) {
    char buffer[LINE_BYTES_MAX];
    struct text line = hak_text_over(buffer, sizeof buffer - 1);
    hak_text_char(&line, '<');
    hak_text_string(&line, element);
    if (type != NULL) {
        hak_text_string(&line, " type=\"");
        hak_text_string(&line, type);
        hak_text_char(&line, '"');
    }
    for (size_t i = 0; i < count; i++) {
        hak_text_char(&line, ' ');
        hak_text_string(&line, attributes[i].name);
        hak_text_string(&line, "=\"");
        hak_text_decimal(&line, attributes[i].value);
        hak_text_char(&line, '"');
    }
    hak_text_string(&line, "/>\n");
    buffer[line.used_bytes] = '\0';
    xml->has_failed |= fputs(buffer, xml->stream) < 0;
}

static void put_string(struct xml *xml, const char *string) {
    xml->has_failed |= fputs(string, xml->stream) < 0;
}

static void put_size(struct xml *xml, const char *element, const char *type, size_t bytes) {
    const struct attribute attributes[] = {{"size", bytes}};
    put_element(xml, element, type, attributes, HAK_COUNT_OF(attributes));
}

static void put_total(struct xml *xml, const char *type, size_t count, size_t bytes) {
    const struct attribute attributes[] = {{"count", count}, {"size", bytes}};
    put_element(xml, "total", type, attributes, HAK_COUNT_OF(attributes));
}

static void put_sizes(struct xml *xml, const struct hak_stats *stats) {
    size_t below_bytes = 0;
    put_string(xml, "<sizes>\n");
    for (size_t i = 0; i < HAK_STATS_CLASSES; i++) {
        const struct hak_class_stats *one = &stats->classes[i];
        size_t count = one->free_blocks + one->cached_blocks;
        const struct attribute attributes[] = {{"from", below_bytes + 1},
                                               {"to", one->block_bytes},
                                               {"total", count * one->block_bytes},
                                               {"count", count}};
        if (count != 0) {
            put_element(xml, "size", NULL, attributes, HAK_COUNT_OF(attributes));
        }
        below_bytes = one->block_bytes;
    }
    put_string(xml, "</sizes>\n");
}

/* What stands in the heap's element and, in glibc's shape once more, behind it. */
static void put_summary(struct xml *xml, const struct mallinfo2 *info, bool has_mappings, size_t peak_bytes) {
    size_t mapped_bytes = has_mappings ? info->hblkhd : 0;
    put_total(xml, "fast", info->smblks, info->fsmblks);
    put_total(xml, "rest", info->ordblks, info->fordblks - info->fsmblks);
    if (has_mappings) {
        put_total(xml, "mmap", info->hblks, mapped_bytes);
    }
    put_size(xml, "system", "current", info->arena + mapped_bytes);
    put_size(xml, "system", "max", peak_bytes);
    put_size(xml, "aspace", "total", info->arena);
    put_size(xml, "aspace", "mprotect", info->arena);
}

HAK_API HAK_COLD int malloc_info(int options, FILE *stream) {
    if (options != 0) {
        return EINVAL;
    }
    struct xml xml = {.stream = stream};
    struct hak_stats stats;
    struct mallinfo2 info = mallinfo2();
    hak_stats_collect(&stats);
    if (info.fordblks < info.fsmblks) {
        info.fordblks = info.fsmblks; /* other threads have freed since */
    }
    size_t peak_bytes =
        hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes_peak); /* relaxed: a statistic */
    put_string(&xml, "<malloc version=\"1\">\n<heap nr=\"0\">\n");
    put_sizes(&xml, &stats);
    put_summary(&xml, &info, false, peak_bytes);
    put_string(&xml, "</heap>\n");
    put_summary(&xml, &info, true, peak_bytes);
    put_string(&xml, "</malloc>\n");
    return xml.has_failed ? -1 : 0;
}

#endif
