/*
 * quarantine.c - see quarantine.h. A list of chunks, filled at its end and emptied at its start.
 */
#include "check/quarantine.h"
#include "meta/arena.h"

#define CHUNK_ENTRIES 169u

struct entry {
    void *block;
    struct hak_held held;
};

struct chunk {
    struct chunk *next;
    unsigned first; /* entries[first .. end - 1] wait */
    unsigned end;
    struct entry entries[CHUNK_ENTRIES];
};

struct hak_lock hak_quarantine_lock = HAK_LOCK_INIT(HAK_RANK_QUEUE);

/* Under lock. */
static struct {
    struct chunk *oldest, *newest;
    struct hak_held held;
    struct hak_held most; /* const after start */
} queue;

void hak_quarantine_prepare(struct hak_held most) {
    queue.most = most;
}

static void add_chunk_locked(struct chunk *chunk) {
    if (queue.newest != NULL) {
        queue.newest->next = chunk;
    } else {
        queue.oldest = chunk;
    }
    queue.newest = chunk;
}

bool hak_quarantine_push(void *block, struct hak_held held) {
    struct chunk *spare = NULL;
    for (;;) {
        hak_lock_acquire(&hak_quarantine_lock);
        bool has_room = queue.newest != NULL && queue.newest->end < CHUNK_ENTRIES;
        if (!has_room && spare != NULL) {
            add_chunk_locked(spare);
            spare = NULL;
            has_room = true;
        }
        if (has_room) {
            queue.newest->entries[queue.newest->end++] = (struct entry){.block = block, .held = held};
            queue.held.bytes += held.bytes;
            queue.held.space_bytes += held.space_bytes;
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

/* The oldest entry; takes its chunk out of the list when it was the last one there. */
static void *pop_locked(struct chunk **emptied) {
    struct chunk *chunk = queue.oldest;
    struct entry entry = chunk->entries[chunk->first++];
    queue.held.bytes -= entry.held.bytes;
    queue.held.space_bytes -= entry.held.space_bytes;
    if (chunk->first == chunk->end) {
        queue.oldest = chunk->next;
        if (queue.oldest == NULL) {
            queue.newest = NULL;
        }
        *emptied = chunk;
    }
    return entry.block;
}

void *hak_quarantine_pop(bool to_be_emptied) {
    struct chunk *emptied = NULL;
    void *block = NULL;
    hak_lock_acquire(&hak_quarantine_lock);
    bool is_surplus = queue.held.bytes > queue.most.bytes || queue.held.space_bytes > queue.most.space_bytes;
    if (queue.oldest != NULL && (to_be_emptied || is_surplus)) {
        block = pop_locked(&emptied);
    }
    hak_lock_release(&hak_quarantine_lock);
    if (emptied != NULL) {
        hak_meta_free(emptied, sizeof *emptied);
    }
    return block;
}

void hak_quarantine_forget(bool (*is_lost)(const void *block)) {
    struct chunk *old = queue.oldest;
    queue.oldest = queue.newest = NULL;
    queue.held = (struct hak_held){0};
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
