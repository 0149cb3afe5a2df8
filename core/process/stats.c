/*
 * stats.c - see stats.h. The header maps and the large floor's records are read; nothing is kept up to date
 * for it.
 */
#include "process/stats.h"
#include "check/records.h"
#include "check/trace_table.h"
#include "heap/checked.h"
#include "heap/front.h"
#include "heap/heap.h"
#include "large/large.h"
#include "meta/arena.h"
#include "meta/classes.h"
#include "meta/registry.h"
#include "os/os.h"
#include "process/walk.h"
#include "slab/superslab.h"

_Static_assert(HAK_STATS_CLASSES == HAK_CLASS_COUNT, "hakmem.h repeats the number of classes");

/* A live guest is a block of its own class and takes those beneath it away from the slab's. Of a cached one
 * nothing tells the class: it is what it covers. */
static int count_slab(struct slab *slab, void *context) {
    struct hak_class_stats *classes = ((struct hak_stats *)context)->classes;
    struct hak_class_stats *stats = &classes[slab->class_idx];
    size_t live = 0, cached = 0, lent = 0;
    bool is_of_guest = false;
    for (unsigned i = 0; i < slab->carved_blocks; i++) {
        unsigned header = hak_atomic_load_relaxed(&slab->map[i]); /* relaxed: a figure for some moment */
        unsigned live_class = header - HAK_HEADER_LIVE;
        bool is_tail = header == HAK_HEADER_TAIL;
        if (live_class < HAK_CLASS_COUNT && live_class != slab->class_idx) {
            classes[live_class].live_blocks++;
            classes[live_class].capacity_blocks++;
            is_of_guest = true;
        } else if (!is_tail) {
            is_of_guest = false;
        }
        live += live_class == slab->class_idx;
        lent += is_of_guest;
        cached +=
            header == HAK_HEADER_CACHED || header == HAK_HEADER_CACHED_ZERO || (is_tail && !is_of_guest);
    }
    stats->slabs++;
    stats->capacity_blocks += slab->capacity_blocks - lent;
    stats->live_blocks += live;
    stats->cached_blocks += cached;
    stats->free_blocks += slab->capacity_blocks - live - cached - lent;
    return 0;
}

static void add_up_classes(struct hak_stats *stats) {
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        const struct hak_class_stats *class_stats = &stats->classes[c];
        stats->live_bytes += class_stats->live_blocks * class_stats->block_bytes;
        stats->cached_bytes += class_stats->cached_blocks * class_stats->block_bytes;
        stats->free_bytes += class_stats->free_blocks * class_stats->block_bytes;
        stats->live_blocks += class_stats->live_blocks;
    }
}

static void add_large(struct hak_stats *stats) {
    struct hak_large_counts large = hak_large_count();
    stats->large_live_bytes = large.live_bytes;
    stats->large_live_blocks = large.live_blocks;
    stats->live_bytes += large.live_bytes;
    stats->live_blocks += large.live_blocks;
    stats->free_bytes += large.free_run_bytes + large.kept_bytes;
}

/* What checked mode has between guard pages is large too. */
static void add_guarded(struct hak_stats *stats) {
    size_t blocks, bytes;
    hak_checked_count(&blocks, &bytes);
    stats->large_live_bytes += bytes;
    stats->large_live_blocks += blocks;
    stats->live_bytes += bytes;
    stats->live_blocks += blocks;
}

static size_t attached_heaps(void) {
    size_t count = 0;
    for (uint32_t id = 1; id <= hak_heap_last_id(); id++) {
        struct heap *heap = hak_heap_by_id(id);
        count += heap != NULL && hak_atomic_load_relaxed(&heap->is_attached); /* relaxed: a statistic */
    }
    return count;
}

/* Adds what is resident of every mapping that the floors below know of. */
static int add_resident(void *address, size_t bytes, void *context) {
    size_t resident_bytes = 0;
    if (hak_os_resident(address, bytes, &resident_bytes) == 0) {
        *(size_t *)context += resident_bytes;
    }
    return 0;
}

void hak_stats_collect(struct hak_stats *stats) {
    *stats = (struct hak_stats){.version = HAK_STATS_VERSION, .struct_bytes = sizeof *stats};
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        stats->classes[c].block_bytes = hak_class_block_bytes[c];
    }
    (void)hak_walk_slabs(count_slab, stats);
    add_up_classes(stats);
    add_large(stats);
    if (hak_keeps_records()) {
        add_guarded(stats);
    }
    struct hak_superslab_counts superslabs = hak_superslab_count();
    stats->superslabs = superslabs.mapped;
    stats->superslabs_empty = superslabs.empty;
    stats->heaps = attached_heaps();
    stats->metadata_bytes = hak_meta_mapped_bytes() + hak_registry_mapped_bytes();
    stats->mapped_bytes = hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes); /* relaxed: a statistic */
}

size_t hak_stats_resident_bytes(void) {
    size_t resident_bytes = 0;
    hak_superslab_visit_mapped(add_resident, &resident_bytes);
    hak_large_visit_mapped(add_resident, &resident_bytes);
    hak_meta_visit_mapped(add_resident, &resident_bytes);
    hak_registry_visit_mapped(add_resident, &resident_bytes);
    if (hak_keeps_records()) {
        hak_records_visit_mapped(add_resident, &resident_bytes);
        hak_trace_table_visit_mapped(add_resident, &resident_bytes);
    }
    return resident_bytes;
}
