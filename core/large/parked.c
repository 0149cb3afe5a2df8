/*
 * parked.c - see parked.h.
 *
 * Invariant: a run is in at most one slot, and one that is has number 0 in its extent. Whoever swaps a
 * run's number to 0 (a free), or a slot's run for nothing (a request, an eviction, the flush), owns the run
 * until his next store. So of two frees of one block one fails, goes to the slow path and finds there what it
 * is.
 */
#include "large/parked.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/hint.h"
#include "conf/options.h"
#include "large/parked_slots.h"
#include "large/retain.h"
#include "meta/arena.h"
#include "os/os.h"

/* A request finds runs that are longer by this part of what it needs. */
#define LONGER_SHIFT 3u

/* With a length: asked for once, which most lengths are that a program asks for at all. */
#define ASKED_ONCE 0x8000u

/*
 * The latest run goes out on loan at up to so many times the length while nothing else of its shard is, or at
 * up to twice the length while one other run is: so a buffer or two at a time find it, and of what is kept
 * for long few lie in such. It makes room for another once it is too long for so many.
 */
#define LATEST_FACTOR 4u
#define TOO_LONG_MAX  16u

/* Few are out on loan, since nobody has what they are longer by. */
#define LOANS_MAX 4u /* of a shard */

/* Runs that were freed under the lock within so short a time: buffers of any length come and go fast. */
#define BUSY_FREES 512u
#define BUSY_MS    8u

#define MUCH_LIVE_BYTES ((size_t)8 * 1024 * 1024)

struct shard {
    _Atomic uint16_t asked[HAK_PARKED_REMAINDERS]; /* the length of that remainder that was last asked for */
    _Atomic uint16_t loans;                        /* runs that are out on loan, or as good as */
    _Atomic uint32_t slow_ms;                      /* when a request last went the slow way on purpose */
    struct hak_parked_slots slots;
};

/* Written under hak_large_lock. */
HAK_READ_MOSTLY static _Atomic bool was_much_live;
HAK_READ_MOSTLY static _Atomic bool was_busy;
HAK_READ_MOSTLY static _Atomic uint32_t pages_bound = HAK_PARKED_SHARD_BYTES / 4096; /* of a shard */

/* Under hak_large_lock: runs freed there, and since when. */
static unsigned busy_frees;
static uint64_t busy_since_ms;

static _Atomic(struct shard *) shards[HAK_PARKED_SHARDS_MAX]; /* NULL: no thread has had it */
static _Atomic uint32_t next_shard;
static HAK_TLS struct shard *thread_shard;
static HAK_TLS uint8_t thread_requests; /* since is_time_for_slow() was last due */

_Static_assert(HAK_PARKED_BUSY_MAX <= HAK_PARKED_PAGES_MAX * (size_t)4096, "the smallest OS page");
_Static_assert(HAK_PARKED_BUSY_MAX <= HAK_SUPERSLAB_BYTES, "a parked run lies in an extent");

static struct shard *shard_at(unsigned i) {
    /* acquire: pairs with the swap in make_shard() */
    return hak_atomic_load_acquire(&shards[i]);
}

static struct shard *make_shard(unsigned i) {
    struct shard *made = hak_meta_alloc(sizeof *made);
    struct shard *found = NULL;
    if (made == NULL) {
        return NULL;
    }
    /* release: pairs with the load in shard_at(): who finds it finds it zeroed */
    if (hak_atomic_cas_release(&shards[i], &found, made)) {
        return made;
    }
    hak_meta_free(made, sizeof *made);
    return shard_at(i);
}

/* Threads take shards in turn. */
static HAK_NOINLINE struct shard *take_shard(void) {
    /* relaxed: any number will do */
    unsigned i = hak_atomic_add_relaxed(&next_shard, 1) % hak_options.parked_shards;
    struct shard *shard = shard_at(i);
    thread_shard = shard != NULL ? shard : make_shard(i);
    return thread_shard;
}

/* The calling thread's; NULL when out of memory. */
static struct shard *own_shard(void) {
    return HAK_LIKELY(thread_shard != NULL) ? thread_shard : take_shard();
}

static unsigned page_of(const void *p) {
    return (unsigned)hak_os_pages_in((uintptr_t)p & (HAK_SUPERSLAB_BYTES - 1));
}

/* The extent of a run that the caller owns. */
static struct hak_extent *extent_at(const void *p) {
    return hak_word_address(hak_registry_word(p));
}

static unsigned loans_out(struct shard *shard) {
    return hak_atomic_load_relaxed(&shard->loans); /* relaxed: a bound, be it off by a few */
}

static void set_loans_out(struct shard *shard, unsigned loans) {
    hak_atomic_store_relaxed(&shard->loans, (uint16_t)loans); /* relaxed: as above */
}

/* Whether a run may go out that is longer than it should be. */
static bool may_lend(struct shard *shard) {
    /* relaxed: a hint */
    return hak_atomic_load_relaxed(&was_busy) && loans_out(shard) < LOANS_MAX;
}

/* The longest run that is parked now, in bytes. */
static size_t longest_bytes(void) {
    /* relaxed: any value stored meanwhile is a right one */
    size_t bytes_max = hak_atomic_load_relaxed(&hak_large_policy.parked_bytes_max);
    /* relaxed: a hint */
    return bytes_max != 0 && hak_atomic_load_relaxed(&was_busy) ? HAK_PARKED_BUSY_MAX : bytes_max;
}

static bool is_every_length_wanted(void) {
    /* relaxed: decides only what is kept */
    return hak_atomic_load_relaxed(&was_much_live) || hak_atomic_load_relaxed(&was_busy);
}

/* Notes the request; whether a run of that length may be parked. */
static bool note_asked(struct shard *shard, unsigned pages) {
    if (is_every_length_wanted()) {
        return true;
    }
    _Atomic uint16_t *asked = &shard->asked[pages % HAK_PARKED_REMAINDERS];
    unsigned before = hak_atomic_load_relaxed(asked); /* relaxed: decides only what is kept */
    if (before == pages) {
        return true;
    }
    unsigned now = before == (pages | ASKED_ONCE) ? pages : pages | ASKED_ONCE;
    hak_atomic_store_relaxed(asked, (uint16_t)now); /* relaxed: as above */
    return false;
}

static bool is_wanted(struct shard *shard, unsigned pages) {
    /* relaxed: as above */
    return is_every_length_wanted() ||
           hak_atomic_load_relaxed(&shard->asked[pages % HAK_PARKED_REMAINDERS]) == pages;
}

/*
 * The floor of memory that is kept falls as time goes by, which operations notice that take the lock: now and
 * then a request does, if the clock has moved since.
 */
static bool is_time_for_slow(struct shard *shard) {
    if (HAK_LIKELY(thread_requests != UINT8_MAX)) {
        return false;
    }
    thread_requests = 0;
    hak_parked_slots_recount(&shard->slots);
    set_loans_out(shard, loans_out(shard) / 2); /* some came back elsewhere, or never will */
    uint32_t now_ms = (uint32_t)hak_os_now_ms();
    bool has_moved = hak_atomic_load_relaxed(&shard->slow_ms) != now_ms; /* relaxed: a hint */
    hak_atomic_store_relaxed(&shard->slow_ms, now_ms);                   /* relaxed: as above */
    return has_moved;
}

HAK_ALWAYS_INLINE void *hand_out(struct shard *shard, hak_parked_run run, bool is_lent) {
    void *p = hak_parked_run_address(run);
    if (is_lent) {
        set_loans_out(shard, loans_out(shard) + 1);
    }
    /* relaxed: the caller's business until he hands the block on */
    hak_atomic_store_relaxed(&extent_at(p)->handed[page_of(p)].number,
                             (uint16_t)hak_parked_run_pages(run) | (is_lent ? HAK_HANDED_ON_LOAN : 0));
    return p;
}

/* Whether the latest run, so many pages longer, may go out for a request of `pages`. */
static bool may_lend_latest(struct shard *shard, size_t pages, size_t more_pages) {
    /* relaxed: a hint */
    return more_pages <= pages * (LATEST_FACTOR - 1) && hak_atomic_load_relaxed(&was_busy) &&
           loans_out(shard) < (more_pages <= pages ? 2 : 1);
}

void *hak_parked_take_latest(size_t bytes) {
    struct shard *shard = thread_shard;
    if (HAK_UNLIKELY(shard == NULL)) {
        return NULL;
    }
    size_t pages = hak_os_pages_in(bytes - 1) + 1; /* of any number of bytes, however many */
    hak_parked_run found = hak_atomic_load_relaxed(&shard->slots.latest); /* relaxed: the swap decides */
    size_t more_pages = hak_parked_run_pages(found) - pages;
    bool is_lent = more_pages > pages >> LONGER_SHIFT;
    if (is_lent && !may_lend_latest(shard, pages, more_pages)) {
        return NULL;
    }
    if (HAK_UNLIKELY(thread_requests == UINT8_MAX) || /* is_time_for_slow() is due */
        !hak_parked_slot_take(&shard->slots, &shard->slots.latest, found)) {
        return NULL;
    }
    thread_requests++;
    return hand_out(shard, found, is_lent);
}

static void *take_from_rows(struct shard *shard, size_t bytes) {
    thread_requests++;
    unsigned pages = hak_os_pages_for(bytes);
    if (!note_asked(shard, pages) || hak_parked_slots_seem_empty(&shard->slots)) {
        return NULL;
    }
    /* Lengths that differ by an eighth are in one row or two that follow each other. */
    unsigned most_pages = pages + (pages >> LONGER_SHIFT);
    size_t lent_pages =
        may_lend(shard) ? hak_smaller(pages * HAK_PARKED_LOAN_FACTOR, HAK_PARKED_PAGES_MAX) : 0;
    hak_parked_run found =
        hak_parked_slots_take(&shard->slots, pages, (unsigned)hak_larger(most_pages, lent_pages));
    return found != 0 ? hand_out(shard, found, hak_parked_run_pages(found) > most_pages) : NULL;
}

void *hak_parked_take_other(size_t bytes) {
    if (bytes > longest_bytes()) {
        return NULL;
    }
    struct shard *shard = own_shard();
    bool was_due = thread_requests == UINT8_MAX; /* so that no latest run was looked at */
    if (HAK_UNLIKELY(shard == NULL) || is_time_for_slow(shard)) {
        return NULL;
    }
    void *latest = HAK_UNLIKELY(was_due) ? hak_parked_take_latest(bytes) : NULL;
    return latest != NULL ? latest : take_from_rows(shard, bytes);
}

void *hak_parked_take(size_t bytes) {
    void *latest = hak_parked_take_latest(bytes);
    return latest != NULL ? latest : hak_parked_take_other(bytes);
}

/* Whether such a run is to be parked in the shard. */
HAK_ALWAYS_INLINE bool is_to_be_parked(struct shard *shard, unsigned pages) {
    return pages != 0 && pages * hak_os_page_bytes() <= longest_bytes() && is_wanted(shard, pages);
}

static unsigned bound_pages(void) {
    return hak_atomic_load_relaxed(&pages_bound); /* relaxed: any value stored meanwhile is a right one */
}

static void note_back(struct shard *shard, uint16_t number) {
    if ((number & HAK_HANDED_ON_LOAN) != 0 && loans_out(shard) != 0) {
        set_loans_out(shard, loans_out(shard) - 1);
    }
}

bool hak_parked_put_latest(struct hak_extent *extent, void *p) {
    struct shard *shard = thread_shard;
    /* relaxed: the swap decides */
    if (HAK_UNLIKELY(shard == NULL) || hak_atomic_load_relaxed(&shard->slots.latest) != 0) {
        return false;
    }
    uint16_t number = hak_extent_handed(extent, p); /* the swap decides */
    unsigned pages = number & HAK_HANDED_PAGES;
    if (!is_to_be_parked(shard, pages) || !hak_parked_slots_reserve(&shard->slots, pages, bound_pages())) {
        return false;
    }
    if (!hak_parked_slot_put(&shard->slots.latest, p, &extent->handed[page_of(p)].number, number)) {
        hak_parked_slots_release(&shard->slots, pages);
        return false;
    }
    note_back(shard, number);
    return true;
}

/* Whether the latest run is to make room for one of so many pages: a longer one serves more lengths, and one
 * that is too long for many others is no use. */
static bool is_latest_to_go(struct shard *shard, unsigned pages) {
    hak_parked_run found = hak_atomic_load_relaxed(&shard->slots.latest); /* relaxed: a hint */
    if (hak_parked_run_pages(found) <= pages * LATEST_FACTOR) {
        return hak_parked_run_pages(found) < pages;
    }
    unsigned count = hak_atomic_load_relaxed(&shard->slots.too_long) + 1u; /* relaxed: as above */
    bool is_to_go = count == TOO_LONG_MAX;
    hak_atomic_store_relaxed(&shard->slots.too_long, (uint8_t)(is_to_go ? 0 : count)); /* relaxed: as above */
    return is_to_go;
}

bool hak_parked_put(struct hak_extent *extent, void *p, void **evicted) {
    *evicted = NULL;
    uint16_t number = hak_extent_handed(extent, p); /* the swap decides */
    unsigned pages = number & HAK_HANDED_PAGES;
    struct shard *shard = own_shard();
    if (HAK_UNLIKELY(shard == NULL) || !is_to_be_parked(shard, pages)) {
        return false;
    }
    if (is_latest_to_go(shard, pages)) {
        *evicted = hak_parked_run_address(hak_parked_slots_settle(&shard->slots));
        if (hak_parked_put_latest(extent, p)) {
            return true;
        }
        if (*evicted != NULL) {
            return false;
        }
    }
    hak_parked_run out;
    bool is_parked = hak_parked_slots_put(&shard->slots, p, &extent->handed[page_of(p)].number, number,
                                          bound_pages(), &out);
    *evicted = hak_parked_run_address(out);
    if (is_parked) {
        note_back(shard, number);
    }
    return is_parked;
}

/* Stored only where it is off by a quarter, since all threads read it. */
static void set_bound(size_t bytes) {
    uint32_t pages = (uint32_t)hak_smaller(hak_os_pages_in(bytes), UINT16_MAX);
    uint32_t before = hak_atomic_load_relaxed(&pages_bound); /* relaxed: written under the lock */
    if (pages > before + before / 4 || pages < before - before / 4) {
        hak_atomic_store_relaxed(&pages_bound, pages); /* relaxed: read without it as a hint */
    }
}

void hak_parked_note_live(size_t live_bytes, size_t share_bytes) {
    if (live_bytes >= MUCH_LIVE_BYTES) {
        hak_hint_set(&was_much_live, true);
    }
    size_t bytes = hak_smaller(HAK_PARKED_SHARD_BYTES, hak_large_policy.floor_bytes / 2);
    unsigned shards_shift = hak_log2(hak_options.parked_shards);
    if (hak_atomic_load_relaxed(&was_busy)) { /* relaxed: written under this lock */
        bytes *= 3 * bytes <= HAK_PARKED_BUSY_BYTES >> shards_shift ? 3 : 2;
    }
    set_bound(bytes + (share_bytes >> shards_shift));
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

static void free_run(hak_parked_run run) {
    void *p = hak_parked_run_address(run);
    hak_extent_live_to_free(extent_at(p), page_of(p));
}

static void flush_shard(struct shard *shard, bool is_thorough) {
    if (is_thorough) {
        hak_parked_slots_recount(&shard->slots);
    }
    hak_parked_slots_drain(&shard->slots, free_run);
}

void hak_parked_flush(bool is_thorough) {
    for (unsigned i = 0; i < HAK_PARKED_SHARDS_MAX; i++) {
        struct shard *shard = shard_at(i);
        if (shard != NULL) {
            flush_shard(shard, is_thorough);
        }
    }
}

static void reset_shard(struct shard *shard) {
    for (unsigned i = 0; i < HAK_PARKED_SLOTS; i++) {
        /* relaxed: the child has one thread */
        hak_atomic_store_relaxed(&shard->slots.slots[i], (hak_parked_run)0);
    }
    for (unsigned i = 0; i < HAK_PARKED_REMAINDERS; i++) {
        hak_atomic_store_relaxed(&shard->asked[i], (uint16_t)0); /* relaxed: as above */
    }
    hak_atomic_store_relaxed(&shard->slots.latest, (hak_parked_run)0); /* relaxed: as above */
    hak_parked_slots_recount(&shard->slots);
    set_loans_out(shard, 0);
}

void hak_parked_reset(void) {
    hak_hint_set(&was_much_live, false);
    hak_hint_set(&was_busy, false);
    busy_since_ms = 0;
    for (unsigned i = 0; i < HAK_PARKED_SHARDS_MAX; i++) {
        struct shard *shard = shard_at(i);
        if (shard != NULL) {
            reset_shard(shard);
        }
    }
}

static void add_run(struct hak_parked_sums *sums, const _Atomic hak_parked_run *slot) {
    hak_parked_run found = hak_atomic_load_relaxed(slot); /* relaxed: a statistic */
    sums->blocks += found != 0;
    sums->bytes += hak_parked_run_pages(found) * hak_os_page_bytes();
}

static void add_to(struct hak_parked_sums *sums, const struct hak_parked_slots *slots) {
    add_run(sums, &slots->latest);
    for (unsigned i = 0; i < HAK_PARKED_SLOTS; i++) {
        add_run(sums, &slots->slots[i]);
    }
}

struct hak_parked_sums hak_parked_count(void) {
    struct hak_parked_sums sums = {0};
    for (unsigned i = 0; i < HAK_PARKED_SHARDS_MAX; i++) {
        const struct shard *shard = shard_at(i);
        if (shard != NULL) {
            add_to(&sums, &shard->slots);
        }
    }
    return sums;
}
