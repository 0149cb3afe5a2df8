/*
 * tally.c - see tally.h.
 */
#include "slab/tally.h"
#include "os/fatal.h"
#include "slab/slab_word.h"

static struct slab *slab_or_die(const void *block) {
    hak_word word = hak_registry_word(block);
    if (HAK_UNLIKELY(hak_word_kind(word) != HAK_KIND_SLAB)) {
        size_t block_bytes =
            hak_word_kind(word) == HAK_KIND_SLAB_FREED ? hak_freed_block_bytes(hak_word_number(word)) : 0;
        hak_fatal_pointer("free", HAK_FAULT_DOUBLE_FREE, block, block_bytes);
    }
    return hak_slab_of_map(hak_word_address(word));
}

bool hak_tally_count(const void *block, unsigned blocks, uint32_t owner, hak_event_handler handler,
                     void *context) {
    struct slab *slab = slab_or_die(block);
    /* relaxed: only counted; an adoption meanwhile makes it a block more or less */
    bool is_foreign = hak_slab_word_owner(hak_atomic_load_relaxed(&slab->word)) != owner;
    enum hak_slab_event event = hak_slab_count_free(slab, blocks, owner);
    if (event != HAK_EVENT_NONE) {
        handler(slab, event, context);
    }
    return is_foreign;
}

static void count_slot(struct tally *tally, unsigned slot) {
    const void *block = tally->samples[slot];
    unsigned blocks = tally->blocks[slot];
    tally->samples[slot] = NULL;
    bool is_foreign = hak_tally_count(block, blocks, tally->owner, tally->handler, tally->context);
    tally->foreign += is_foreign ? blocks : 0;
}

HAK_NOINLINE void hak_tally_open(struct tally *tally, unsigned slot, const void *block) {
    if (hak_tally_has(tally, slot)) {
        count_slot(tally, slot);
    }
    tally->used |= (uint32_t)1 << slot;
    tally->opened++;
    tally->samples[slot] = block;
    tally->blocks[slot] = 0;
}

void hak_tally_settle(struct tally *tally) {
    for (; tally->used != 0; tally->used &= tally->used - 1) {
        count_slot(tally, hak_ctz32(tally->used));
    }
}
