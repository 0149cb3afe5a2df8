/*
 * tally.c - see tally.h.
 */
#include "slab/tally.h"
#include "os/fatal.h"
#include "slab/slab_word.h"

struct slab *hak_tally_slab_or_die(const void *block) {
    hak_word word = hak_registry_word(block);
    if (HAK_UNLIKELY(hak_word_kind(word) != HAK_KIND_SLAB)) {
        size_t block_bytes =
            hak_word_kind(word) == HAK_KIND_SLAB_FREED ? hak_freed_block_bytes(hak_word_number(word)) : 0;
        hak_fatal_pointer("free", HAK_FAULT_DOUBLE_FREE, block, block_bytes);
    }
    return hak_slab_of_map(hak_word_address(word));
}

static void count_slot(struct tally *tally, unsigned slot) {
    struct slab *slab = hak_tally_slab_or_die(tally->samples[slot]);
    unsigned blocks = tally->blocks[slot];
    /* relaxed: only counted; an adoption meanwhile makes it a block more or less */
    uint32_t owner = hak_slab_word_owner(hak_atomic_load_relaxed(&slab->word));
    tally->foreign += owner != tally->owner ? blocks : 0;
    tally->units[slot] = 0;
    enum hak_slab_event event = hak_slab_count_free(slab, blocks);
    if (event != HAK_EVENT_NONE) {
        tally->handler(slab, event, tally->context);
    }
}

HAK_NOINLINE void hak_tally_open(struct tally *tally, unsigned slot, const void *block) {
    if ((tally->used >> slot & 1u) != 0) {
        count_slot(tally, slot);
    }
    tally->used |= (uint32_t)1 << slot;
    tally->units[slot] = (uintptr_t)block >> HAK_UNIT_SHIFT;
    tally->samples[slot] = block;
    tally->blocks[slot] = 0;
}

void hak_tally_settle(struct tally *tally) {
    for (; tally->used != 0; tally->used &= tally->used - 1) {
        count_slot(tally, hak_ctz32(tally->used));
    }
}
