/*
 * checked_walk.c - the live blocks between guard pages, visited and counted. See checked.h.
 */
#include "check/records.h"
#include "heap/checked.h"

#define BATCH 64u

/* Some GUARDED live blocks, copied so that no lock is held while the visitor runs. */
struct batch {
    size_t skip; /* how many were visited before */
    size_t seen;
    size_t count;
    struct hak_record records[BATCH];
};

static int visit_into_batch(const struct hak_record *record, void *context) {
    struct batch *batch = context;
    if (record->kind == HAK_RECORD_GUARDED && record->state == HAK_RECORD_LIVE &&
        batch->seen++ >= batch->skip) {
        batch->records[batch->count++] = *record;
    }
    return batch->count == BATCH;
}

int hak_checked_walk(hak_block_visitor visitor, void *context) {
    struct batch batch = {.count = BATCH};
    for (size_t skip = 0; batch.count == BATCH; skip += BATCH) {
        batch.skip = skip;
        batch.seen = batch.count = 0;
        (void)hak_records_visit(visit_into_batch, &batch);
        for (size_t i = 0; i < batch.count; i++) {
            int result = visitor((void *)batch.records[i].address, batch.records[i].bytes, context);
            if (result != 0) {
                return result;
            }
        }
    }
    return 0;
}

struct sums {
    size_t blocks, bytes;
};

static int add_guarded(const struct hak_record *record, void *context) {
    struct sums *sums = context;
    if (record->kind == HAK_RECORD_GUARDED && record->state == HAK_RECORD_LIVE) {
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
