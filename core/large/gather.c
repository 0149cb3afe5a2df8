/*
 * gather.c - see gather.h.
 */
#include "large/gather.h"
#include "base/assert.h"
#include "large/mapping_records.h"
#include "large/move.h"
#include "large/retain.h"

/* With the seams of the parts (seams.h) the bound of the calls that one allocation makes. */
#define PARTS_MAX      12u
#define SEAM_BYTES_MIN ((size_t)512 * 1024)

/* The pieces that the block is made of, in transit; in the order of their place in it. */
struct gathering {
    struct hak_mapping *parts[PARTS_MAX];
    unsigned count;
    unsigned seams;    /* that the block will have at most */
    size_t part_bytes; /* of all parts */
    size_t dirty_bytes;
};

/* Lock held. A piece that is longer than what is missing is cut. */
static void take_part(struct gathering *g, struct hak_mapping *part, size_t missing_bytes) {
    hak_mapping_kept_to_transit(part);
    if (part->bytes > missing_bytes && !hak_mapping_cut(part, missing_bytes)) {
        hak_mapping_transit_to_kept(part);
        return;
    }
    g->parts[g->count++] = part;
    g->seams += part->seams.count + 1;
    g->part_bytes += part->bytes;
    g->dirty_bytes += part->dirty_bytes;
}

/* Each seam is one more call whenever the pages move again: on average what lies between two must be worth
 * it. */
static unsigned seams_max_of(size_t bytes) {
    size_t seams = bytes / SEAM_BYTES_MIN;
    return seams < HAK_SEAMS_MAX ? (unsigned)seams : HAK_SEAMS_MAX;
}

/* Lock held. Ends when nothing is missing, nothing fits, a piece could not be cut, or there are seams enough.
 */
static void take_parts(struct gathering *g, size_t bytes, size_t part_min_bytes) {
    if (hak_mapping_totals.seams >= hak_large_policy.seams_count_max) {
        return;
    }
    unsigned seams_max = seams_max_of(bytes);
    for (unsigned count = 0; count == g->count && count < PARTS_MAX && g->seams < seams_max; count++) {
        size_t missing_bytes = bytes - g->part_bytes;
        size_t min_bytes = hak_smaller(missing_bytes, part_min_bytes);
        struct hak_mapping *part = NULL;
        if (missing_bytes != 0) {
            part = hak_mapping_best_to_gather(missing_bytes, min_bytes, seams_max - 1 - g->seams);
        }
        if (part == NULL) {
            return;
        }
        take_part(g, part, missing_bytes);
    }
}

/* The first parts are lost, the others kept. */
static void give_up(const struct gathering *g, unsigned lost_parts) {
    hak_lock_acquire(&hak_large_lock);
    for (unsigned i = 0; i < g->count; i++) {
        if (i < lost_parts) {
            hak_mapping_transit_to_spare(g->parts[i]);
        } else {
            hak_mapping_transit_to_kept(g->parts[i]);
        }
    }
    hak_lock_release(&hak_large_lock);
}

/*
 * No lock. Brings the parts to `target`, the last one long enough for the rest. False if one did not come
 * whole: *lost_parts are gone then, as is the target, and the others are where they were.
 */
static bool fill(const struct gathering *g, char *target, size_t bytes, unsigned *lost_parts) {
    size_t offset = 0;
    for (unsigned i = 0; i < g->count; i++) {
        struct hak_mapping *part = g->parts[i];
        size_t new_bytes = i + 1 == g->count ? bytes - offset : part->bytes;
        if (!hak_move_free_pages((void *)part->base, part->bytes, &part->seams, target + offset, new_bytes)) {
            hak_move_give_up(target, bytes, offset, offset + new_bytes);
            *lost_parts = i + 1;
            return false;
        }
        offset += part->bytes;
    }
    return true;
}

/* Lock held. The first part's record becomes the block's, with all seams; the others become spare. */
static void join_records(const struct gathering *g, size_t *dirty_bytes) {
    struct hak_mapping *first = g->parts[0];
    size_t offset = 0;
    for (unsigned i = 0; i < g->count; i++) {
        struct hak_mapping *part = g->parts[i];
        if (part->dirty_bytes != 0) {
            *dirty_bytes = offset + part->dirty_bytes;
        }
        size_t part_bytes = part->bytes;
        if (i != 0) {
            hak_mapping_take_seams(first, offset, part);
            hak_mapping_transit_to_spare(part);
        }
        offset += part_bytes;
    }
    hak_mapping_sever(first);
}

void *hak_gather(size_t bytes, size_t align, size_t part_min_bytes, size_t *dirty_bytes, uint64_t now_ms) {
    struct gathering g = {.count = 0};
    hak_mapping_lock_with_spare();
    take_parts(&g, bytes, part_min_bytes);
    hak_lock_release(&hak_large_lock);
    if (g.count == 0) {
        return NULL;
    }
    void *target = hak_move_reserve((void *)g.parts[0]->base, bytes, align, 0);
    unsigned lost_parts = 0;
    if (target == NULL || !fill(&g, target, bytes, &lost_parts)) {
        give_up(&g, lost_parts);
        return NULL;
    }
    hak_lock_acquire(&hak_large_lock);
    join_records(&g, dirty_bytes);
    hak_retain_fetched(HAK_LARGE_MAPPINGS, bytes - g.dirty_bytes, now_ms);
    hak_mapping_transit_to_live(g.parts[0], target, bytes);
    hak_lock_release(&hak_large_lock);
    return target;
}
