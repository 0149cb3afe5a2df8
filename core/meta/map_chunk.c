/*
 * map_chunk.c - see map_chunk.h.
 */
#include "meta/map_chunk.h"
#include "base/assert.h"
#include "base/bits.h"
#include "os/os.h"

/* The bits, in its cell, of a line and as many behind it as are wanted and in the cell; how many. */
static uint64_t bits_from(unsigned first, unsigned lines, unsigned *count) {
    unsigned bit = first % HAK_CELL_LINES;
    *count = (unsigned)hak_smaller(lines, HAK_CELL_LINES - bit);
    return UINT64_MAX >> (HAK_CELL_LINES - *count) << bit;
}

struct hak_map_chunk *hak_map_chunk_make(char *memory, size_t bytes, unsigned lead_lines) {
    struct hak_map_chunk *c = (struct hak_map_chunk *)(void *)(memory + lead_lines * HAK_CACHE_LINE_BYTES);
    size_t own_bytes = sizeof *c + bytes / HAK_CELL_BYTES * sizeof(struct hak_map_cell);
    c->base = memory;
    c->cell_count = (uint32_t)(bytes / HAK_CELL_BYTES);
    c->own_lines = lead_lines + (uint32_t)((own_bytes + HAK_CACHE_LINE_BYTES - 1) / HAK_CACHE_LINE_BYTES);
    c->is_fixed = !hak_is_aligned((uintptr_t)memory, hak_os_page_bytes());
    (void)hak_map_chunk_take(c, 0, c->own_lines);
    c->room_lines = HAK_MAP_LINES_MAX;
    return c;
}

bool hak_map_chunk_take(struct hak_map_chunk *c, unsigned first, unsigned lines) {
    bool is_zero = true;
    c->used_lines += lines;
    for (unsigned count; lines != 0; first += count, lines -= count) {
        uint64_t bits = bits_from(first, lines, &count);
        struct hak_map_cell *cell = &c->cells[first / HAK_CELL_LINES];
        HAK_ASSERT((cell->used & bits) == 0);
        c->dirty_cells -= cell->used == 0 && cell->stale != 0;
        is_zero = is_zero && (cell->stale & bits) == 0;
        cell->used |= bits;
        cell->stale |= bits;
    }
    return is_zero;
}

/* How many free lines stand before that one, and from it on, as far as matters. */
static unsigned free_before(const struct hak_map_chunk *c, unsigned line) {
    unsigned count = 0;
    while (line != count && count < HAK_MAP_LINES_MAX) {
        unsigned last = line - count - 1;
        uint64_t used = c->cells[last / HAK_CELL_LINES].used << (HAK_CELL_LINES - 1 - last % HAK_CELL_LINES);
        if (used != 0) {
            return count + HAK_CELL_LINES - 1 - hak_log2(used);
        }
        count += last % HAK_CELL_LINES + 1;
    }
    return count;
}

static unsigned free_from(const struct hak_map_chunk *c, unsigned line) {
    unsigned end = line;
    while (end < c->cell_count * HAK_CELL_LINES && end - line < HAK_MAP_LINES_MAX) {
        uint64_t used = c->cells[end / HAK_CELL_LINES].used >> end % HAK_CELL_LINES;
        if (used != 0) {
            return end + hak_ctz64(used) - line;
        }
        end += HAK_CELL_LINES - end % HAK_CELL_LINES;
    }
    return end - line;
}

void hak_map_chunk_give(struct hak_map_chunk *c, unsigned first, unsigned lines) {
    unsigned line = first;
    c->used_lines -= lines;
    c->full_cells = (uint32_t)hak_smaller(c->full_cells, first / HAK_CELL_LINES);
    for (unsigned count; lines != 0; line += count, lines -= count) {
        uint64_t bits = bits_from(line, lines, &count);
        struct hak_map_cell *cell = &c->cells[line / HAK_CELL_LINES];
        HAK_ASSERT((cell->used & bits) == bits);
        cell->used &= ~bits;
        c->dirty_cells += cell->used == 0 && cell->stale != 0;
    }
    if (c->room_lines < HAK_MAP_LINES_MAX) {
        size_t run = hak_smaller(free_before(c, first) + free_from(c, first), HAK_MAP_LINES_MAX);
        c->room_lines = (uint32_t)hak_larger(c->room_lines, run);
    }
}

bool hak_map_chunk_find(struct hak_map_chunk *c, unsigned lines, unsigned *first) {
    unsigned end = c->cell_count * HAK_CELL_LINES;
    unsigned longest = 0;
    while (c->full_cells < c->cell_count && c->cells[c->full_cells].used == UINT64_MAX) {
        c->full_cells++;
    }
    for (unsigned line = c->full_cells * HAK_CELL_LINES; line < end;) {
        uint64_t used = c->cells[line / HAK_CELL_LINES].used >> line % HAK_CELL_LINES;
        unsigned taken = used == UINT64_MAX ? HAK_CELL_LINES : hak_ctz64(~used);
        if (taken != 0) {
            line += taken;
            continue;
        }
        unsigned run = free_from(c, line);
        if (run >= lines) {
            *first = line;
            return true;
        }
        longest = longest < run ? run : longest;
        line += run;
    }
    c->room_lines = longest;
    return false;
}

/* Whether an OS page holds memory, maybe, and none of it is in use. */
static bool is_page_dirty(const struct hak_map_chunk *c, unsigned cell, unsigned page_cells) {
    uint64_t used = 0, stale = 0;
    for (unsigned i = 0; i < page_cells; i++) {
        used |= c->cells[cell + i].used;
        stale |= c->cells[cell + i].stale;
    }
    return used == 0 && stale != 0;
}

bool hak_map_chunk_begin_purge(struct hak_map_chunk *c, unsigned from_cell) {
    unsigned page_cells = (unsigned)(hak_os_page_bytes() / HAK_CELL_BYTES);
    if (c->is_fixed || c->purging_cells != 0 || c->dirty_cells == 0) {
        return false;
    }
    unsigned first = (unsigned)hak_round_up(from_cell, page_cells);
    while (first < c->cell_count && !is_page_dirty(c, first, page_cells)) {
        first += page_cells;
    }
    unsigned end = first;
    while (end < c->cell_count && is_page_dirty(c, end, page_cells)) {
        end += page_cells;
    }
    (void)hak_map_chunk_take(c, first * HAK_CELL_LINES, (end - first) * HAK_CELL_LINES);
    c->purging_cell = first;
    c->purging_cells = end - first;
    return end != first;
}

void hak_map_chunk_end_purge(struct hak_map_chunk *c, bool is_given) {
    for (unsigned i = 0; is_given && i < c->purging_cells; i++) {
        c->cells[c->purging_cell + i].stale = 0;
    }
    hak_map_chunk_give(c, c->purging_cell * HAK_CELL_LINES, c->purging_cells * HAK_CELL_LINES);
    c->purging_cells = 0;
}

/* Free runs, counted line by line. */
static unsigned longest_run(const struct hak_map_chunk *c) {
    unsigned run = 0, longest = 0;
    for (unsigned line = 0; line < c->cell_count * HAK_CELL_LINES; line++) {
        bool is_used = (c->cells[line / HAK_CELL_LINES].used >> line % HAK_CELL_LINES & 1u) != 0;
        run = is_used ? 0 : run + 1;
        longest = longest < run ? run : longest;
    }
    return longest;
}

const char *hak_map_chunk_check(const struct hak_map_chunk *c) {
    unsigned used_lines = 0, dirty_cells = 0;
    for (unsigned cell = 0; cell < c->cell_count; cell++) {
        struct hak_map_cell bits = c->cells[cell];
        used_lines += hak_popcount64(bits.used);
        dirty_cells += bits.used == 0 && bits.stale != 0;
        if ((bits.used & ~bits.stale) != 0) {
            return "header maps: lines in use that count as zero";
        }
        if (cell < c->full_cells && bits.used != UINT64_MAX) {
            return "header maps: a free line that no search would find";
        }
    }
    if (used_lines != c->used_lines || dirty_cells != c->dirty_cells) {
        return "header maps: the lines of a chunk are not what was counted";
    }
    if (c->owed_cells > dirty_cells) {
        return "header maps: more is to be purged than is free";
    }
    if (c->room_lines < HAK_MAP_LINES_MAX && longest_run(c) > c->room_lines) {
        return "header maps: more room than is known";
    }
    return NULL;
}
