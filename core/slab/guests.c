/*
 * guests.c - see guests.h.
 *
 * Hosts are found by going round all slabs: their words say class, owner and how many blocks are free, and
 * what looks like a host is leased and its map searched for rows. A search is bounded. Where one did not find
 * a quarter of what was wanted, the class skips the next one, then three, seven, fifteen.
 */
#include "slab/guests.h"
#include "base/hint.h"
#include "slab/orphans.h"
#include "slab/ragged.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"

#define LOOK_MAX      1024u  /* slabs in one search */
#define HEADERS_MAX   32768u /* in the maps of those that are leased */
#define USED_PER_FREE 20u    /* a row is unlikely where used blocks times its length are more than that */
#define SKIPS_MAX     15u    /* ones in all bits */
#define FOUND_OF      4u     /* of so many that were wanted one is to be found */

static struct {
    _Atomic size_t cursor;                    /* where the next search begins */
    _Atomic uint8_t skips[HAK_CLASS_COUNT];   /* searches to skip after the next one that is in vain */
    _Atomic uint8_t to_skip[HAK_CLASS_COUNT]; /* of those, what is left */
} search;

HAK_READ_MOSTLY _Atomic bool hak_guests_were_made;

unsigned hak_row_length(const hak_header *header) {
    unsigned length = 1;
    /* relaxed: the caller's own, or a moment's figure. There is an end: behind a map lie zeros. */
    while (hak_atomic_load_relaxed(header + length) == HAK_HEADER_TAIL) {
        length++;
    }
    return length;
}

unsigned hak_row_to_free(hak_header *header) {
    unsigned length = hak_row_length(header);
    /* From its end on: no TAIL ever follows a block that is another's. */
    for (unsigned i = length; i-- != 0;) {
        /* release: pairs with the acquire loads in hak_headers_equal(), as in cached_to_free() */
        hak_atomic_store_release(&header[i], HAK_HEADER_FREE);
    }
    return length;
}

bool hak_guest_is_whole(const hak_header *header, unsigned host_class, unsigned class_idx) {
    return class_idx < HAK_CLASS_COUNT && class_idx > host_class &&
           hak_row_length(header) == hak_row_blocks(host_class, class_idx);
}

static bool may_host(unsigned host_class, unsigned class_idx) {
    return hak_class_units[host_class] == 1 && host_class < class_idx &&
           hak_row_blocks(host_class, class_idx) <= HAK_ROW_BLOCKS_MAX;
}

/* Whether rows of free blocks are likely among that many. */
static bool has_room(unsigned host_class, unsigned class_idx, int free_blocks) {
    int used_blocks = (int)hak_class_capacity(host_class) - free_blocks;
    return used_blocks > 0 &&
           used_blocks * (int)hak_row_blocks(host_class, class_idx) < free_blocks * (int)USED_PER_FREE;
}

/* Whether to search the slab for rows: a hint unless the lease is held, which is when the answer decides. */
static bool is_host(struct slab *slab, unsigned class_idx, uint32_t heap_id) {
    uint64_t word = hak_atomic_load_relaxed(&slab->word); /* relaxed: a hint, or the lease holder's */
    unsigned host_class = hak_slab_word_class(word);
    uint32_t owner = hak_slab_word_owner(word);
    return hak_slab_word_is_assigned(word) && !hak_slab_word_is_thin(word) &&
           (owner == HAK_OWNER_NOBODY || owner == heap_id) && may_host(host_class, class_idx) &&
           has_room(host_class, class_idx, hak_slab_word_count(word)) &&
           hak_atomic_load_relaxed(&slab->list) != hak_sparse_of(host_class); /* relaxed: as above */
}

/* The first block from `from` on that is free, or that is not; the slab's capacity if there is none. */
static unsigned find(const struct slab *slab, unsigned from, bool is_free) {
    unsigned group = from & ~(HAK_MAP_GROUP_BLOCKS - 1);
    uint32_t wanted = hak_mask32(HAK_MAP_GROUP_BLOCKS) & ~(((uint32_t)1 << (from - group)) - 1);
    for (; group < slab->capacity_blocks; group += HAK_MAP_GROUP_BLOCKS) {
        uint32_t free_mask = hak_blocks_resident(slab, group);
        uint32_t mask = (is_free ? free_mask : ~free_mask) & wanted;
        if (mask != 0) {
            unsigned found = group + hak_ctz32(mask);
            return found < slab->capacity_blocks ? found : slab->capacity_blocks;
        }
        wanted = hak_mask32(HAK_MAP_GROUP_BLOCKS);
    }
    return slab->capacity_blocks;
}

/* Makes a cached guest of a row of FREE blocks. */
static void free_to_cached(hak_header *header, unsigned length) {
    /* From its end on, as in hak_row_to_free(). */
    for (unsigned i = length; i-- != 0;) {
        /* relaxed: only the lease holder turns FREE into anything; the release of the lease publishes it */
        hak_atomic_store_relaxed(&header[i], i == 0 ? HAK_HEADER_CACHED : HAK_HEADER_TAIL);
    }
}

static unsigned take_rows(struct slab *host, unsigned class_idx, struct block_ref *refs, unsigned want) {
    size_t host_bytes = hak_class_block_bytes[host->class_idx];
    unsigned length = hak_row_blocks(host->class_idx, class_idx);
    unsigned got = 0;
    unsigned start = find(host, 0, true);
    while (got < want && start < host->capacity_blocks) {
        unsigned end = find(host, start, false);
        for (; got < want && start + length <= end; start += length) {
            free_to_cached(&host->map[start], length);
            refs[got].block = (void *)(host->base + start * host_bytes);
            refs[got++].header = &host->map[start];
        }
        start = find(host, end, true);
    }
    return got;
}

/* Takes guests out of a leased slab and gives the lease back. */
static unsigned take_from(struct slab *host, unsigned class_idx, uint32_t heap_id, struct block_ref *refs,
                          unsigned want, enum hak_slab_event *event) {
    bool is_host_still = is_host(host, class_idx, heap_id);
    unsigned got = is_host_still ? take_rows(host, class_idx, refs, want) : 0;
    unsigned blocks = got * hak_row_blocks(host->class_idx, class_idx);
    if (got != 0) {
        hak_hint_set(&hak_guests_were_made, true);
        hak_ragged_raise(host, blocks);
        hak_slab_adopt(host, heap_id);
    }
    *event = hak_slab_release_any(host, blocks);
    return got;
}

/* Whether the class has to skip this search. */
static bool skips(unsigned class_idx) {
    unsigned left =
        hak_atomic_load_relaxed(&search.to_skip[class_idx]); /* relaxed: a hint, as all of these */
    if (left != 0) {
        hak_atomic_store_relaxed(&search.to_skip[class_idx], (uint8_t)(left - 1)); /* relaxed: as above */
    }
    return left != 0;
}

static void set_skips(unsigned class_idx, bool is_in_vain) {
    unsigned before = hak_atomic_load_relaxed(&search.skips[class_idx]); /* relaxed: as in skips() */
    unsigned next = is_in_vain ? (before * 2 + 1) & SKIPS_MAX : 0;
    hak_atomic_store_relaxed(&search.skips[class_idx], (uint8_t)next);   /* relaxed: as above */
    hak_atomic_store_relaxed(&search.to_skip[class_idx], (uint8_t)next); /* relaxed: as above */
}

/* Whether the class's next blocks would come from a new slab whose pages are not there. */
static bool needs_pages(unsigned class_idx) {
    return hak_orphans_look_empty(class_idx) && !hak_superslab_has_dirty();
}

/* Goes round the slabs. */
static unsigned go_round(unsigned class_idx, uint32_t heap_id, struct block_ref *refs, unsigned want,
                         hak_event_handler handler, void *context) {
    unsigned got = 0;
    unsigned headers = 0;
    size_t cursor = hak_atomic_load_relaxed(&search.cursor); /* relaxed: a hint */
    for (unsigned looked = 0; looked < LOOK_MAX && headers < HEADERS_MAX && got < want; looked++) {
        struct slab *slab = hak_slab_at(cursor);
        if (slab == NULL) {
            cursor = 0;
        } else if (!is_host(slab, class_idx, heap_id) || !hak_slab_lease_any(slab)) {
            cursor++;
        } else {
            enum hak_slab_event event;
            headers += slab->capacity_blocks;
            got += take_from(slab, class_idx, heap_id, refs + got, want - got, &event);
            if (event != HAK_EVENT_NONE) {
                handler(slab, event, context);
            }
            cursor += got < want; /* or there may be more */
        }
    }
    hak_atomic_store_relaxed(&search.cursor, cursor); /* relaxed: as above */
    return got;
}

unsigned hak_guests_take(unsigned class_idx, uint32_t heap_id, struct block_ref *refs, unsigned want,
                         hak_event_handler handler, void *context) {
    if (hak_class_units[class_idx] != 1 || skips(class_idx)) {
        return 0;
    }
    bool may_be_hosts = hak_orphans_below(class_idx);
    if (may_be_hosts && !needs_pages(class_idx)) {
        return 0;
    }
    unsigned got = may_be_hosts ? go_round(class_idx, heap_id, refs, want, handler, context) : 0;
    set_skips(class_idx, got * FOUND_OF < want);
    return got;
}
