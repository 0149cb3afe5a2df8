/*
 * checked_walk.c - the live blocks between guard pages, visited and counted. See checked.h.
 */
#include "check/records.h"
#include "heap/checked.h"

#define BATCH 256u

/* Those GUARDED live blocks that come next by their addresses, copied so that no lock is held while the
 * visitor runs. Others come and go meanwhile, and tables are made anew: of what stays none is met twice. */
struct batch {
    uintptr_t above; /* the last one of the batch before */
    size_t count;
    struct place {
        uintptr_t address;
        size_t bytes;
    } places[BATCH]; /* by address */
};

static int visit_into_batch(const struct hak_record *record, void *context) {
    struct batch *batch = context;
    bool is_full = batch->count == BATCH;
    if (!hak_record_is_live_guarded(record) || record->address <= batch->above ||
        (is_full && record->address > batch->places[BATCH - 1].address)) {
        return 0;
    }
    size_t at = is_full ? BATCH - 1 : batch->count++;
    for (; at > 0 && batch->places[at - 1].address > record->address; at--) {
        batch->places[at] = batch->places[at - 1];
    }
    batch->places[at] = (struct place){.address = record->address, .bytes = record->bytes};
    return 0;
}

int hak_checked_walk(hak_block_visitor visitor, void *context) {
    struct batch batch = {.above = 0};
    do {
        batch.count = 0;
        (void)hak_records_visit(visit_into_batch, &batch);
        for (size_t i = 0; i < batch.count; i++) {
            int result = visitor((void *)batch.places[i].address, batch.places[i].bytes, context);
            if (result != 0) {
                return result;
            }
        }
        batch.above = batch.count != 0 ? batch.places[batch.count - 1].address : 0;
    } while (batch.count == BATCH);
    return 0;
}

struct sums {
    size_t blocks, bytes;
};

static int add_guarded(const struct hak_record *record, void *context) {
    struct sums *sums = context;
    if (hak_record_is_live_guarded(record)) {
        sums->blocks++;
        sums->bytes += record->bytes;
    }
    return 0;
}

void hak_checked_count(size_t *blocks, size_t *bytes) {
    struct sums sums = {0, 0};
    (void)hak_records_visit(add_guarded, &sums);
    *blocks = sums.blocks;
    *bytes = sums.bytes;
}
