/*
 * slots.c - see slots.h. Two sizes of slots: for blocks of a page, most of all, and for the rest of what
 * slabs hold. Larger ones have mappings of their own (guarded.h).
 */
#include "check/slots.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"
#include "check/guarded.h"
#include "meta/arena.h"
#include "meta/registry.h"
#include "os/os.h"

#define CHUNK_SLOTS 64u /* the last one's first page is a guard, the rest of it is never used */
#define SIZES       2u

struct slot {
    struct hak_record record; /* under lock; address 0: no block, or not yet */
    struct slot *next;        /* under lock: in one of the size's lists */
    uintptr_t end;            /* const */
    uint8_t size;             /* const: which of them */
    bool is_reserved;         /* owner only: what shuts it is its mapping; it has no guard markers */
    bool is_lost;             /* owner only: the kernel would not shut it */
};

struct chunk {
    struct chunk *next;
    uintptr_t start;
    size_t slot_bytes;
    struct slot slots[CHUNK_SLOTS];
}; /* const once linked, but for the slots */

struct hak_lock hak_slots_lock = HAK_LOCK_INIT(HAK_RANK_RECORDS);

static struct chunk *chunks;   /* under lock */
static size_t space_bytes;     /* under lock: of chunks, and of such as are about to be */
static size_t space_bytes_max; /* const after start */

/* All under lock. Slots of the size == in use + waiting + fresh. */
static struct size {
    struct slot *fresh;           /* never used */
    struct slot *oldest, *newest; /* given back, in that order */
    unsigned waiting;
} sizes[SIZES];

static _Atomic size_t live_count; /* written under lock */

/* Slots of each size that wait before the first of them is used again: some megabytes of address space. */
static const unsigned waiting_max[SIZES] = {1024, 256};

static size_t slot_bytes_of(unsigned size) {
    return size == 0 ? 2 * hak_os_page_bytes() : HAK_UNIT_BYTES;
}

static size_t chunk_bytes(size_t slot_bytes) {
    return hak_round_up(CHUNK_SLOTS * slot_bytes, HAK_UNIT_BYTES);
}

/* The smallest size that has room for such a block and a guard as long as its alignment; SIZES: none. */
static unsigned size_for(size_t bytes, size_t align) {
    size_t page_bytes = hak_os_page_bytes();
    size_t guard_bytes = align > page_bytes ? align : page_bytes;
    for (unsigned size = 0; size < SIZES; size++) {
        size_t slot_bytes = slot_bytes_of(size);
        if (bytes <= slot_bytes &&
            hak_round_up(bytes + (bytes == 0), guard_bytes) + guard_bytes <= slot_bytes) {
            return size;
        }
    }
    return SIZES;
}

static struct slot *slot_at(const void *address) {
    hak_word word = hak_registry_word(address);
    struct chunk *chunk = hak_word_kind(word) == HAK_KIND_GUARDED ? hak_word_address(word) : NULL;
    return chunk == NULL ? NULL : &chunk->slots[((uintptr_t)address - chunk->start) / chunk->slot_bytes];
}

struct hak_record *hak_slot_record(const void *address) {
    struct slot *slot = slot_at(address);
    return slot == NULL ? NULL : &slot->record;
}

/* ---- chunks ---- */

/* Guard markers where the kernel has them, else a mapping without access. */
static int shut_chunk(void *start, size_t bytes, bool *has_markers) {
    *has_markers = hak_os_allow(start, bytes) == 0 && hak_os_guard(start, bytes) == 0;
    return *has_markers ? 0 : hak_os_reserve_again(start, bytes);
}

static int map_chunk(size_t bytes, void **start, bool *has_markers) {
    int error = hak_os_reserve_aligned(bytes, HAK_UNIT_BYTES, start);
    if (error != 0) {
        return error;
    }
    error = hak_registry_prepare(*start, bytes);
    if (error == 0) {
        error = shut_chunk(*start, bytes, has_markers);
    }
    if (error != 0) {
        hak_os_drop(*start, bytes);
    }
    return error;
}

static void link_locked(struct chunk *chunk, unsigned size) {
    chunk->next = chunks;
    chunks = chunk;
    for (unsigned i = CHUNK_SLOTS - 1; i-- > 0;) {
        chunk->slots[i].next = sizes[size].fresh;
        sizes[size].fresh = &chunk->slots[i];
    }
}

/* Whether there may be a chunk more; its address space is counted then. */
static bool take_space(size_t bytes) {
    hak_lock_acquire(&hak_slots_lock);
    bool has_room = bytes <= space_bytes_max - space_bytes;
    space_bytes += has_room ? bytes : 0;
    hak_lock_release(&hak_slots_lock);
    return has_room;
}

static void give_space_back(size_t bytes) {
    hak_lock_acquire(&hak_slots_lock);
    space_bytes -= bytes;
    hak_lock_release(&hak_slots_lock);
}

/* Adds a chunk, whatever another thread did meanwhile. No lock held. False when there is no memory, or slots
 * have what they may. */
static bool grow(unsigned size) {
    size_t bytes = chunk_bytes(slot_bytes_of(size));
    if (!take_space(bytes)) {
        return false;
    }
    struct chunk *chunk = hak_meta_alloc(sizeof *chunk);
    void *start;
    bool has_markers;
    if (chunk == NULL || map_chunk(bytes, &start, &has_markers) != 0) {
        if (chunk != NULL) {
            hak_meta_free(chunk, sizeof *chunk);
        }
        give_space_back(bytes);
        return false;
    }
    chunk->start = (uintptr_t)start;
    chunk->slot_bytes = slot_bytes_of(size);
    for (unsigned i = 0; i < CHUNK_SLOTS; i++) {
        chunk->slots[i].end = chunk->start + (i + 1) * chunk->slot_bytes;
        chunk->slots[i].size = (uint8_t)size;
        chunk->slots[i].is_reserved = !has_markers;
    }
    hak_registry_fill(start, bytes / HAK_UNIT_BYTES, hak_word_for_record(HAK_KIND_GUARDED, chunk));
    hak_lock_acquire(&hak_slots_lock);
    link_locked(chunk, size);
    hak_lock_release(&hak_slots_lock);
    return true;
}

/* ---- slots ---- */

static struct slot *pop_waiting_locked(struct size *size) {
    struct slot *slot = size->oldest;
    if (slot != NULL) {
        size->oldest = slot->next;
        size->waiting--;
    }
    return slot;
}

static void push_waiting_locked(struct size *size, struct slot *slot) {
    slot->next = NULL;
    if (size->oldest == NULL) {
        size->oldest = slot;
    } else {
        size->newest->next = slot;
    }
    size->newest = slot;
    size->waiting++;
}

/* A slot for use; NULL when none is left, or none that has waited long enough unless `may_be_early`. */
static struct slot *take(unsigned idx, bool may_be_early) {
    struct size *size = &sizes[idx];
    struct slot *slot;
    hak_lock_acquire(&hak_slots_lock);
    if (size->fresh != NULL && size->waiting <= waiting_max[idx]) {
        slot = size->fresh;
        size->fresh = slot->next;
    } else {
        slot = may_be_early || size->waiting > waiting_max[idx] ? pop_waiting_locked(size) : NULL;
    }
    if (slot != NULL) {
        slot->record.address = 0;
        (void)hak_atomic_add_relaxed(&live_count, 1); /* relaxed: a rough bound */
    }
    hak_lock_release(&hak_slots_lock);
    return slot;
}

/* A slot that is lost stays among those in use. */
static void give_back(struct slot *slot) {
    if (slot->is_lost) {
        return;
    }
    hak_lock_acquire(&hak_slots_lock);
    push_waiting_locked(&sizes[slot->size], slot);
    (void)hak_atomic_add_relaxed(&live_count, (size_t)-1); /* relaxed: a rough bound */
    hak_lock_release(&hak_slots_lock);
}

static int open_pages(const struct slot *slot, const struct hak_record *record) {
    struct hak_guarded_range range = hak_guarded_range(record);
    size_t bytes = (size_t)(range.end - range.start);
    return slot->is_reserved ? hak_os_allow(range.start, bytes) : hak_os_unguard(range.start, bytes);
}

void hak_slots_prepare(size_t bytes_max) {
    space_bytes_max = bytes_max;
}

bool hak_slot_is_for(size_t bytes, unsigned align_shift) {
    return size_for(bytes, (size_t)1 << align_shift) != SIZES;
}

void *hak_slot_open(size_t bytes, unsigned align_shift) {
    struct hak_record record = {.bytes = bytes, .align_shift = (uint8_t)align_shift};
    size_t align = (size_t)1 << align_shift;
    unsigned size = size_for(bytes, align);
    HAK_ASSERT(size < SIZES);
    struct slot *slot = take(size, false);
    if (slot == NULL) {
        slot = take(size, !grow(size));
    }
    if (slot == NULL) {
        return NULL;
    }
    record.address = hak_round_down(slot->end - bytes - (bytes == 0), align);
    if (open_pages(slot, &record) != 0) {
        give_back(slot);
        return NULL;
    }
    return (void *)record.address;
}

void hak_slot_shut(const struct hak_record *record) {
    struct slot *slot = slot_at((const void *)record->address);
    struct hak_guarded_range range = hak_guarded_range(record);
    size_t bytes = (size_t)(range.end - range.start);
    if (!slot->is_reserved && hak_os_guard(range.start, bytes) == 0) {
        return;
    }
    int error;
    if (slot->is_reserved) {
        error = hak_os_reserve_again(range.start, bytes);
    } else {
        /* For good: its pages are locked. All of it, since opening removes no marker from then on. */
        size_t slot_bytes = slot_bytes_of(slot->size);
        slot->is_reserved = true;
        error = hak_os_reserve_again((void *)(slot->end - slot_bytes), slot_bytes);
    }
    if (error != 0) {
        slot->is_lost = true;
        (void)hak_os_forbid(range.start, bytes);
    }
}

void hak_slot_give_back(const void *block) {
    give_back(slot_at(block));
}

/* ---- all of them ---- */

static int visit_chunk(const struct chunk *chunk, hak_record_visitor visitor, void *context) {
    int result = 0;
    for (unsigned i = 0; result == 0 && i < CHUNK_SLOTS; i++) {
        if (chunk->slots[i].record.address != 0) {
            result = visitor(&chunk->slots[i].record, context);
        }
    }
    return result;
}

int hak_slots_visit_locked(hak_record_visitor visitor, void *context) {
    int result = 0;
    for (const struct chunk *chunk = chunks; result == 0 && chunk != NULL; chunk = chunk->next) {
        result = visit_chunk(chunk, visitor, context);
    }
    return result;
}

void hak_slots_visit_mapped(hak_range_visitor visitor, void *context) {
    hak_lock_acquire(&hak_slots_lock);
    const struct chunk *chunk = chunks;
    hak_lock_release(&hak_slots_lock);
    /* Chunks stay, and what is linked to one. */
    for (; chunk != NULL; chunk = chunk->next) {
        if (visitor((void *)chunk->start, chunk_bytes(chunk->slot_bytes), context) != 0) {
            return;
        }
    }
}

size_t hak_slots_live(void) {
    return hak_atomic_load_relaxed(&live_count); /* relaxed: a rough bound */
}
