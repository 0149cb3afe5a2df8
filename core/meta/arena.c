/*
 * arena.c - see arena.h. A bump pointer over guarded chunks, and one free list per size in cache lines.
 *
 * Free lists are exact in size; a request that finds its list empty bumps. Sizes are few (a header map per
 * class, a cache array per capacity, the records), so freed memory finds its next user soon; nothing is
 * coalesced.
 */
#include "meta/arena.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"
#include "os/os.h"

#define LINES_MAX         (HAK_META_BYTES_MAX / HAK_CACHE_LINE_BYTES)
#define FIRST_CHUNK_BYTES ((size_t)192 * 1024)
#define CHUNK_BYTES       ((size_t)1024 * 1024)

/* The first line of a chunk: chunks form a list from the newest to the oldest. */
struct chunk {
    struct chunk *older;
    size_t bytes;
};
_Static_assert(sizeof(struct chunk) <= HAK_CACHE_LINE_BYTES, "a chunk's record is its first line");

struct free_memory {
    struct free_memory *next;
};

struct hak_lock hak_meta_lock = HAK_LOCK_INIT(HAK_RANK_META);

static struct {
    char *bump;     /* under lock: next unused byte, line aligned */
    char *bump_end; /* under lock */
    struct free_memory *free_lists[HAK_META_KINDS][LINES_MAX + 1]; /* under lock, by size in lines */
    struct chunk *newest;                                          /* under lock */
    _Atomic size_t mapped_bytes;
} arena;

static size_t lines_of(size_t bytes) {
    HAK_ASSERT(bytes != 0 && bytes <= HAK_META_BYTES_MAX);
    return (bytes + HAK_CACHE_LINE_BYTES - 1) / HAK_CACHE_LINE_BYTES;
}

/* NULL when the free list and the chunk are exhausted. The lock is held. Sets *is_zero for never-used memory.
 */
static void *take_locked(enum hak_meta_kind kind, size_t lines, bool *is_zero) {
    struct free_memory *memory = arena.free_lists[kind][lines];
    size_t bytes = lines * HAK_CACHE_LINE_BYTES;
    *is_zero = memory == NULL;
    if (memory != NULL) {
        arena.free_lists[kind][lines] = memory->next;
        return memory;
    }
    if ((size_t)(arena.bump_end - arena.bump) < bytes) {
        return NULL;
    }
    void *fresh = arena.bump;
    arena.bump += bytes;
    return fresh;
}

static void put_locked(enum hak_meta_kind kind, void *memory, size_t lines) {
    struct free_memory *node = memory;
    node->next = arena.free_lists[kind][lines];
    arena.free_lists[kind][lines] = node;
}

/* What is left of a chunk when the next one replaces it goes to the free lists. The lock is held. */
static void retire_chunk_locked(void) {
    size_t lines = (size_t)(arena.bump_end - arena.bump) / HAK_CACHE_LINE_BYTES;
    while (lines != 0) {
        size_t part = lines < LINES_MAX ? lines : LINES_MAX;
        put_locked(HAK_META_RECORD, arena.bump, part);
        arena.bump += part * HAK_CACHE_LINE_BYTES;
        lines -= part;
    }
}

/* Maps the next chunk between two guard pages. Threads that race here each add one; both are used up. */
static bool add_chunk(void) {
    size_t page_bytes = hak_os_page_bytes();
    bool is_first = hak_meta_mapped_bytes() == 0;
    size_t chunk_bytes = hak_round_up(is_first ? FIRST_CHUNK_BYTES : CHUNK_BYTES, page_bytes);
    size_t mapped_bytes = chunk_bytes + 2 * page_bytes;
    void *reserved;
    if (hak_os_reserve_aligned(mapped_bytes, page_bytes, &reserved) != 0) {
        return false;
    }
    char *chunk = (char *)reserved + page_bytes;
    if (hak_os_allow(chunk, chunk_bytes) != 0) {
        (void)hak_os_unmap(reserved, mapped_bytes);
        return false;
    }
    (void)hak_atomic_add_relaxed(&arena.mapped_bytes, mapped_bytes); /* relaxed: a statistic */
    hak_lock_acquire(&hak_meta_lock);
    retire_chunk_locked();
    struct chunk *record = (struct chunk *)(void *)chunk;
    *record = (struct chunk){.older = arena.newest, .bytes = chunk_bytes};
    arena.newest = record;
    arena.bump = chunk + HAK_CACHE_LINE_BYTES;
    arena.bump_end = chunk + chunk_bytes;
    hak_lock_release(&hak_meta_lock);
    return true;
}

/* What a stale look-up may be reading: by atomic stores. The first word, the link of the free list, is no
 * header. */
static void clear(void *memory, size_t bytes) {
    _Atomic uint64_t *words = memory;
    for (size_t i = 0; i < bytes / sizeof *words; i++) {
        hak_atomic_store_relaxed(&words[i],
                                 (uint64_t)0); /* relaxed: whoever reads it now has a wrong pointer */
    }
}

void *hak_meta_alloc_kind(enum hak_meta_kind kind, size_t bytes) {
    size_t lines = lines_of(bytes);
    bool is_zero;
    for (;;) {
        hak_lock_acquire(&hak_meta_lock);
        void *memory = take_locked(kind, lines, &is_zero);
        hak_lock_release(&hak_meta_lock);
        if (memory != NULL) {
            if (!is_zero) {
                clear(memory, lines * HAK_CACHE_LINE_BYTES);
            }
            return memory;
        }
        if (!add_chunk()) {
            return NULL;
        }
    }
}

void hak_meta_free_kind(enum hak_meta_kind kind, void *memory, size_t bytes) {
    size_t lines = lines_of(bytes);
    hak_lock_acquire(&hak_meta_lock);
    put_locked(kind, memory, lines);
    hak_lock_release(&hak_meta_lock);
}

void *hak_meta_alloc(size_t bytes) {
    return hak_meta_alloc_kind(HAK_META_RECORD, bytes);
}

void hak_meta_free(void *memory, size_t bytes) {
    hak_meta_free_kind(HAK_META_RECORD, memory, bytes);
}

size_t hak_meta_mapped_bytes(void) {
    return hak_atomic_load_relaxed(&arena.mapped_bytes); /* relaxed: a statistic */
}

void hak_meta_visit_mapped(hak_range_visitor visitor, void *context) {
    hak_lock_acquire(&hak_meta_lock);
    struct chunk *chunk = arena.newest;
    hak_lock_release(&hak_meta_lock);
    /* Chunks are never unmapped and their records never change. */
    for (; chunk != NULL; chunk = chunk->older) {
        if (visitor(chunk, chunk->bytes, context) != 0) {
            return;
        }
    }
}
