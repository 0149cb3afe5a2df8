/*
 * parked.c - see parked.h.
 *
 * Invariant: a run is in at most one slot, and one that is has handed_pages 0. Whoever swaps a run's
 * handed_pages to 0 (a free), or a slot's run for its length alone (a request), owns the run until his next
 * store. So of two frees of one block one fails, goes to the slow path and finds there what it is.
 */
#include "large/parked.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "base/hint.h"
#include "large/retain.h"
#include "os/os.h"

/*
 * A slot: the run's address and its pages in the low bits; the pages alone: wanted; the pages and ASKED_ONCE:
 * asked for once, which most lengths are that a program asks for at all; 0: nothing yet.
 */
#define PAGES_MASK ((uintptr_t)0xFFF)
#define ASKED_ONCE ((uintptr_t)0x800)

#define MUCH_LIVE_BYTES ((size_t)8 * 1024 * 1024)

HAK_READ_MOSTLY static _Atomic bool was_much_live; /* written under hak_large_lock */
HAK_CONTENDED static _Atomic uintptr_t slots[HAK_PARKED_SHARDS][HAK_PARKED_LENGTHS];
static HAK_TLS uint8_t shard_plus_1;
static _Atomic uint8_t next_shard;

_Static_assert(HAK_PARKED_BYTES_MAX / 4096 < ASKED_ONCE, "a length fits below an OS page's address");
_Static_assert(HAK_PARKED_BYTES_MAX <= HAK_SUPERSLAB_BYTES, "a parked run lies in an extent");

/* Threads take shards in turn. */
static _Atomic uintptr_t *slot_for(size_t pages) {
    if (HAK_UNLIKELY(shard_plus_1 == 0)) {
        /* relaxed: any number will do */
        shard_plus_1 = (uint8_t)(hak_atomic_add_relaxed(&next_shard, 1) % HAK_PARKED_SHARDS + 1);
    }
    return &slots[shard_plus_1 - 1][pages % HAK_PARKED_LENGTHS];
}

/* The floor of memory that is kept falls as time goes by, which operations notice that take the lock. */
static bool is_time_for_slow(void) {
    static HAK_TLS uint8_t requests;
    return ++requests == 0;
}

static bool is_run(uintptr_t value) {
    return value > PAGES_MASK;
}

static void *address_in(uintptr_t value) {
    return (void *)(value & ~PAGES_MASK);
}

static unsigned page_of(const void *p) {
    return (unsigned)(((uintptr_t)p & (HAK_SUPERSLAB_BYTES - 1)) / hak_os_page_bytes());
}

/* The extent of a run that the caller owns. */
static struct hak_extent *extent_at(const void *p) {
    return hak_word_address(hak_registry_word(p));
}

void *hak_parked_take(size_t bytes, void **evicted) {
    *evicted = NULL;
    /* relaxed: any value stored meanwhile is a right one */
    if (bytes > hak_atomic_load_relaxed(&hak_large_policy.parked_bytes_max) || is_time_for_slow()) {
        return NULL;
    }
    uintptr_t pages = hak_os_page_round(bytes) / hak_os_page_bytes();
    _Atomic uintptr_t *slot = slot_for(pages);
    uintptr_t found = hak_atomic_load_relaxed(slot); /* relaxed: the swap decides */
    bool is_asked_again = (found & PAGES_MASK & ~ASKED_ONCE) == pages;
    /* relaxed: decides only what is kept */
    bool is_wanted = is_asked_again || hak_atomic_load_relaxed(&was_much_live);
    uintptr_t wanted = is_wanted ? pages : pages | ASKED_ONCE;
    /* acquire: pairs with the swap in hak_parked_put(): the block's last owner is through with it */
    if (found == pages || !hak_atomic_cas_acquire(slot, &found, wanted) || !is_run(found)) {
        return NULL;
    }
    void *p = address_in(found);
    if (!is_asked_again) {
        *evicted = p;
        return NULL;
    }
    /* relaxed: the caller's business until he hands the block on */
    hak_atomic_store_relaxed(&extent_at(p)->handed_pages[page_of(p)], (uint16_t)pages);
    return p;
}

bool hak_parked_put(struct hak_extent *extent, void *p) {
    uint16_t pages = hak_extent_handed_pages(extent, p); /* the swap decides */
    _Atomic uint16_t *handed = &extent->handed_pages[page_of(p)];
    _Atomic uintptr_t *slot = slot_for(pages);
    uintptr_t wanted = pages;
    /* relaxed: any value stored meanwhile is a right one */
    size_t bytes_max = hak_atomic_load_relaxed(&hak_large_policy.parked_bytes_max);
    /* relaxed: the swaps decide */
    if (pages == 0 || pages * hak_os_page_bytes() > bytes_max || hak_atomic_load_relaxed(slot) != wanted) {
        return false;
    }
    /* relaxed: only which of two frees came first matters */
    if (!hak_atomic_cas_relaxed(handed, &pages, 0)) {
        return false;
    }
    /* release: pairs with the swap in hak_parked_take() */
    if (hak_atomic_cas_release(slot, &wanted, (uintptr_t)p | pages)) {
        return true;
    }
    hak_atomic_store_relaxed(handed, pages); /* relaxed: this thread's block still */
    return false;
}

void hak_parked_note_live(size_t live_bytes) {
    if (live_bytes >= MUCH_LIVE_BYTES) {
        hak_hint_set(&was_much_live, true);
    }
}

void hak_parked_flush(void) {
    for (unsigned i = 0; i < HAK_PARKED_SLOTS; i++) {
        _Atomic uintptr_t *slot = &slots[i / HAK_PARKED_LENGTHS][i % HAK_PARKED_LENGTHS];
        /* relaxed: a look, to leave wanted lengths alone */
        uintptr_t found = hak_atomic_load_relaxed(slot);
        /* acquire: pairs with the swap in hak_parked_put() */
        if (is_run(found) && hak_atomic_cas_acquire(slot, &found, found & PAGES_MASK)) {
            void *p = address_in(found);
            hak_extent_live_to_free(extent_at(p), page_of(p));
        }
    }
}

void hak_parked_reset(void) {
    hak_hint_set(&was_much_live, false);
    for (unsigned i = 0; i < HAK_PARKED_SLOTS; i++) {
        /* relaxed: the child has one thread */
        hak_atomic_store_relaxed(&slots[i / HAK_PARKED_LENGTHS][i % HAK_PARKED_LENGTHS], (uintptr_t)0);
    }
}

struct hak_parked_sums hak_parked_count(void) {
    struct hak_parked_sums sums = {0};
    for (unsigned i = 0; i < HAK_PARKED_SLOTS; i++) {
        /* relaxed: a statistic */
        uintptr_t found = hak_atomic_load_relaxed(&slots[i / HAK_PARKED_LENGTHS][i % HAK_PARKED_LENGTHS]);
        if (is_run(found)) {
            sums.blocks++;
            sums.bytes += (found & PAGES_MASK) * hak_os_page_bytes();
        }
    }
    return sums;
}
