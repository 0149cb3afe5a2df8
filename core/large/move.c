/*
 * move.c - see move.h.
 */
#include "large/move.h"
#include "base/bits.h"
#include "large/mapping_records.h"
#include "os/os.h"
#include <string.h>

/* From twice this on, pages move to the same offset in it: the kernel then moves page tables, not pages. */
#define TABLE_BYTES ((size_t)2 * 1024 * 1024)

/* Where pages may move to: at `offset` in a multiple of `align`. */
struct place {
    size_t align;
    size_t offset;
};

static struct place place_for(const void *from, size_t bytes, size_t align) {
    if (bytes < 2 * TABLE_BYTES || align > HAK_UNIT_BYTES) {
        return (struct place){.align = align, .offset = 0};
    }
    uintptr_t offset = (uintptr_t)from & (TABLE_BYTES - 1);
    return (struct place){.align = TABLE_BYTES, .offset = hak_round_down(offset, HAK_UNIT_BYTES)};
}

void *hak_move_reserve(const void *from, size_t bytes, size_t align, size_t slack_bytes) {
    struct place place = place_for(from, bytes, align);
    void *reserved;
    size_t page_bytes = hak_os_page_bytes();
    size_t total_bytes;
    if (__builtin_add_overflow(bytes, slack_bytes + place.align - page_bytes, &total_bytes) ||
        hak_os_reserve_aligned(total_bytes, page_bytes, &reserved) != 0) {
        return NULL;
    }
    char *start = reserved;
    char *target = (char *)hak_round_up((uintptr_t)start - place.offset, place.align) + place.offset;
    if (hak_mapping_prepare_words(target, bytes) != 0) {
        hak_os_drop(start, total_bytes);
        return NULL;
    }
    size_t lead_bytes = (size_t)(target - start);
    size_t tail_bytes = total_bytes - lead_bytes - bytes;
    hak_os_drop(start, lead_bytes);
    hak_os_drop(target + bytes, tail_bytes);
    return target;
}

void hak_move_give_up(void *target, size_t bytes, size_t lost, size_t lost_end) {
    hak_os_drop(target, lost);
    hak_os_drop((char *)target + lost_end, bytes - lost_end);
}

/*
 * The kernel mappings before the last move first and leave their range mapped: when one cannot be moved, the
 * bytes of those before it go back there, and the target is given up. False then.
 */
static bool move_parts(char *from, size_t old_bytes, const struct hak_seams *seams, char *target,
                       size_t new_bytes) {
    size_t moved_bytes = 0;
    size_t end = 0;
    int error = 0;
    while (error == 0 && (end = hak_seams_next(seams, moved_bytes, old_bytes)) != old_bytes) {
        error = hak_os_move_pages(from + moved_bytes, end - moved_bytes, target + moved_bytes);
        moved_bytes = error == 0 ? end : moved_bytes;
    }
    if (error == 0) {
        end = new_bytes;
        error = hak_os_move(from + moved_bytes, old_bytes - moved_bytes, target + moved_bytes,
                            new_bytes - moved_bytes);
    }
    if (error == 0) {
        hak_os_drop(from, moved_bytes);
        return true;
    }
    memcpy(from, target, moved_bytes);
    hak_move_give_up(target, new_bytes, moved_bytes, end);
    return false;
}

void *hak_move_piece(void *from, size_t old_bytes, const struct hak_seams *seams, size_t new_bytes,
                     size_t align, size_t slack_bytes) {
    void *target = hak_move_reserve(from, new_bytes, align, slack_bytes);
    if (target == NULL && slack_bytes != 0) {
        target = hak_move_reserve(from, new_bytes, align, 0);
    }
    return target != NULL && move_parts(from, old_bytes, seams, target, new_bytes) ? target : NULL;
}

bool hak_move_free_pages(void *from, size_t bytes, const struct hak_seams *seams, void *target,
                         size_t new_bytes) {
    char *start = from;
    for (size_t offset = 0; offset < bytes;) {
        size_t end = hak_seams_next(seams, offset, bytes);
        size_t new_end = end == bytes ? new_bytes : end;
        if (hak_os_move(start + offset, end - offset, (char *)target + offset, new_end - offset) != 0) {
            hak_os_drop(start + offset, bytes - offset);
            hak_move_give_up(target, new_bytes, offset, new_end);
            return false;
        }
        offset = end;
    }
    return true;
}
