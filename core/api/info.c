/*
 * info.c - mallinfo, mallinfo2 and malloc_stats: glibc's questions, answered from hakmem's figures.
 *
 * Field by field; "mappings" are large blocks with a mapping of their own:
 *   hblks, hblkhd    live mappings: how many, and their bytes
 *   arena            mapped bytes for all other blocks: everything mapped but metadata and hblkhd
 *   uordblks         bytes of live blocks, at their usable size, but for the mappings
 *   fordblks         arena - uordblks: free blocks wherever they are, free pages, ends of slabs
 *   fsmblks, smblks  of fordblks, what threads hold in their unified caches: bytes and blocks
 *   ordblks          number of free blocks in slabs
 *   keepcost         bytes of empty SuperSlabs, which go first when memory is given back
 *   usmblks          0, as in glibc
 * So arena == uordblks + fordblks, and arena + hblkhd + metadata is what hakmem has mapped. Any thread; while
 * others allocate, each figure is right for some moment of the call. No system call but malloc_stats' write
 * and those that give back or wait for a thread that was preempted.
 */
#include "base/config.h"
#if !HAK_TSAN
#include "api/glibc_malloc.h"
#include "base/text.h"
#include "large/large.h"
#include "os/os.h"
#include "process/stats.h"
#include <unistd.h>

#define STATS_TEXT_BYTES_MAX 512u
#define STATS_LABEL_COLUMN   17u
#define STATS_NUMBER_WIDTH   10u

/* a - b, or 0 when a figure taken later has overtaken one taken earlier. */
static size_t less(size_t a, size_t b) {
    return a > b ? a - b : 0;
}

static size_t sum_blocks(const struct hak_stats *stats, size_t offset_bytes) {
    size_t sum = 0;
    for (size_t i = 0; i < HAK_STATS_CLASSES; i++) {
        sum += *(const size_t *)((const char *)&stats->classes[i] + offset_bytes);
    }
    return sum;
}

HAK_API HAK_COLD struct mallinfo2 mallinfo2(void) {
    struct hak_stats stats;
    hak_stats_collect(&stats);
    struct hak_large_counts large = hak_large_count();
    struct mallinfo2 info = {
        .ordblks = sum_blocks(&stats, offsetof(struct hak_class_stats, free_blocks)),
        .smblks = sum_blocks(&stats, offsetof(struct hak_class_stats, cached_blocks)),
        .hblks = large.mapped_blocks,
        .hblkhd = large.mapped_bytes,
        .fsmblks = stats.cached_bytes,
        .uordblks = less(stats.live_bytes, large.mapped_bytes),
        .keepcost = stats.superslabs_empty * HAK_SUPERSLAB_BYTES,
    };
    info.arena = less(less(stats.mapped_bytes, stats.metadata_bytes), info.hblkhd);
    info.fordblks = less(info.arena, info.uordblks);
    return info;
}

/* Above 2 GiB a figure of the old struct stays at its highest value instead of wrapping to nonsense. */
static int as_int(size_t value) {
    return value < INT_MAX ? (int)value : INT_MAX;
}

HAK_API HAK_COLD struct mallinfo mallinfo(void) {
    struct mallinfo2 wide = mallinfo2();
#define NARROW(field) .field = as_int(wide.field),
    return (struct mallinfo){HAK_MALLINFO_FIELDS(NARROW)};
#undef NARROW
}

/* ---- malloc_stats ----------------------------------------------------------------------------------- */

static void put_row(struct text *text, const char *label, size_t value) {
    size_t line_start_bytes = text->used_bytes;
    hak_text_string(text, label);
    hak_text_pad(text, line_start_bytes, STATS_LABEL_COLUMN);
    hak_text_string(text, "= ");
    hak_text_decimal_right(text, value, STATS_NUMBER_WIDTH);
    hak_text_char(text, '\n');
}

HAK_API HAK_COLD void malloc_stats(void) {
    char buffer[STATS_TEXT_BYTES_MAX];
    struct text text = hak_text_over(buffer, sizeof buffer);
    struct mallinfo2 info = mallinfo2();
    hak_text_string(&text, "Arena 0:\n");
    put_row(&text, "system bytes", info.arena);
    put_row(&text, "in use bytes", info.uordblks);
    hak_text_string(&text, "Total (incl. mmap):\n");
    put_row(&text, "system bytes", info.arena + info.hblkhd);
    put_row(&text, "in use bytes", info.uordblks + info.hblkhd);
    put_row(&text, "mmap regions", info.hblks);
    put_row(&text, "mmap bytes", info.hblkhd);
    hak_os_write(STDERR_FILENO, text.start, text.used_bytes);
}

#endif
