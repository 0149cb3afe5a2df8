/*
 * quarantine.c - see quarantine.h. Lists of chunks, filled at their ends and emptied at their starts.
 */
#include "check/quarantine.h"
#include "meta/arena.h"

#define CHUNK_ENTRIES 127u

struct entry {
    void *block;
    uint64_t number; /* in the order in which they came, of all rows */
    struct hak_held held;
};

struct chunk {
    struct chunk *next;
    unsigned first; /* entries[first .. end - 1] wait */
    unsigned end;
    struct entry entries[CHUNK_ENTRIES];
};

struct hak_lock hak_quarantine_lock = HAK_LOCK_INIT(HAK_RANK_QUEUE);

/* Under lock. Blocks that keep address space wait in a row of their own: that they leave is no reason for
 * others to. */
enum row_idx { INSIDE, APART, ROWS };
static struct row {
    struct chunk *oldest, *newest;
    struct hak_held held;
} rows[ROWS];
static uint64_t entered;     /* so many so far */
static struct hak_held most; /* const after start */

void hak_quarantine_prepare(struct hak_held bounds) {
    most = bounds;
}

static void add_chunk_locked(struct row *row, struct chunk *chunk) {
    if (row->newest != NULL) {
        row->newest->next = chunk;
    } else {
        row->oldest = chunk;
    }
    row->newest = chunk;
}

bool hak_quarantine_push(void *block, struct hak_held held) {
    struct row *row = &rows[held.space_bytes != 0 ? APART : INSIDE];
    struct chunk *spare = NULL;
    if (held.space_bytes > most.space_bytes) {
        return false;
    }
    for (;;) {
        hak_lock_acquire(&hak_quarantine_lock);
        bool has_room = row->newest != NULL && row->newest->end < CHUNK_ENTRIES;
        if (!has_room && spare != NULL) {
            add_chunk_locked(row, spare);
            spare = NULL;
            has_room = true;
        }
        if (has_room) {
            row->newest->entries[row->newest->end++] =
                (struct entry){.block = block, .number = entered++, .held = held};
            row->held.bytes += held.bytes;
            row->held.space_bytes += held.space_bytes;
        }
        hak_lock_release(&hak_quarantine_lock);
        if (has_room) {
            break;
        }
        spare = hak_meta_alloc(sizeof *spare);
        if (spare == NULL) {
            return false;
        }
    }
    if (spare != NULL) {
        hak_meta_free(spare, sizeof *spare); /* another thread had added one meanwhile */
    }
    return true;
}

/* The oldest entry; takes its chunk out of the row when it was the last one there. */
static void *pop_locked(struct row *row, struct chunk **emptied) {
    struct chunk *chunk = row->oldest;
    struct entry entry = chunk->entries[chunk->first++];
    row->held.bytes -= entry.held.bytes;
    row->held.space_bytes -= entry.held.space_bytes;
    if (chunk->first == chunk->end) {
        row->oldest = chunk->next;
        if (row->oldest == NULL) {
            row->newest = NULL;
        }
        *emptied = chunk;
    }
    return entry.block;
}

/* UINT64_MAX for an empty row. */
static uint64_t oldest_number(const struct row *row) {
    return row->oldest != NULL ? row->oldest->entries[row->oldest->first].number : UINT64_MAX;
}

/* The row of which the oldest is to leave, NULL if all may stay. */
static struct row *surplus_locked(bool to_be_emptied) {
    struct row *inside = &rows[INSIDE], *apart = &rows[APART];
    if (apart->held.space_bytes > most.space_bytes) {
        return apart;
    }
    bool is_surplus = inside->held.bytes + apart->held.bytes > most.bytes;
    struct row *older = oldest_number(apart) < oldest_number(inside) ? apart : inside;
    return (to_be_emptied || is_surplus) && older->oldest != NULL ? older : NULL;
}

void *hak_quarantine_pop(bool to_be_emptied) {
    struct chunk *emptied = NULL;
    void *block = NULL;
    hak_lock_acquire(&hak_quarantine_lock);
    struct row *row = surplus_locked(to_be_emptied);
    if (row != NULL) {
        block = pop_locked(row, &emptied);
    }
    hak_lock_release(&hak_quarantine_lock);
    if (emptied != NULL) {
        hak_meta_free(emptied, sizeof *emptied);
    }
    return block;
}

static void forget_in(struct row *row, bool (*is_lost)(const void *block)) {
    struct chunk *old = row->oldest;
    *row = (struct row){.oldest = NULL};
    while (old != NULL) {
        struct chunk *next = old->next;
        for (unsigned i = old->first; i < old->end; i++) {
            if (!is_lost(old->entries[i].block)) {
                (void)hak_quarantine_push(old->entries[i].block, old->entries[i].held);
            }
        }
        hak_meta_free(old, sizeof *old);
        old = next;
    }
}

void hak_quarantine_forget(bool (*is_lost)(const void *block)) {
    forget_in(&rows[INSIDE], is_lost);
    forget_in(&rows[APART], is_lost);
}
