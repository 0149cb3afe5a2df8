/*
 * kit.c - see kit.h.
 */
#include "scenarios/kit.h"
#include "heap/supply.h"
#include "process/verify.h"
#include "slab/purge.h"

void kit_attach(void) {
    (void)hak_heap_attach();
}

void kit_take(unsigned class_idx, struct block_ref *refs, unsigned count) {
    struct heap *heap = hak_heap_attach();
    unsigned got = 0;
    while (got < count) {
        unsigned more = hak_supply_take(heap, class_idx, refs + got, count - got);
        MODEL_CHECK(more != 0);
        got += more;
    }
    for (unsigned i = 0; i < count; i++) {
        /* relaxed: this thread's blocks */
        hak_atomic_store_relaxed(refs[i].header, (uint8_t)(HAK_HEADER_LIVE + class_idx));
    }
}

void kit_take_of_two_slabs(struct block_ref *refs, unsigned count) {
    kit_take(KIT_CLASS, refs, count);
    struct block_ref swap = refs[1];
    refs[1] = refs[KIT_BLOCKS];
    refs[KIT_BLOCKS] = swap;
    MODEL_CHECK(kit_slab(&refs[0]) != kit_slab(&refs[1]));
}

void kit_refill(struct block_ref *ref) {
    MODEL_CHECK(hak_supply_take(hak_heap_attach(), KIT_CLASS, ref, 1) == 1);
    kit_use(ref);
}

void kit_use(const struct block_ref *ref) {
    ++*(unsigned *)ref->block;
}

void kit_return(const struct block_ref *refs, unsigned count) {
    struct heap *heap = hak_heap_attach();
    (void)hak_blocks_return(refs, count, heap->id, hak_heap_handle_event, heap);
    hak_purge_pay();
}

void kit_free(const struct block_ref *ref) {
    kit_use(ref);
    kit_return(ref, 1);
}

struct slab *kit_slab(const struct block_ref *ref) {
    return hak_slab_of_block(ref->block);
}

void kit_is_sound(void) {
    const char *broken = hak_process_verify();
    if (broken != NULL) {
        model_fail("verification: %s", broken);
    }
}

unsigned kit_count(const struct block_ref *refs, unsigned count, uint8_t header) {
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++) {
        /* relaxed: after the threads */
        found += hak_atomic_load_relaxed(refs[i].header) == header;
    }
    return found;
}
