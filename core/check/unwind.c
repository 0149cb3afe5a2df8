/*
 * unwind.c - see unwind.h. Rules stand in a table by address, each beside its address combined with it: a
 * reader that meets two halves of different entries finds that they do not fit.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* _dl_find_object */
#endif
#include "check/unwind.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "check/unwind_table.h"
#include "os/os.h"

#define RULES           ((size_t)1 << 13)
#define HASH_MULTIPLIER UINT64_C(0x9E3779B97F4A7C15)
#define HASH_SHIFT      51 /* leaves the bits of an index */

_Static_assert((UINT64_MAX >> HASH_SHIFT) + 1 == RULES, "the hash is an index");

struct entry {
    _Atomic uint64_t rule;
    _Atomic uint64_t check; /* rule ^ address */
};

static struct entry *entries; /* const after start; NULL: off */

bool hak_unwind_prepare(void) {
    void *memory;
    if (hak_unwind_can_read_tables() && hak_os_map(NULL, RULES * sizeof *entries, &memory) == 0) {
        entries = memory;
    }
    return entries != NULL;
}

static struct hak_unwind_rule remembered_rule(uintptr_t address) {
    union {
        uint64_t word;
        struct hak_unwind_rule rule;
    } found;
    struct entry *entry = &entries[address * HASH_MULTIPLIER >> HASH_SHIFT];
    found.word =
        hak_atomic_load_relaxed(&entry->rule); /* relaxed: `check` tells whether the two belong together */
    /* relaxed: as above */
    if ((hak_atomic_load_relaxed(&entry->check) ^ found.word) != address) {
        found.word = 0;
        found.rule = hak_unwind_read_rule(address);
        hak_atomic_store_relaxed(&entry->rule, found.word);            /* relaxed: as above */
        hak_atomic_store_relaxed(&entry->check, found.word ^ address); /* relaxed: as above */
    }
    return found.rule;
}

bool hak_unwind_is_chain(void *const *frames, unsigned count) {
    unsigned by_base = 0;
    while (entries != NULL && by_base + 1 < count) {
        struct hak_unwind_rule rule = remembered_rule((uintptr_t)frames[by_base]);
        if (!rule.is_known || !rule.is_from_base || rule.outer_words != 2 || rule.base_words != 2) {
            break;
        }
        by_base++;
    }
    return by_base + 1 == count;
}

/* Whether there is a page at the address, on a stack of which nobody knows how far it goes. */
static bool is_mapped(struct hak_frame *frame, uintptr_t address) {
    uintptr_t page = hak_round_down(address, hak_os_page_bytes());
    if (page == 0 || (page != frame->page && !hak_os_is_readable((const uint32_t *)page))) {
        return false;
    }
    frame->page = page;
    return true;
}

/* The word at the address, which must lie between the bounds. */
static bool read_word(struct hak_frame *frame, uintptr_t address, uintptr_t low, uintptr_t high,
                      uintptr_t *word) {
    if (address < low || address > high - sizeof *word || !hak_is_aligned(address, sizeof *word) ||
        (frame->is_unbound && !is_mapped(frame, address))) {
        return false;
    }
    *word = *(const uintptr_t *)address;
    return true;
}

bool hak_unwind_step(struct hak_frame *frame, uintptr_t low, uintptr_t high) {
    if (entries == NULL) {
        return false;
    }
    struct hak_unwind_rule rule =
        frame->is_read_anew ? hak_unwind_read_rule(frame->address) : remembered_rule(frame->address);
    frame->is_outermost = rule.is_outermost;
    frame->is_bare = rule.is_bare;
    uintptr_t outer = (rule.is_from_base ? frame->base : frame->stack) + rule.outer_words * sizeof(uintptr_t);
    uintptr_t return_address = outer - sizeof(uintptr_t);
    if (!rule.is_known || outer <= frame->stack ||
        !read_word(frame, return_address, low, high, &frame->address)) {
        return false;
    }
    if (rule.base_words != 0 &&
        !read_word(frame, outer - rule.base_words * sizeof(uintptr_t), low, high, &frame->base)) {
        return false;
    }
    frame->stack = outer;
    return true;
}
