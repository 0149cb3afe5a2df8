/*
 * guests.c - see guests.h.
 *
 * Hosts are found by going round all slabs, each class by itself: their words say class, owner and how many
 * blocks are free, and what looks like a host is leased and its map searched for rows. A search is bounded.
 * One is in vain that did not find a quarter of what was wanted; when such searches have come round all slabs
 * a few times, the next ones are skipped, one, then three, seven, fifteen.
 */
#include "slab/guests.h"
#include "base/hint.h"
#include "slab/orphans.h"
#include "slab/ragged.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include <limits.h>

#define LOOK_MAX      1024u  /* slabs in one search */
#define HEADERS_MAX   65536u /* in the maps of those that are leased */
#define USED_PER_FREE 20u    /* a row is unlikely where used blocks times its length are more than that */
#define WORD_BITS     64u
#define NO_ROW        UINT_MAX
#define FOUND_OF      4u /* of so many that were wanted one is to be found */
#define ROUNDS_FREE   3u /* in vain, before searches are skipped, */
#define ROUNDS_MAX    7u /* and when no more are from then on */

static struct {
    _Atomic size_t cursor[HAK_CLASS_COUNT];   /* where the next search begins */
    _Atomic uint8_t rounds[HAK_CLASS_COUNT];  /* of searches in vain, since one was not */
    _Atomic uint8_t to_skip[HAK_CLASS_COUNT]; /* searches */
} search;

/* The rows of a slab, a bit a block: as many free ones as a guest needs begin there. */
struct rows {
    uint64_t starts[HAK_SLAB_BLOCKS_MAX / WORD_BITS + 1]; /* behind the last a zero */
    unsigned words;
};

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

/* Finds the rows of free blocks, on pages that are there, in a leased slab: `known` blocks in a row make
 * twice as many with those that follow them. */
static void find_rows(const struct slab *slab, unsigned length, struct rows *rows) {
    unsigned words = (slab->capacity_blocks + WORD_BITS - 1) / WORD_BITS;
    for (unsigned i = 0; i < words; i++) {
        rows->starts[i] = 0;
        for (unsigned bit = 0; bit < WORD_BITS && i * WORD_BITS + bit < slab->capacity_blocks;
             bit += HAK_MAP_GROUP_BLOCKS) {
            rows->starts[i] |= (uint64_t)hak_blocks_resident(slab, i * WORD_BITS + bit) << bit;
        }
    }
    rows->starts[words] = 0;
    rows->words = words;
    unsigned shift;
    for (unsigned known = 1; known < length; known += shift) {
        shift = known < length - known ? known : length - known;
        for (unsigned i = 0; i < words; i++) {
            rows->starts[i] &= rows->starts[i] >> shift | rows->starts[i + 1] << (WORD_BITS - shift);
        }
    }
}

/* The first row that begins at block `from` or behind it; NO_ROW if there is none. */
static unsigned next_row(const struct rows *rows, unsigned from) {
    uint64_t wanted = ~UINT64_C(0) << from % WORD_BITS;
    for (unsigned i = from / WORD_BITS; i < rows->words; i++) {
        if ((rows->starts[i] & wanted) != 0) {
            return i * WORD_BITS + hak_ctz64(rows->starts[i] & wanted);
        }
        wanted = ~UINT64_C(0);
    }
    return NO_ROW;
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
    struct rows rows;
    find_rows(host, length, &rows);
    for (unsigned row = next_row(&rows, 0); row != NO_ROW && got < want;
         row = next_row(&rows, row + length)) {
        free_to_cached(&host->map[row], length);
        refs[got].block = (void *)(host->base + row * host_bytes);
        refs[got++].header = &host->map[row];
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

/* A search has come round all slabs. */
static void note_round(unsigned class_idx) {
    unsigned rounds = hak_atomic_load_relaxed(&search.rounds[class_idx]); /* relaxed: as in skips() */
    if (rounds < ROUNDS_MAX) {
        hak_atomic_store_relaxed(&search.rounds[class_idx], (uint8_t)(rounds + 1)); /* relaxed: as above */
    }
}

/* A search is over. */
static void note_result(unsigned class_idx, bool is_in_vain) {
    unsigned rounds =
        is_in_vain ? hak_atomic_load_relaxed(&search.rounds[class_idx]) : 0; /* relaxed: as above */
    hak_atomic_store_relaxed(&search.rounds[class_idx], (uint8_t)rounds);    /* relaxed: as above */
    uint32_t to_skip = hak_mask32(rounds) >> ROUNDS_FREE;
    hak_atomic_store_relaxed(&search.to_skip[class_idx], (uint8_t)to_skip); /* relaxed: as above */
}

/* Whether the class's next blocks would come from a new slab whose pages are not there. */
static bool needs_pages(unsigned class_idx) {
    return hak_orphans_look_empty(class_idx) && !hak_superslab_has_dirty();
}

/* Goes round the slabs, once at most. */
static unsigned go_round(unsigned class_idx, uint32_t heap_id, struct block_ref *refs, unsigned want,
                         hak_event_handler handler, void *context) {
    unsigned got = 0;
    unsigned headers = 0;
    size_t start = hak_atomic_load_relaxed(&search.cursor[class_idx]); /* relaxed: a hint */
    size_t cursor = start;
    size_t end = SIZE_MAX;
    for (unsigned looked = 0; looked < LOOK_MAX && headers < HEADERS_MAX && got < want && cursor < end;
         looked++) {
        struct slab *slab = hak_slab_at(cursor);
        if (slab == NULL) {
            cursor = 0;
            end = start;
            note_round(class_idx);
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
    hak_atomic_store_relaxed(&search.cursor[class_idx], cursor); /* relaxed: as above */
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
    unsigned got = 0;
    if (may_be_hosts) {
        got = go_round(class_idx, heap_id, refs, want, handler, context);
    } else {
        note_round(class_idx);
    }
    note_result(class_idx, got * FOUND_OF < want);
    return got;
}
