/*
 * extent_records.c - the records of extents: the list of all there ever were, and those without memory. See
 * extent.h.
 */
#include "base/assert.h"
#include "large/extent.h"

static struct hak_extent *all_extents;
static struct hak_extent *spare_extents;

struct hak_extent *hak_extent_take_spare(void) {
    struct hak_extent *extent = spare_extents;
    if (extent != NULL) {
        spare_extents = extent->spare_next;
    }
    return extent;
}

void hak_extent_publish(struct hak_extent *extent) {
    extent->all_next = all_extents;
    all_extents = extent;
}

void hak_extent_put_spare(struct hak_extent *extent) {
    HAK_ASSERT(extent->base == 0);
    extent->spare_next = spare_extents;
    spare_extents = extent;
}

struct hak_extent *hak_extent_first(void) {
    return all_extents;
}
