/*
 * page_map.h - one bit for each OS page of an extent.
 *
 * Plain arithmetic over 512 bits; the maps' owner says under which lock. Ranges are [first, end).
 */
#ifndef HAK_LARGE_PAGE_MAP_H
#define HAK_LARGE_PAGE_MAP_H

#include "base/bits.h"
#include "base/config.h"

/* An extent is a SuperSlab; with OS pages of 4 KiB, the smallest there are, it has this many. */
#define HAK_EXTENT_PAGES_MAX 512u
#define HAK_PAGE_MAP_WORDS   (HAK_EXTENT_PAGES_MAX / 64u)

struct hak_page_map {
    uint64_t words[HAK_PAGE_MAP_WORDS];
};

HAK_INLINE bool hak_page_map_test(const struct hak_page_map *map, unsigned page) {
    return (map->words[page / 64u] >> (page % 64u) & 1u) != 0;
}

HAK_INLINE void hak_page_map_set_one(struct hak_page_map *map, unsigned page) {
    map->words[page / 64u] |= (uint64_t)1 << (page % 64u);
}

HAK_INLINE void hak_page_map_clear_one(struct hak_page_map *map, unsigned page) {
    map->words[page / 64u] &= ~((uint64_t)1 << (page % 64u));
}

/* The bits of word `word` that lie in [first, end). */
HAK_INLINE uint64_t hak_page_map_mask(unsigned word, unsigned first, unsigned end) {
    unsigned low = word * 64u;
    uint64_t mask = UINT64_MAX;
    if (end <= low || first >= low + 64u) {
        return 0;
    }
    if (first > low) {
        mask &= UINT64_MAX << (first - low);
    }
    if (end < low + 64u) {
        mask &= UINT64_MAX >> (low + 64u - end);
    }
    return mask;
}

HAK_INLINE void hak_page_map_set(struct hak_page_map *map, unsigned first, unsigned end) {
    for (unsigned w = first / 64u; w < HAK_PAGE_MAP_WORDS && w * 64u < end; w++) {
        map->words[w] |= hak_page_map_mask(w, first, end);
    }
}

HAK_INLINE void hak_page_map_clear(struct hak_page_map *map, unsigned first, unsigned end) {
    for (unsigned w = first / 64u; w < HAK_PAGE_MAP_WORDS && w * 64u < end; w++) {
        map->words[w] &= ~hak_page_map_mask(w, first, end);
    }
}

HAK_INLINE unsigned hak_page_map_count(const struct hak_page_map *map, unsigned first, unsigned end) {
    unsigned count = 0;
    for (unsigned w = first / 64u; w < HAK_PAGE_MAP_WORDS && w * 64u < end; w++) {
        count += (unsigned)__builtin_popcountll(map->words[w] & hak_page_map_mask(w, first, end));
    }
    return count;
}

/* The first page of [first, end) whose bit is `value`; `end` when there is none. */
HAK_INLINE unsigned hak_page_map_find(const struct hak_page_map *map, unsigned first, unsigned end,
                                      bool value) {
    for (unsigned w = first / 64u; w < HAK_PAGE_MAP_WORDS && w * 64u < end; w++) {
        uint64_t bits = (value ? map->words[w] : ~map->words[w]) & hak_page_map_mask(w, first, end);
        if (bits != 0) {
            return w * 64u + hak_ctz64(bits);
        }
    }
    return end;
}

/* The end of the last set bit of [first, end); `first` when there is none. */
HAK_INLINE unsigned hak_page_map_last_end(const struct hak_page_map *map, unsigned first, unsigned end) {
    for (unsigned w = (end + 63u) / 64u; w-- > first / 64u;) {
        uint64_t bits = map->words[w] & hak_page_map_mask(w, first, end);
        if (bits != 0) {
            return w * 64u + hak_log2(bits) + 1u;
        }
    }
    return first;
}

_Static_assert(HAK_EXTENT_PAGES_MAX * 4096u == HAK_SUPERSLAB_BYTES,
               "a bit for each 4 KiB page of a SuperSlab");

#endif
