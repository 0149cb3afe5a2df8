/*
 * mapping.c - see mapping.h.
 */
#include "large/mapping.h"
#include "base/assert.h"
#include "large/freed_mark.h"
#include "large/retain.h"

/* A rest is worth a piece of its own above a quarter of the block, and from 1 MiB on in any case. */
#define REST_SHIFT     2u
#define REST_BYTES_MIN ((size_t)1024 * 1024)

struct hak_mapping_totals hak_mapping_totals;

static struct hak_mapping *all_mappings;
static struct hak_mapping *spare_mappings;
static struct hak_mapping *newest_kept;
static struct hak_mapping *oldest_kept;

/* ---- records ---- */

bool hak_mapping_has_spare(void) {
    return spare_mappings != NULL;
}

struct hak_mapping *hak_mapping_take_spare(void) {
    struct hak_mapping *mapping = spare_mappings;
    if (mapping != NULL) {
        HAK_ASSERT(mapping->state == HAK_MAPPING_SPARE);
        spare_mappings = mapping->older;
        mapping->older = NULL;
        mapping->state = HAK_MAPPING_TRANSIT;
    }
    return mapping;
}

static void put_spare(struct hak_mapping *mapping) {
    mapping->base = 0;
    mapping->bytes = 0;
    mapping->dirty_bytes = 0;
    hak_mapping_totals.seams -= mapping->seams.count;
    mapping->seams.count = 0;
    mapping->state = HAK_MAPPING_SPARE;
    mapping->older = spare_mappings;
    spare_mappings = mapping;
}

void hak_mapping_add_spares(struct hak_mapping *records, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        records[i].all_next = all_mappings;
        all_mappings = &records[i];
        put_spare(&records[i]);
    }
}

struct hak_mapping *hak_mapping_first(void) {
    return all_mappings;
}

/* ---- the kept list, newest first ---- */

static void link_kept(struct hak_mapping *mapping) {
    mapping->state = HAK_MAPPING_KEPT;
    mapping->newer = NULL;
    mapping->older = newest_kept;
    if (newest_kept != NULL) {
        newest_kept->newer = mapping;
    } else {
        oldest_kept = mapping;
    }
    newest_kept = mapping;
    hak_mapping_totals.kept_count++;
    hak_mapping_totals.kept_bytes += mapping->bytes;
    hak_retain_add_dirty(mapping->dirty_bytes);
}

static void unlink_kept(struct hak_mapping *mapping) {
    HAK_ASSERT(mapping->state == HAK_MAPPING_KEPT);
    if (mapping->newer != NULL) {
        mapping->newer->older = mapping->older;
    } else {
        newest_kept = mapping->older;
    }
    if (mapping->older != NULL) {
        mapping->older->newer = mapping->newer;
    } else {
        oldest_kept = mapping->newer;
    }
    mapping->newer = NULL;
    mapping->older = NULL;
    mapping->state = HAK_MAPPING_TRANSIT;
    hak_mapping_totals.kept_count--;
    hak_mapping_totals.kept_bytes -= mapping->bytes;
    hak_retain_remove_dirty(mapping->dirty_bytes);
}

/* ---- seams ---- */

void hak_mapping_cut_seams(struct hak_mapping *mapping, size_t bytes, struct hak_seams *gone) {
    hak_seams_cut(&mapping->seams, bytes, gone);
    hak_mapping_totals.seams -= gone->count;
}

void hak_mapping_restore_seams(struct hak_mapping *mapping, size_t bytes, struct hak_seams *gone) {
    hak_mapping_totals.seams += gone->count;
    hak_seams_append(&mapping->seams, gone, bytes);
}

void hak_mapping_take_seams(struct hak_mapping *mapping, size_t offset_bytes, struct hak_mapping *part) {
    size_t before = mapping->seams.count + part->seams.count;
    if (part->seams.count == 0 || part->seams.units[0] != 0) { /* else it brings the one at its start along */
        hak_seams_add(&mapping->seams, offset_bytes);
    }
    hak_seams_append(&mapping->seams, &part->seams, offset_bytes);
    hak_mapping_totals.seams += mapping->seams.count - before;
}

/* ---- neighbours ---- */

void hak_mapping_sever_after(struct hak_mapping *mapping) {
    if (mapping->after != NULL) {
        mapping->after->before = NULL;
        mapping->after = NULL;
    }
}

void hak_mapping_sever(struct hak_mapping *mapping) {
    if (mapping->before != NULL) {
        mapping->before->after = NULL;
        mapping->before = NULL;
    }
    hak_mapping_sever_after(mapping);
}

static bool is_joinable(const struct hak_mapping *mapping, const struct hak_mapping *after) {
    return after != NULL && after->state == HAK_MAPPING_KEPT && mapping->base + mapping->bytes == after->base;
}

static void set_neighbours(struct hak_mapping *mapping, struct hak_mapping *after) {
    mapping->after = after;
    if (after != NULL) {
        after->before = mapping;
    }
}

/* What lies behind, in no list, becomes the piece's, which the caller makes longer by what is returned. */
static size_t take_in(struct hak_mapping *mapping, struct hak_mapping *after) {
    size_t more_bytes = after->bytes;
    hak_seams_append(&mapping->seams, &after->seams, mapping->bytes);
    set_neighbours(mapping, after->after);
    after->before = after->after = NULL;
    put_spare(after);
    return more_bytes;
}

/* Takes the kept piece behind into a free one that is in no list. */
static void join_after(struct hak_mapping *mapping) {
    struct hak_mapping *after = mapping->after;
    unlink_kept(after);
    if (after->dirty_bytes != 0) {
        mapping->dirty_bytes = mapping->bytes + after->dirty_bytes;
    }
    mapping->bytes += take_in(mapping, after);
}

static void join_and_keep(struct hak_mapping *mapping) {
    struct hak_mapping *before = mapping->before;
    if (is_joinable(mapping, mapping->after)) {
        join_after(mapping);
    }
    link_kept(mapping);
    if (before != NULL && before->state == HAK_MAPPING_KEPT && is_joinable(before, mapping)) {
        unlink_kept(before);
        join_after(before);
        link_kept(before);
    }
}

/* ---- states ---- */

static void account_live(size_t bytes) {
    hak_mapping_totals.live_count++;
    hak_mapping_totals.live_bytes += bytes;
    hak_retain_add_live(bytes);
}

static void account_dead(size_t bytes) {
    hak_mapping_totals.live_count--;
    hak_mapping_totals.live_bytes -= bytes;
    hak_retain_remove_live(bytes);
}

void hak_mapping_transit_to_live(struct hak_mapping *mapping, void *base, size_t bytes) {
    HAK_ASSERT(mapping->state == HAK_MAPPING_TRANSIT);
    HAK_ASSERT(hak_is_aligned((uintptr_t)base | bytes, HAK_UNIT_BYTES));
    mapping->base = (uintptr_t)base;
    mapping->bytes = bytes;
    mapping->dirty_bytes = 0;
    mapping->state = HAK_MAPPING_LIVE;
    account_live(bytes);
    hak_registry_store(base, hak_word_for_record(HAK_KIND_MAPPED, mapping));
}

/* live -> transit with its word turned into a mark. */
static void live_to_none(struct hak_mapping *mapping) {
    HAK_ASSERT(mapping->state == HAK_MAPPING_LIVE);
    uint64_t mark = hak_freed_mark_of_mapping(mapping->bytes);
    hak_registry_store((void *)mapping->base, hak_word_for_number(HAK_KIND_LARGE_FREED, mark));
    account_dead(mapping->bytes);
    mapping->state = HAK_MAPPING_TRANSIT;
}

void hak_mapping_live_to_transit(struct hak_mapping *mapping) {
    live_to_none(mapping);
    hak_mapping_sever(mapping);
}

void hak_mapping_live_to_kept(struct hak_mapping *mapping) {
    live_to_none(mapping);
    mapping->dirty_bytes = mapping->bytes;
    join_and_keep(mapping);
}

void hak_mapping_kept_to_transit(struct hak_mapping *mapping) {
    unlink_kept(mapping);
}

void hak_mapping_transit_to_kept(struct hak_mapping *mapping) {
    HAK_ASSERT(mapping->state == HAK_MAPPING_TRANSIT);
    join_and_keep(mapping);
}

void hak_mapping_transit_to_spare(struct hak_mapping *mapping) {
    HAK_ASSERT(mapping->state == HAK_MAPPING_TRANSIT);
    hak_mapping_sever(mapping);
    put_spare(mapping);
}

/* ---- choice ---- */

/* A piece starts only where a word can be stored without mapping a registry leaf, which the lock forbids. */
static bool may_start(uintptr_t address) {
    return hak_registry_is_prepared((const void *)address);
}

/* Either close to `bytes`, or long enough to be cut and cut where a piece may start. */
static bool is_fit(const struct hak_mapping *m, size_t bytes, size_t align) {
    return m->bytes >= bytes && hak_is_aligned(m->base, align) &&
           (!hak_mapping_is_worth_cutting(bytes, m->bytes - bytes) || may_start(m->base + bytes));
}

struct hak_mapping *hak_mapping_best_fit(size_t bytes, size_t align) {
    struct hak_mapping *best = NULL;
    for (struct hak_mapping *m = newest_kept; m != NULL; m = m->older) {
        if (is_fit(m, bytes, align) && (best == NULL || m->bytes < best->bytes)) {
            best = m;
        }
    }
    return best;
}

bool hak_mapping_has_warm(size_t bytes) {
    const struct hak_mapping *best = hak_mapping_best_fit(hak_mapping_round(bytes), HAK_UNIT_BYTES);
    return best != NULL && best->dirty_bytes >= bytes;
}

/* Whether `m` gives `bytes` bytes of pages better than `best` does: with least left over, else most of them.
 */
static bool gives_better(const struct hak_mapping *m, const struct hak_mapping *best, size_t bytes) {
    if (best == NULL) {
        return true;
    }
    return best->dirty_bytes < bytes ? m->dirty_bytes > best->dirty_bytes
                                     : m->dirty_bytes >= bytes && m->dirty_bytes < best->dirty_bytes;
}

struct hak_mapping *hak_mapping_best_to_gather(size_t bytes, size_t dirty_min_bytes, unsigned seams_max) {
    struct hak_mapping *best = NULL;
    for (struct hak_mapping *m = newest_kept; m != NULL; m = m->older) {
        bool helps = m->dirty_bytes >= dirty_min_bytes && m->seams.count <= seams_max;
        if (helps && gives_better(m, best, bytes)) {
            best = m;
        }
    }
    return best;
}

struct hak_mapping *hak_mapping_around(const void *p) {
    for (struct hak_mapping *m = all_mappings; m != NULL; m = m->all_next) {
        if (m->state == HAK_MAPPING_LIVE && (uintptr_t)p - m->base < m->bytes) {
            return m;
        }
    }
    return NULL;
}

struct hak_mapping *hak_mapping_oldest(void) {
    return oldest_kept;
}

bool hak_mapping_is_worth_cutting(size_t bytes, size_t rest_bytes) {
    return rest_bytes >= REST_BYTES_MIN || rest_bytes > bytes >> REST_SHIFT;
}

/* ---- length ---- */

void hak_mapping_resize_live(struct hak_mapping *mapping, size_t bytes) {
    HAK_ASSERT(mapping->state == HAK_MAPPING_LIVE);
    account_dead(mapping->bytes);
    mapping->bytes = bytes;
    account_live(bytes);
}

bool hak_mapping_cut(struct hak_mapping *mapping, size_t bytes) {
    struct hak_mapping *rest = may_start(mapping->base + bytes) ? hak_mapping_take_spare() : NULL;
    if (rest == NULL) {
        return false;
    }
    bool is_live = mapping->state == HAK_MAPPING_LIVE;
    rest->base = mapping->base + bytes;
    rest->bytes = mapping->bytes - bytes;
    hak_seams_cut(&mapping->seams, bytes, &rest->seams);
    if (is_live) {
        rest->dirty_bytes = rest->bytes;
        hak_mapping_resize_live(mapping, bytes);
    } else {
        rest->dirty_bytes = mapping->dirty_bytes > bytes ? mapping->dirty_bytes - bytes : 0;
        mapping->bytes = bytes;
        mapping->dirty_bytes -= rest->dirty_bytes;
    }
    set_neighbours(rest, mapping->after);
    set_neighbours(mapping, rest);
    join_and_keep(rest);
    return true;
}

bool hak_mapping_absorb(struct hak_mapping *mapping, size_t bytes) {
    struct hak_mapping *after = mapping->after;
    size_t more_bytes = bytes - mapping->bytes;
    if (!is_joinable(mapping, after) || after->bytes < more_bytes) {
        return false;
    }
    bool is_cut = hak_mapping_is_worth_cutting(bytes, after->bytes - more_bytes);
    if (is_cut && !may_start(after->base + more_bytes)) {
        return false;
    }
    unlink_kept(after);
    if (!is_cut) {
        hak_mapping_resize_live(mapping, mapping->bytes + take_in(mapping, after));
        return true;
    }
    struct hak_seams rest;
    hak_seams_cut(&after->seams, more_bytes, &rest);
    hak_seams_append(&mapping->seams, &after->seams, mapping->bytes);
    after->seams = rest;
    hak_mapping_resize_live(mapping, bytes);
    after->base += more_bytes;
    after->bytes -= more_bytes;
    after->dirty_bytes = after->dirty_bytes > more_bytes ? after->dirty_bytes - more_bytes : 0;
    link_kept(after);
    return true;
}

/* ---- check ---- */

static const char *fault_of(const struct hak_mapping *m) {
    bool is_live = m->state == HAK_MAPPING_LIVE;
    if (!hak_is_aligned(m->base | m->bytes, HAK_UNIT_BYTES) || m->dirty_bytes > m->bytes) {
        return "mapping: its bounds are not whole units";
    }
    if ((m->before != NULL && m->before->after != m) || (m->after != NULL && m->after->before != m)) {
        return "mapping: neighbours disagree";
    }
    for (unsigned i = 0; i < m->seams.count; i++) {
        bool rises = i == 0 || m->seams.units[i - 1] < m->seams.units[i];
        if (!rises || (size_t)m->seams.units[i] << HAK_UNIT_SHIFT >= m->bytes) {
            return "mapping: its seams do not lie within it in order";
        }
    }
    if (is_live && hak_registry_word((void *)m->base) != hak_word_for_record(HAK_KIND_MAPPED, m)) {
        return "mapping: a live block without its word";
    }
    if (is_live && m->after != NULL && m->after->state == HAK_MAPPING_KEPT &&
        m->base + m->bytes > m->after->base) {
        return "mapping: neighbours overlap";
    }
    if (m->state == HAK_MAPPING_KEPT && is_joinable(m, m->after)) {
        return "mapping: kept neighbours are not joined";
    }
    return NULL;
}

void hak_mapping_check(size_t *live_bytes, size_t *live_blocks, size_t *dirty_bytes, const char **why) {
    struct hak_mapping_totals found = {0};
    for (const struct hak_mapping *m = all_mappings; m != NULL; m = m->all_next) {
        found.seams += m->seams.count;
        if (m->state == HAK_MAPPING_TRANSIT || m->state == HAK_MAPPING_SPARE) {
            continue;
        }
        const char *fault = fault_of(m);
        *why = fault != NULL ? fault : *why;
        if (m->state == HAK_MAPPING_LIVE) {
            found.live_count++;
            found.live_bytes += m->bytes;
        } else {
            found.kept_count++;
            found.kept_bytes += m->bytes;
            *dirty_bytes += m->dirty_bytes;
        }
    }
    *live_bytes += found.live_bytes;
    *live_blocks += found.live_count;
    if (found.live_count != hak_mapping_totals.live_count ||
        found.live_bytes != hak_mapping_totals.live_bytes ||
        found.kept_count != hak_mapping_totals.kept_count ||
        found.kept_bytes != hak_mapping_totals.kept_bytes) {
        *why = "mapping: totals differ from the sums";
    } else if (*why == NULL && found.seams != hak_mapping_totals.seams) {
        *why = "mapping: there are more seams, or fewer, than were counted";
    }
}
