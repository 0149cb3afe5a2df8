/*
 * thin.c - see thin.h. The mark is a bit in the slab's word, which the lease holder sets and clears, and a
 * bit in its SuperSlab's mask, under the lock, by which purge steps find it.
 */
#include "slab/thin.h"
#include "base/assert.h"
#include "os/os.h"
#include "slab/blocks.h"
#include "slab/ragged.h"
#include "slab/slab_word.h"
#include "slab/superslab_pool.h"

HAK_READ_MOSTLY _Atomic bool hak_thin_matters;

/* Sets or clears the mark in the word; frees are counted in it meanwhile. */
static void mark(struct slab *slab, bool is_thin) {
    /* relaxed: the bit is the lease holder's, and the lease orders what it says */
    uint64_t word = hak_atomic_load_relaxed(&slab->word);
    uint64_t next;
    do {
        HAK_ASSERT(hak_slab_word_is_leased(word));
        next = is_thin ? word | HAK_THIN : word & ~HAK_THIN;
        /* acq_rel: pairs with hak_slab_count_free(), whose FREE bytes must stay published by this word */
    } while (!hak_atomic_cas_weak_acq_rel(&slab->word, &word, next));
}

static bool is_marked(const struct slab *slab) {
    return hak_slab_word_is_thin(hak_atomic_load_relaxed(&slab->word)); /* relaxed: the lease holder's bit */
}

bool hak_thin_is_known(const struct slab *slab) {
    return slab->purged_pages != 0 || is_marked(slab);
}

void hak_thin_enter(struct slab *slab) {
    if (is_marked(slab)) {
        return;
    }
    mark(slab, true);
    hak_lock_acquire(&hak_superslab_lock);
    hak_superslab_set_thin(slab, true, slab->purged_pages);
    hak_superslab_note_given();
    hak_lock_release(&hak_superslab_lock);
}

void hak_thin_enter_if_due(struct slab *slab) {
    if (HAK_UNLIKELY(hak_thin_begins(slab, hak_slab_used_blocks(slab)))) {
        hak_thin_enter(slab);
    }
}

void hak_thin_end(struct slab *slab) {
    if (is_marked(slab)) {
        mark(slab, false);
        hak_lock_acquire(&hak_superslab_lock);
        hak_superslab_set_thin(slab, false, slab->purged_pages);
        hak_lock_release(&hak_superslab_lock);
    }
}

void hak_thin_take(struct slab *slab, uint32_t pages, size_t taken_bytes) {
    bool knows_pages = hak_slab_knows_purged_pages(slab);
    if (slab->purged_pages == 0 || (knows_pages && (slab->purged_mask & pages) == 0)) {
        return;
    }
    unsigned before = slab->purged_pages;
    slab->purged_mask = knows_pages ? (uint16_t)(slab->purged_mask & ~pages) : 0;
    unsigned after = hak_popcount32(slab->purged_mask);
    size_t page_bytes = (before - after) * hak_os_page_bytes();
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_superslab_lock);
    hak_superslab_set_thin(slab, false, after);
    hak_retention_note_missed(&hak_superslab_pool.retention,
                              taken_bytes < page_bytes ? taken_bytes : page_bytes, now_ms);
    hak_ragged_note_missed(page_bytes, now_ms);
    hak_lock_release(&hak_superslab_lock);
}

void hak_thin_leave(struct slab *slab) {
    if (is_marked(slab)) {
        mark(slab, false);
    }
    hak_lock_acquire(&hak_superslab_lock);
    unsigned purged_pages = slab->purged_pages;
    hak_superslab_set_thin(slab, false, 0);
    hak_superslab_note_light(slab, purged_pages);
    slab->purged_mask = 0;
    hak_lock_release(&hak_superslab_lock);
}

size_t hak_thin_purge(struct slab *slab, unsigned calls_max, unsigned *calls) {
    unsigned before_pages = slab->purged_pages;
    bool was_thin = is_marked(slab);
    if (was_thin) {
        mark(slab, false); /* first: what is freed while this looks makes it thin again */
    }
    unsigned splits = calls_max != 0 ? hak_superslab_split(hak_superslab_of(slab)) : 0;
    *calls += splits;
    /* What was not carved yet holds the dirt of the slab's units, if they were not zero, or a huge page's. */
    bool is_all_touched = !slab->is_zero || hak_superslab_is_filled(slab);
    unsigned pages = hak_blocks_purge(slab, is_all_touched, calls_max - splits, calls);
    /* Where nobody knows which pages went, none was taken again since: what went before is still gone. */
    pages = pages < before_pages ? before_pages : pages;
    size_t given_bytes = pages > before_pages ? (pages - before_pages) * hak_os_page_bytes() : 0;
    uint64_t now_ms = hak_os_now_ms();
    hak_lock_acquire(&hak_superslab_lock);
    hak_superslab_set_thin(slab, false, pages);
    if (given_bytes != 0 && was_thin) {
        hak_retention_note_purged(&hak_superslab_pool.retention, given_bytes, now_ms);
    } else if (given_bytes != 0) {
        hak_ragged_note_purged(given_bytes);
    }
    hak_lock_release(&hak_superslab_lock);
    return given_bytes;
}
