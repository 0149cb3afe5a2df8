/*
 * kit.c - see kit.h.
 */
#include "scenarios/kit.h"
#include "heap/supply.h"
#include "process/verify.h"

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

void kit_use(const struct block_ref *ref) {
    ++*(unsigned *)ref->block;
}

void kit_return(const struct block_ref *refs, unsigned count) {
    struct heap *heap = hak_heap_attach();
    (void)hak_blocks_return(refs, count, heap->id, hak_heap_handle_event, heap);
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
