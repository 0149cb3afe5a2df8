/*
 * retention.c - see retention.h.
 */
#include "slab/retention.h"
#include "conf/options.h"

#define WINDOW_MS          1000u
#define STRIKES_TO_RAISE   3u
#define LIVE_SHARE_SHIFT   3u                    /* an eighth of what is in use */
#define CYCLE_BYTES_MIN    ((size_t)1024 * 1024) /* less is not worth keeping anything for */
#define LAPSED_WINDOWS_MAX 32u                   /* after that many halvings nothing is left */

static bool is_ping_pong(const struct retention *r) {
    return r->purged_bytes >= CYCLE_BYTES_MIN && r->rewanted_bytes >= r->purged_bytes / 2;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static void close_window(struct retention *r) {
    if (is_ping_pong(r)) {
        r->strikes += r->strikes < STRIKES_TO_RAISE;
        if (r->strikes == STRIKES_TO_RAISE) {
            size_t bound_bytes = (size_t)hak_options.retain_mb << 20;
            r->raised_bytes = smaller(r->raised_bytes + r->purged_bytes, bound_bytes);
        }
    } else {
        r->strikes = 0;
        r->raised_bytes -= smaller(r->raised_bytes, r->min_dirty_bytes / 2);
    }
    r->min_dirty_bytes = r->dirty_bytes;
    r->purged_bytes = 0;
    r->rewanted_bytes = 0;
}

static void advance(struct retention *r, uint64_t now_ms) {
    /* Another thread, whose look at the clock was later, may have been here first. */
    if (now_ms < r->window_start_ms + WINDOW_MS) {
        return;
    }
    uint64_t lapsed = (now_ms - r->window_start_ms) / WINDOW_MS;
    close_window(r);
    for (uint64_t i = 1; i < lapsed && i < LAPSED_WINDOWS_MAX; i++) {
        close_window(r);
    }
    r->window_start_ms = now_ms;
}

void hak_retention_note_purged(struct retention *r, size_t bytes, uint64_t now_ms) {
    advance(r, now_ms);
    r->purged_bytes += bytes;
}

void hak_retention_note_rewanted(struct retention *r, size_t bytes, uint64_t now_ms) {
    advance(r, now_ms);
    r->rewanted_bytes += bytes;
}

void hak_retention_note_dirty(struct retention *r, size_t dirty_bytes) {
    r->dirty_bytes = dirty_bytes;
    r->min_dirty_bytes = smaller(r->min_dirty_bytes, dirty_bytes);
}

void hak_retention_set(struct retention *r, size_t bytes) {
    r->is_set = true;
    r->set_bytes = bytes;
}

size_t hak_retention_floor_bytes(struct retention *r, size_t live_bytes, uint64_t now_ms) {
    if (r->is_set) {
        return r->set_bytes;
    }
    advance(r, now_ms);
    return HAK_RETENTION_BASE_BYTES + (live_bytes >> LIVE_SHARE_SHIFT) + r->raised_bytes;
}
