/*
 * guarded.c - see guarded.h.
 */
#include "check/guarded.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"
#include "meta/registry.h"
#include "os/os.h"

/* The registry has a word for each unit of a guard. */
#define GUARD_BYTES_MAX ((size_t)1024 * 1024 * 1024)

static _Atomic size_t live_count;

bool hak_guarded_covers(const void *address) {
    return hak_word_kind(hak_registry_word(address)) == HAK_KIND_GUARDED;
}

size_t hak_guarded_live(void) {
    return hak_atomic_load_relaxed(&live_count); /* relaxed: a rough bound */
}

/* From the block's address and size; everything else follows. */
static struct hak_guarded_range range_of(uintptr_t block, size_t bytes, unsigned align_shift) {
    size_t page_bytes = hak_os_page_bytes();
    size_t align = (size_t)1 << align_shift;
    bool is_wide =
        align > page_bytes; /* the block starts its first page, and its guard is as long as its alignment */
    uintptr_t start = hak_round_down(block, page_bytes);
    uintptr_t end = hak_round_up(block + bytes + (bytes == 0), page_bytes);
    uintptr_t mapping = start - (is_wide ? align : page_bytes);
    return (struct hak_guarded_range){
        .mapping = (uint8_t *)mapping,
        .start = (uint8_t *)start,
        .end = (uint8_t *)end,
        .mapping_bytes = hak_round_up(end + page_bytes - mapping, HAK_UNIT_BYTES),
    };
}

static void fill_words(const struct hak_guarded_range *range, hak_word word) {
    hak_registry_fill(range->mapping, range->mapping_bytes / HAK_UNIT_BYTES, word);
}

void *hak_guarded_alloc(size_t bytes, unsigned align_shift) {
    size_t page_bytes = hak_os_page_bytes();
    size_t align = (size_t)1 << align_shift;
    bool is_wide = align > page_bytes;
    size_t lead_bytes = is_wide ? align : page_bytes;
    size_t before_guard_bytes; /* from the mapping's start to the end of the block's last page */
    void *mapping;
    if (lead_bytes > GUARD_BYTES_MAX || bytes > HAK_BLOCK_BYTES_MAX - 2 * page_bytes ||
        __builtin_add_overflow(hak_os_page_round(bytes + (bytes == 0)), lead_bytes, &before_guard_bytes) ||
        before_guard_bytes > HAK_BLOCK_BYTES_MAX - HAK_UNIT_BYTES) {
        return NULL;
    }
    size_t mapping_bytes = hak_round_up(before_guard_bytes + page_bytes, HAK_UNIT_BYTES);
    if (hak_os_reserve_aligned(mapping_bytes, lead_bytes > HAK_UNIT_BYTES ? lead_bytes : HAK_UNIT_BYTES,
                               &mapping) != 0) {
        return NULL;
    }
    uintptr_t end = (uintptr_t)mapping + before_guard_bytes;
    uintptr_t block =
        is_wide ? (uintptr_t)mapping + lead_bytes : hak_round_down(end - bytes - (bytes == 0), align);
    struct hak_guarded_range range = range_of(block, bytes, align_shift);
    /* First what the kernel may refuse: the registry of a size that no machine has is gigabytes itself. */
    if (hak_os_allow(range.start, (size_t)(range.end - range.start)) != 0 ||
        hak_registry_prepare(mapping, mapping_bytes) != 0) {
        hak_os_drop(mapping, mapping_bytes);
        return NULL;
    }
    fill_words(&range, hak_word_for_number(HAK_KIND_GUARDED, 0));
    (void)hak_atomic_add_relaxed(&live_count, 1); /* relaxed: a rough bound */
    return (void *)block;
}

struct hak_guarded_range hak_guarded_range(const struct hak_record *record) {
    return range_of(record->address, record->bytes, record->align_shift);
}

bool hak_guarded_shrink(const struct hak_record *record, size_t bytes) {
    struct hak_guarded_range before = hak_guarded_range(record);
    struct hak_guarded_range after = range_of(record->address, bytes, record->align_shift);
    size_t cut_bytes = (size_t)(before.end - after.end);
    size_t surplus_bytes = before.mapping_bytes - after.mapping_bytes;
    if (cut_bytes != 0 && hak_os_reserve_again(after.end, cut_bytes) != 0) {
        return false;
    }
    uint8_t *surplus = after.mapping + after.mapping_bytes;
    hak_registry_fill(surplus, surplus_bytes / HAK_UNIT_BYTES, 0);
    hak_os_drop(surplus, surplus_bytes);
    return true;
}

void hak_guarded_close(const struct hak_record *record) {
    struct hak_guarded_range range = hak_guarded_range(record);
    size_t bytes = (size_t)(range.end - range.start);
    (void)hak_atomic_add_relaxed(&live_count, (size_t)-1); /* relaxed: a rough bound */
    /* Reserved anew it is one mapping with its guards; forbidden it would stay charged, and make three. */
    if (hak_os_reserve_again(range.start, bytes) != 0) {
        (void)hak_os_purge(range.start, bytes);
        (void)hak_os_forbid(range.start, bytes);
    }
}

void hak_guarded_unmap(const struct hak_record *record) {
    struct hak_guarded_range range = hak_guarded_range(record);
    fill_words(&range, 0);
    hak_os_drop(range.mapping, range.mapping_bytes);
}
