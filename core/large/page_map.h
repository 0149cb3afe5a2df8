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

/* The bits of word `word` that lie in [first, end), which reaches into that word. */
HAK_INLINE uint64_t hak_page_map_mask(unsigned word, unsigned first, unsigned end) {
    uint64_t mask = UINT64_MAX;
    if (word == first / 64u) {
        mask <<= first % 64u;
    }
    if (word == (end - 1) / 64u) {
        mask &= UINT64_MAX >> (63u - (end - 1) % 64u);
    }
    return mask;
}

/* In the functions on ranges: first < end. */
HAK_INLINE void hak_page_map_set(struct hak_page_map *map, unsigned first, unsigned end) {
    for (unsigned w = first / 64u; w <= (end - 1) / 64u; w++) {
        map->words[w] |= hak_page_map_mask(w, first, end);
    }
}

/* Clears the bits of the range; those that were set come out in *taken, at the same places. */
HAK_INLINE void hak_page_map_take(struct hak_page_map *map, unsigned first, unsigned end,
                                  struct hak_page_map *taken) {
    for (unsigned w = first / 64u; w <= (end - 1) / 64u; w++) {
        taken->words[w] = map->words[w] & hak_page_map_mask(w, first, end);
        map->words[w] ^= taken->words[w];
    }
}

HAK_INLINE unsigned hak_page_map_count(const struct hak_page_map *map, unsigned first, unsigned end) {
    unsigned count = 0;
    for (unsigned w = first / 64u; w <= (end - 1) / 64u; w++) {
        uint64_t bits = map->words[w] & hak_page_map_mask(w, first, end);
        count += hak_popcount64(bits);
    }
    return count;
}

/* The first page of [first, end) whose bit is `value`; `end` when there is none. */
HAK_INLINE unsigned hak_page_map_find(const struct hak_page_map *map, unsigned first, unsigned end,
                                      bool value) {
    uint64_t flip = value ? 0 : UINT64_MAX;
    unsigned word = first / 64u;
    uint64_t bits = (map->words[word] ^ flip) & UINT64_MAX << (first % 64u);
    while (bits == 0) {
        if (++word * 64u >= end) {
            return end;
        }
        bits = map->words[word] ^ flip;
    }
    unsigned page = word * 64u + hak_ctz64(bits);
    return page < end ? page : end;
}

/* The end of the last set bit of [first, end); `first` when there is none. */
HAK_INLINE unsigned hak_page_map_last_end(const struct hak_page_map *map, unsigned first, unsigned end) {
    for (unsigned w = (end - 1) / 64u + 1; w-- > first / 64u;) {
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
