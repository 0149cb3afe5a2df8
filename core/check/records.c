/*
 * records.c - see records.h. Each shard is an open-addressing table that is made anew when it is three
 * quarters full: without the released blocks that were in it the last time, and twice as long where that
 * makes little room. Nothing else is taken out while there is memory for that. Blocks in slots have their
 * records there.
 */
#include "check/records.h"
#include "base/assert.h"
#include "check/guarded.h"
#include "check/slots.h"
#include "os/os.h"

#define SHARDS          64u
#define FIRST_ENTRIES   ((size_t)256)
#define HASH_MULTIPLIER UINT64_C(0x9E3779B97F4A7C15)
#define HASH_SHIFT      32

struct shard {
    struct hak_lock lock;
    struct hak_record *entries; /* under lock */
    size_t capacity;            /* under lock: a power of two, 0 at first */
    size_t used;                /* under lock */
};

/* All zero, so that an ordinary process has nothing of it in its file; hak_records_prepare() sets the ranks.
 */
HAK_TABLE static struct shard shards[SHARDS];

static uint64_t hash_of(uintptr_t address) {
    uint64_t hash = (address >> 4) * HASH_MULTIPLIER;
    return hash ^ hash >> HASH_SHIFT;
}

static struct shard *shard_of(uintptr_t address) {
    return &shards[hash_of(address) % SHARDS];
}

/* The entry of that address, or the unused one where it would go. The table has one. */
static struct hak_record *slot_in(struct hak_record *entries, size_t capacity, uintptr_t address) {
    size_t i = hash_of(address) / SHARDS & (capacity - 1);
    while (entries[i].address != 0 && entries[i].address != address) {
        i = (i + 1) & (capacity - 1);
    }
    return &entries[i];
}

static struct hak_lock *lock_of(const void *address) {
    return hak_slot_record(address) != NULL ? &hak_slots_lock : &shard_of((uintptr_t)address)->lock;
}

/* The lock is lock_of()'s. */
static struct hak_record *find_locked(const void *address) {
    struct hak_record *entry = hak_slot_record(address);
    if (entry == NULL) {
        const struct shard *shard = shard_of((uintptr_t)address);
        entry = shard->capacity == 0 ? NULL : slot_in(shard->entries, shard->capacity, (uintptr_t)address);
    }
    /* That of a slot may be another's; an unused one in a table is found for NULL. */
    return entry == NULL || entry->address == 0 || entry->address != (uintptr_t)address ? NULL : entry;
}

static size_t most_in(size_t capacity) {
    return capacity / 4 * 3;
}

static bool has_room_locked(const struct shard *shard) {
    return shard->used + 1 <= most_in(shard->capacity);
}

/* Whether the next table has the entry: not if its block was gone when this one was made. */
static bool is_to_stay(const struct hak_record *entry) {
    return entry->address != 0 && (entry->state != HAK_RECORD_RELEASED || !entry->is_old);
}

/* Of a table without room: as many again, if a quarter of it is to go. */
static size_t next_capacity_locked(const struct shard *shard) {
    size_t stay = 0;
    for (size_t i = 0; i < shard->capacity; i++) {
        stay += is_to_stay(&shard->entries[i]);
    }
    bool is_to_double = stay > most_in(most_in(shard->capacity));
    return shard->capacity == 0 ? FIRST_ENTRIES : shard->capacity << is_to_double;
}

/* Moves what is to stay into `entries`, which has `capacity`; returns the old table. */
static struct hak_record *replace_locked(struct shard *shard, struct hak_record *entries, size_t capacity) {
    struct hak_record *old = shard->entries;
    shard->used = 0;
    for (size_t i = 0; i < shard->capacity; i++) {
        if (is_to_stay(&old[i])) {
            struct hak_record *entry = slot_in(entries, capacity, old[i].address);
            *entry = old[i];
            entry->is_old = old[i].state == HAK_RECORD_RELEASED;
            shard->used++;
        }
    }
    shard->entries = entries;
    shard->capacity = capacity;
    return old;
}

/* Takes an entry out; those behind it that were not to be behind it move up. */
static void take_out_locked(struct shard *shard, size_t i) {
    size_t mask = shard->capacity - 1;
    for (size_t k = (i + 1) & mask; shard->entries[k].address != 0; k = (k + 1) & mask) {
        size_t home = hash_of(shard->entries[k].address) / SHARDS & mask;
        if (((k - home) & mask) >= ((k - i) & mask)) {
            shard->entries[i] = shard->entries[k];
            i = k;
        }
    }
    shard->entries[i].address = 0;
    shard->used--;
}

/* There is no memory for a longer table: what is gone is forgotten. False if that makes no room either. */
static bool forget_released(struct shard *shard) {
    hak_lock_acquire(&shard->lock);
    for (size_t i = 0; i < shard->capacity;) {
        bool is_gone = shard->entries[i].address != 0 && shard->entries[i].state == HAK_RECORD_RELEASED;
        if (is_gone) {
            take_out_locked(shard, i); /* and another one may be there now */
        } else {
            i++;
        }
    }
    bool has_room = has_room_locked(shard);
    hak_lock_release(&shard->lock);
    return has_room;
}

/* Makes room in the table unless another thread did. No lock held. False when out of memory. */
static bool make_room(struct shard *shard, size_t seen_capacity, size_t capacity) {
    size_t bytes = hak_os_page_round(capacity * sizeof(struct hak_record));
    size_t spare_bytes = bytes;
    void *spare;
    if (hak_os_map(NULL, bytes, &spare) != 0) {
        return forget_released(shard);
    }
    hak_lock_acquire(&shard->lock);
    if (shard->capacity == seen_capacity && !has_room_locked(shard)) {
        spare = replace_locked(shard, spare, capacity);
        spare_bytes = hak_os_page_round(seen_capacity * sizeof(struct hak_record));
    }
    hak_lock_release(&shard->lock);
    hak_os_drop(spare, spare_bytes);
    return true;
}

static bool enter_in_shard(const struct hak_record *record) {
    struct shard *shard = shard_of(record->address);
    for (;;) {
        hak_lock_acquire(&shard->lock);
        struct hak_record *entry = find_locked((const void *)record->address);
        if (entry == NULL && has_room_locked(shard)) {
            entry = slot_in(shard->entries, shard->capacity, record->address);
            shard->used++;
        }
        if (entry != NULL) {
            *entry = *record;
        }
        size_t capacity = shard->capacity;
        size_t next_capacity = entry == NULL ? next_capacity_locked(shard) : 0;
        hak_lock_release(&shard->lock);
        if (entry != NULL) {
            return true;
        }
        if (!make_room(shard, capacity, next_capacity)) {
            return false;
        }
    }
}

bool hak_records_enter(const struct hak_record *record) {
    struct hak_record *entry = hak_slot_record((const void *)record->address);
    if (entry == NULL) {
        return enter_in_shard(record);
    }
    hak_lock_acquire(&hak_slots_lock);
    *entry = *record;
    hak_lock_release(&hak_slots_lock);
    return true;
}

bool hak_records_get(const void *address, struct hak_record *record) {
    struct hak_lock *lock = lock_of(address);
    hak_lock_acquire(lock);
    const struct hak_record *entry = find_locked(address);
    if (entry != NULL) {
        *record = *entry;
    }
    hak_lock_release(lock);
    return entry != NULL;
}

bool hak_record_live_to_freeing(const void *address, const struct hak_trace *trace, uint32_t thread,
                                struct hak_record *record) {
    struct hak_lock *lock = lock_of(address);
    hak_lock_acquire(lock);
    struct hak_record *entry = find_locked(address);
    bool is_live = entry != NULL && entry->state == HAK_RECORD_LIVE;
    if (is_live) {
        entry->state = HAK_RECORD_FREEING;
        entry->freed = trace;
        entry->freeing_thread = thread;
    }
    *record = entry != NULL ? *entry : (struct hak_record){.address = 0};
    hak_lock_release(lock);
    return is_live;
}

static void change(const void *address, enum hak_record_state from, enum hak_record_state to) {
    struct hak_lock *lock = lock_of(address);
    hak_lock_acquire(lock);
    struct hak_record *entry = find_locked(address);
    HAK_ASSERT(entry != NULL && entry->state == from);
    entry->state = (uint8_t)to;
    hak_lock_release(lock);
}

void hak_record_freeing_to_live(const void *address, size_t bytes) {
    struct hak_lock *lock = lock_of(address);
    hak_lock_acquire(lock);
    struct hak_record *entry = find_locked(address);
    HAK_ASSERT(entry != NULL && entry->state == HAK_RECORD_FREEING);
    entry->state = HAK_RECORD_LIVE;
    entry->bytes = bytes;
    entry->freed = NULL;
    entry->freeing_thread = 0;
    hak_lock_release(lock);
}

void hak_record_freeing_to_quarantined(const void *address) {
    change(address, HAK_RECORD_FREEING, HAK_RECORD_QUARANTINED);
}

void hak_record_quarantined_to_released(const void *address) {
    change(address, HAK_RECORD_QUARANTINED, HAK_RECORD_RELEASED);
}

/* Lock held. */
static int visit_records_locked(const struct shard *shard, hak_record_visitor visitor, void *context) {
    int result = 0;
    for (size_t k = 0; result == 0 && k < shard->capacity; k++) {
        if (shard->entries[k].address != 0) {
            result = visitor(&shard->entries[k], context);
        }
    }
    return result;
}

/* What is under a lock that acquire() does not get is left out. */
static int visit_by(bool (*acquire)(struct hak_lock *), hak_record_visitor visitor, void *context) {
    int result = 0;
    for (unsigned i = 0; result == 0 && i < SHARDS; i++) {
        if (acquire(&shards[i].lock)) {
            result = visit_records_locked(&shards[i], visitor, context);
            hak_lock_release(&shards[i].lock);
        }
    }
    if (result == 0 && acquire(&hak_slots_lock)) {
        result = hak_slots_visit_locked(visitor, context);
        hak_lock_release(&hak_slots_lock);
    }
    return result;
}

static bool acquire_whenever(struct hak_lock *lock) {
    hak_lock_acquire(lock);
    return true;
}

int hak_records_visit(hak_record_visitor visitor, void *context) {
    return visit_by(acquire_whenever, visitor, context);
}

int hak_records_visit_soon(hak_record_visitor visitor, void *context) {
    return visit_by(hak_lock_acquire_soon, visitor, context);
}

/* LIVE under the lock: nobody unmaps it meanwhile. */
static int visit_pages(const struct hak_record *record, hak_range_visitor visitor, void *context) {
    if (record->address == 0 || !hak_record_is_live_guarded(record)) {
        return 0;
    }
    struct hak_guarded_range range = hak_guarded_range(record);
    return visitor(range.start, (size_t)(range.end - range.start), context);
}

static int visit_shard_locked(const struct shard *shard, hak_range_visitor visitor, void *context) {
    size_t bytes = hak_os_page_round(shard->capacity * sizeof *shard->entries);
    int result = shard->capacity == 0 ? 0 : visitor(shard->entries, bytes, context);
    for (size_t k = 0; result == 0 && k < shard->capacity; k++) {
        result = visit_pages(&shard->entries[k], visitor, context);
    }
    return result;
}

void hak_records_visit_mapped(hak_range_visitor visitor, void *context) {
    int result = 0;
    for (unsigned i = 0; result == 0 && i < SHARDS; i++) {
        hak_lock_acquire(&shards[i].lock);
        result = visit_shard_locked(&shards[i], visitor, context);
        hak_lock_release(&shards[i].lock);
    }
    if (result == 0) {
        hak_slots_visit_mapped(visitor, context);
    }
}

void hak_records_forget(bool (*end_free)(const void *block)) {
    for (unsigned i = 0; i < SHARDS; i++) {
        for (size_t k = 0; k < shards[i].capacity; k++) {
            struct hak_record *record = &shards[i].entries[k];
            bool is_freed = record->state == HAK_RECORD_QUARANTINED || record->state == HAK_RECORD_FREEING;
            if (is_freed && end_free((const void *)record->address)) {
                record->state = HAK_RECORD_RELEASED;
            }
        }
    }
}

void hak_records_prepare(void) {
    for (unsigned i = 0; i < SHARDS; i++) {
        shards[i].lock.rank = HAK_RANK_RECORDS;
    }
}

void hak_records_for_each_lock(void (*action)(struct hak_lock *)) {
    for (unsigned i = 0; i < SHARDS; i++) {
        action(&shards[i].lock);
    }
    action(&hak_slots_lock);
}
