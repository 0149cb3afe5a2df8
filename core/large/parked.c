/*
 * parked.c - see parked.h.
 *
 * Invariant: a run is in at most one slot, and one that is has handed_pages 0. Whoever swaps a run's
 * handed_pages to 0 (a free), or a slot's run for nothing (a request, an eviction, the flush), owns the run
 * until his next store. So of two frees of one block one fails, goes to the slow path and finds there what it
 * is. A shard's sum and the rows that it notes to be filled are hints: threads that note something at the
 * same moment may lose it, until one of them looks at all slots.
 */
#include "large/parked.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/hint.h"
#include "large/retain.h"
#include "os/os.h"

/*
 * Rows of slots: one for each length below 16 pages, eight for each doubling above. A slot holds a run's
 * address with its length in pages in the low bits, or 0.
 */
#define PAGES_MAX  ((unsigned)(HAK_PARKED_BYTES_MAX / 4096))
#define ROWS       34u /* of what a request of PAGES_MAX looks for, too */
#define WAYS       4u
#define SLOTS      (ROWS * WAYS)
#define PAGES_MASK ((uintptr_t)0xFFF)

/* A request finds runs that are longer by this part of what it needs. */
#define LONGER_SHIFT 3u

/* With a length: asked for once, which most lengths are that a program asks for at all. */
#define ASKED_ONCE 0x8000u

/* Few are out on loan, since nobody has what they are longer by. */
#define LOANS_MAX 4u /* of a shard */

/* Runs that were freed under the lock within so short a time: buffers of any length come and go fast. */
#define BUSY_FREES 512u
#define BUSY_MS    8u

#define MUCH_LIVE_BYTES ((size_t)8 * 1024 * 1024)

struct shard {
    _Atomic size_t bytes;                          /* of what is parked, or about to be, by and large */
    _Atomic uint16_t asked[HAK_PARKED_REMAINDERS]; /* the length of that remainder that was last asked for */
    _Atomic uint16_t hand;                         /* the slot from which the next eviction looks */
    _Atomic uint16_t loans;                        /* runs that are out on loan, or as good as */
    _Atomic uint64_t filled_rows;                  /* by and large: a bit for each row that may hold a run */
    _Alignas(HAK_CACHE_LINE_BYTES) _Atomic uintptr_t slots[SLOTS];
};

/* Written under hak_large_lock. */
HAK_READ_MOSTLY static _Atomic bool was_much_live;
HAK_READ_MOSTLY static _Atomic bool was_busy;
HAK_READ_MOSTLY static _Atomic size_t bytes_bound = HAK_PARKED_SHARD_BYTES; /* of a shard */

/* Under hak_large_lock: runs freed there, and since when. */
static unsigned busy_frees;
static uint64_t busy_since_ms;

HAK_CONTENDED static struct shard shards[HAK_PARKED_SHARDS];
static HAK_TLS uint8_t shard_plus_1;
static _Atomic uint8_t next_shard;

_Static_assert(PAGES_MAX == 64, "ROWS is for so many");
_Static_assert(HAK_PARKED_BYTES_MAX <= HAK_SUPERSLAB_BYTES, "a parked run lies in an extent");

/* Threads take shards in turn. */
static struct shard *own_shard(void) {
    if (HAK_UNLIKELY(shard_plus_1 == 0)) {
        /* relaxed: any number will do */
        shard_plus_1 = (uint8_t)(hak_atomic_add_relaxed(&next_shard, 1) % HAK_PARKED_SHARDS + 1);
    }
    return &shards[shard_plus_1 - 1];
}

static unsigned row_of(unsigned pages) {
    unsigned doublings = pages < 16 ? 0 : hak_log2(pages) - 3;
    return doublings * 8 + (pages >> doublings);
}

/* The floor of memory that is kept falls as time goes by, which operations notice that take the lock. */
static bool is_time_for_slow(void) {
    static HAK_TLS uint8_t requests;
    return ++requests == 0;
}

static unsigned page_of(const void *p) {
    return (unsigned)hak_os_pages_in((uintptr_t)p & (HAK_SUPERSLAB_BYTES - 1));
}

/* The extent of a run that the caller owns. */
static struct hak_extent *extent_at(const void *p) {
    return hak_word_address(hak_registry_word(p));
}

static size_t sum_of(struct shard *shard) {
    return hak_atomic_load_relaxed(&shard->bytes); /* relaxed: a hint, set right by recount() */
}

static void set_sum(struct shard *shard, size_t bytes) {
    hak_atomic_store_relaxed(&shard->bytes, bytes); /* relaxed: as above */
}

static uint64_t filled_rows(struct shard *shard) {
    return hak_atomic_load_relaxed(&shard->filled_rows); /* relaxed: a hint, as the sum is */
}

static void set_filled_rows(struct shard *shard, uint64_t rows) {
    hak_atomic_store_relaxed(&shard->filled_rows, rows); /* relaxed: as above */
}

static void note_filled(struct shard *shard, unsigned row) {
    uint64_t rows = filled_rows(shard);
    if ((rows >> row & 1) == 0) {
        set_filled_rows(shard, rows | (uint64_t)1 << row);
    }
}

static void count_gone(struct shard *shard, uintptr_t pages) {
    size_t before = sum_of(shard);
    set_sum(shard, before - hak_smaller(before, pages * hak_os_page_bytes()));
}

/* Threads that noted something at the same moment may have lost what one of them did. */
static void recount(struct shard *shard) {
    uint64_t rows = 0;
    size_t pages = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        uintptr_t found = hak_atomic_load_relaxed(&shard->slots[slot]); /* relaxed: a hint */
        rows |= (uint64_t)(found != 0) << slot / WAYS;
        pages += found & PAGES_MASK;
    }
    set_filled_rows(shard, rows);
    set_sum(shard, pages * hak_os_page_bytes());
}

/* What the slot holds, which then is the caller's; 0 if that is no run of least (1 or more) to most pages. */
static uintptr_t take_from(struct shard *shard, unsigned slot, uintptr_t least_pages, uintptr_t most_pages) {
    uintptr_t found = hak_atomic_load_relaxed(&shard->slots[slot]); /* relaxed: the swap decides */
    uintptr_t pages = found & PAGES_MASK;
    /* acquire: pairs with the swap in put_into(): the block's last owner is through with it */
    if (pages - least_pages > most_pages - least_pages ||
        !hak_atomic_cas_acquire(&shard->slots[slot], &found, (uintptr_t)0)) {
        return 0;
    }
    count_gone(shard, pages);
    return found;
}

static void *address_in(uintptr_t value) {
    return (void *)(value & ~PAGES_MASK);
}

/* The same of a row, of which it is noted when it holds nothing. */
static uintptr_t take_from_row(struct shard *shard, unsigned row, unsigned least_pages, unsigned most_pages) {
    uintptr_t any = 0;
    for (unsigned slot = row * WAYS; slot < (row + 1) * WAYS; slot++) {
        uintptr_t found = take_from(shard, slot, least_pages, most_pages);
        if (found != 0) {
            return found;
        }
        any |= hak_atomic_load_relaxed(&shard->slots[slot]); /* relaxed: a hint */
    }
    if (any == 0) {
        set_filled_rows(shard, filled_rows(shard) & ~((uint64_t)1 << row));
    }
    return 0;
}

/* A run of least to most pages, from `row` on. */
static uintptr_t find_in(struct shard *shard, unsigned row, unsigned least_pages, unsigned most_pages) {
    unsigned last_row = row_of(most_pages);
    HAK_ASSERT(row <= last_row && last_row < ROWS);
    uint64_t rows = filled_rows(shard) & (((uint64_t)2 << last_row) - ((uint64_t)1 << row));
    uintptr_t found = 0;
    for (; rows != 0 && found == 0; rows &= rows - 1) {
        found = take_from_row(shard, hak_ctz64(rows), least_pages, most_pages);
    }
    return found;
}

static unsigned loans_out(struct shard *shard) {
    return hak_atomic_load_relaxed(&shard->loans); /* relaxed: a bound, be it off by a few */
}

static void set_loans_out(struct shard *shard, unsigned loans) {
    hak_atomic_store_relaxed(&shard->loans, (uint16_t)loans); /* relaxed: as above */
}

/* A run that is longer than it should be, if one more may be out. */
static uintptr_t find_loan(struct shard *shard, unsigned pages, unsigned longer_than_pages) {
    unsigned most_pages = (unsigned)hak_smaller(pages * HAK_PARKED_LOAN_FACTOR, PAGES_MAX);
    unsigned loans = loans_out(shard);
    /* relaxed: a hint */
    if (!hak_atomic_load_relaxed(&was_busy) || loans >= LOANS_MAX || most_pages <= longer_than_pages) {
        return 0;
    }
    uintptr_t found = find_in(shard, row_of(longer_than_pages), pages, most_pages);
    if (found != 0) {
        set_loans_out(shard, loans + 1);
    }
    return found;
}

/* A run for so many pages; *mark becomes what its number says beside its length. */
static uintptr_t find(struct shard *shard, unsigned pages, uint16_t *mark) {
    /* Lengths that differ by an eighth are in one row or two that follow each other. */
    unsigned most_pages = pages + (pages >> LONGER_SHIFT);
    uintptr_t found = find_in(shard, row_of(pages), pages, most_pages);
    *mark = 0;
    if (found == 0) {
        found = find_loan(shard, pages, most_pages);
        *mark = HAK_HANDED_ON_LOAN;
    }
    return found;
}

static bool is_every_length_wanted(void) {
    /* relaxed: decides only what is kept */
    return hak_atomic_load_relaxed(&was_much_live) || hak_atomic_load_relaxed(&was_busy);
}

/* Notes the request; whether a run of that length may be parked. */
static bool note_asked(struct shard *shard, unsigned pages) {
    _Atomic uint16_t *asked = &shard->asked[pages % HAK_PARKED_REMAINDERS];
    unsigned before = hak_atomic_load_relaxed(asked); /* relaxed: decides only what is kept */
    if (before == pages) {
        return true;
    }
    unsigned now = before == (pages | ASKED_ONCE) ? pages : pages | ASKED_ONCE;
    hak_atomic_store_relaxed(asked, (uint16_t)now); /* relaxed: as above */
    return is_every_length_wanted();
}

static bool is_wanted(struct shard *shard, unsigned pages) {
    /* relaxed: as above */
    return hak_atomic_load_relaxed(&shard->asked[pages % HAK_PARKED_REMAINDERS]) == pages ||
           is_every_length_wanted();
}

void *hak_parked_take(size_t bytes) {
    /* relaxed: any value stored meanwhile is a right one */
    if (bytes > hak_atomic_load_relaxed(&hak_large_policy.parked_bytes_max)) {
        return NULL;
    }
    struct shard *shard = own_shard();
    if (is_time_for_slow()) {
        recount(shard);
        set_loans_out(shard, loans_out(shard) / 2); /* some came back elsewhere, or never will */
        return NULL;
    }
    unsigned pages = (unsigned)hak_os_pages_in(hak_os_page_round(bytes));
    if (!note_asked(shard, pages) || filled_rows(shard) == 0) {
        return NULL;
    }
    uint16_t mark;
    uintptr_t found = find(shard, pages, &mark);
    if (found == 0) {
        return NULL;
    }
    void *p = address_in(found);
    /* relaxed: the caller's business until he hands the block on */
    hak_atomic_store_relaxed(&extent_at(p)->handed_pages[page_of(p)], (uint16_t)(found & PAGES_MASK) | mark);
    return p;
}

/* A run of the shard that makes room, the caller's from now on; NULL when there is none. */
static void *evict(struct shard *shard) {
    unsigned hand = hak_atomic_load_relaxed(&shard->hand); /* relaxed: whichever run it is */
    uintptr_t found = 0;
    for (unsigned i = 0; i < SLOTS && found == 0; i++) {
        found = take_from(shard, hand, 1, PAGES_MAX);
        hand = (hand + 1) % SLOTS;
    }
    hak_atomic_store_relaxed(&shard->hand, (uint16_t)hand); /* relaxed: as above */
    if (found == 0 ||
        hand == 0) { /* a thread that frees alone makes no requests, in which this is done else */
        recount(shard);
    }
    return address_in(found);
}

/* Whether so many bytes more are within the bound: then they count as parked. */
static bool reserve(struct shard *shard, size_t bytes) {
    size_t sum = sum_of(shard) + bytes;
    /* relaxed: any value stored meanwhile is a right one */
    if (sum > hak_atomic_load_relaxed(&bytes_bound)) {
        return false;
    }
    set_sum(shard, sum);
    return true;
}

/* An empty slot of the row, or NULL. */
static _Atomic uintptr_t *empty_slot(struct shard *shard, unsigned row) {
    for (unsigned slot = row * WAYS; slot < (row + 1) * WAYS; slot++) {
        if (hak_atomic_load_relaxed(&shard->slots[slot]) == 0) { /* relaxed: the swap decides */
            return &shard->slots[slot];
        }
    }
    return NULL;
}

/* The run, which is counted as parked, comes into the slot; false: another thread was faster at either. */
static bool put_into(_Atomic uintptr_t *slot, _Atomic uint16_t *handed, void *p, uint16_t number) {
    uintptr_t none = 0;
    uint16_t found = number;
    /* relaxed: only which of two frees came first matters */
    if (!hak_atomic_cas_relaxed(handed, &found, 0)) {
        return false;
    }
    /* release: pairs with the swap in take_from() */
    if (hak_atomic_cas_release(slot, &none, (uintptr_t)p | (number & HAK_HANDED_PAGES))) {
        return true;
    }
    hak_atomic_store_relaxed(handed, number); /* relaxed: this thread's block still */
    return false;
}

bool hak_parked_put(struct hak_extent *extent, void *p, void **evicted) {
    *evicted = NULL;
    uint16_t handed = hak_extent_handed(extent, p); /* the swap decides */
    uint16_t pages = handed & HAK_HANDED_PAGES;
    size_t bytes = pages * hak_os_page_bytes();
    struct shard *shard = own_shard();
    /* relaxed: any value stored meanwhile is a right one */
    if (pages == 0 || bytes > hak_atomic_load_relaxed(&hak_large_policy.parked_bytes_max) ||
        !is_wanted(shard, pages)) {
        return false;
    }
    unsigned row = row_of(pages);
    _Atomic uintptr_t *slot = empty_slot(shard, row);
    if (slot == NULL) {
        return false;
    }
    if (!reserve(shard, bytes)) {
        *evicted = evict(shard);
        if (!reserve(shard, bytes)) {
            return false;
        }
    }
    if (!put_into(slot, &extent->handed_pages[page_of(p)], p, handed)) {
        count_gone(shard, pages);
        return false;
    }
    note_filled(shard, row);
    if ((handed & HAK_HANDED_ON_LOAN) != 0 && loans_out(shard) != 0) {
        set_loans_out(shard, loans_out(shard) - 1);
    }
    return true;
}

/* Stored only where it is off by a quarter, since all threads read it. */
static void set_bound(size_t bytes) {
    size_t before = hak_atomic_load_relaxed(&bytes_bound); /* relaxed: written under the lock */
    if (bytes > before + before / 4 || bytes < before - before / 4) {
        hak_atomic_store_relaxed(&bytes_bound, bytes); /* relaxed: read without it as a hint */
    }
}

void hak_parked_note_live(size_t live_bytes) {
    if (live_bytes >= MUCH_LIVE_BYTES) {
        hak_hint_set(&was_much_live, true);
    }
    size_t of_live_bytes = live_bytes >> hak_large_policy.floor_live_shift;
    set_bound(hak_smaller(HAK_PARKED_SHARD_BYTES, hak_large_policy.floor_bytes / 2) +
              of_live_bytes / HAK_PARKED_SHARDS);
}

void hak_parked_note_free(uint64_t now_ms) {
    if (now_ms < busy_since_ms || now_ms >= busy_since_ms + BUSY_MS) {
        busy_since_ms = now_ms;
        busy_frees = 0;
    }
    if (++busy_frees == BUSY_FREES) {
        hak_hint_set(&was_busy, true);
    }
}

static void flush_shard(struct shard *shard) {
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        uintptr_t found = take_from(shard, slot, 1, PAGES_MAX);
        if (found != 0) {
            void *p = address_in(found);
            hak_extent_live_to_free(extent_at(p), page_of(p));
        }
    }
}

void hak_parked_flush(void) {
    for (unsigned i = 0; i < HAK_PARKED_SHARDS; i++) {
        flush_shard(&shards[i]);
    }
}

void hak_parked_reset(void) {
    hak_hint_set(&was_much_live, false);
    hak_hint_set(&was_busy, false);
    busy_since_ms = 0;
    for (unsigned i = 0; i < HAK_PARKED_SHARDS; i++) {
        set_sum(&shards[i], 0);
        set_filled_rows(&shards[i], 0);
        set_loans_out(&shards[i], 0);
        for (unsigned k = 0; k < HAK_PARKED_REMAINDERS; k++) {
            hak_atomic_store_relaxed(&shards[i].asked[k],
                                     (uint16_t)0); /* relaxed: the child has one thread */
        }
        for (unsigned k = 0; k < SLOTS; k++) {
            hak_atomic_store_relaxed(&shards[i].slots[k], (uintptr_t)0); /* relaxed: as above */
        }
    }
}

struct hak_parked_sums hak_parked_count(void) {
    struct hak_parked_sums sums = {0};
    for (unsigned i = 0; i < HAK_PARKED_SHARDS * SLOTS; i++) {
        /* relaxed: a statistic */
        uintptr_t found = hak_atomic_load_relaxed(&shards[i / SLOTS].slots[i % SLOTS]);
        sums.blocks += found != 0;
        sums.bytes += (found & PAGES_MASK) * hak_os_page_bytes();
    }
    return sums;
}
