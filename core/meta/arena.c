/*
 * arena.c - see arena.h. A bump pointer over guarded chunks, and free lists by size in cache lines.
 *
 * Lists are exact in size, but for rests of large pieces; a request that finds its list empty bumps. Sizes
 * are few (a cache array per capacity, the records; large ones are rounded up), so freed memory finds its
 * next user soon; nothing is coalesced. Only where there is nothing left to bump is a larger piece split, and
 * only while all pieces of the size that is wanted are in use: so of each size there are never more than were
 * in use at once, and what is mapped does not grow with time.
 */
#include "meta/arena.h"
#include "base/assert.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/config.h"
#include "os/os.h"

#define LINES_MAX         (HAK_META_BYTES_MAX / HAK_CACHE_LINE_BYTES)
#define SMALL_LINES       80u /* sizes up to here have a list each; */
#define LARGE_STEP_LINES  16u /* larger ones are multiples of this */
#define LISTS             (SMALL_LINES + 1 + (LINES_MAX - SMALL_LINES) / LARGE_STEP_LINES)
#define FIRST_CHUNK_BYTES ((size_t)192 * 1024)
#define CHUNK_BYTES       ((size_t)1024 * 1024)

/* The first line of a chunk: chunks form a list from the newest to the oldest. */
struct chunk {
    struct chunk *older;
    size_t bytes;
};
_Static_assert(sizeof(struct chunk) <= HAK_META_CHUNK_LEAD_LINES * HAK_CACHE_LINE_BYTES,
               "a chunk's record is its first line");

struct free_memory {
    struct free_memory *next;
    size_t lines;
};

HAK_CONTENDED struct hak_lock hak_meta_lock = HAK_LOCK_INIT(HAK_RANK_META);

static struct {
    char *bump;                            /* under lock: next unused byte, line aligned */
    char *bump_end;                        /* under lock */
    struct free_memory *free_lists[LISTS]; /* under lock, see list_of() */
    struct chunk *newest;                  /* under lock */
    _Atomic size_t mapped_bytes;
} arena;

static size_t lines_of(size_t bytes) {
    HAK_ASSERT(bytes != 0 && bytes <= HAK_META_BYTES_MAX);
    size_t lines = (bytes + HAK_CACHE_LINE_BYTES - 1) / HAK_CACHE_LINE_BYTES;
    return lines <= SMALL_LINES ? lines : hak_round_up(lines, LARGE_STEP_LINES);
}

/*
 * Of a large piece that was split, what is left may have some lines more than the size of its list; in the
 * last one any number.
 */
static unsigned list_of(size_t lines) {
    size_t list = lines <= SMALL_LINES ? lines : SMALL_LINES + (lines - SMALL_LINES) / LARGE_STEP_LINES;
    return (unsigned)hak_smaller(list, LISTS - 1);
}

static void put_locked(void *memory, size_t lines) {
    struct free_memory *node = memory;
    struct free_memory **list = &arena.free_lists[list_of(lines)];
    node->lines = lines;
    node->next = *list;
    *list = node;
}

/* The first piece of the list, and what it has too much goes back. NULL if there is none. */
static void *take_from_list(unsigned list, size_t lines) {
    struct free_memory *found = arena.free_lists[list];
    if (found != NULL) {
        size_t spare_lines = found->lines - lines;
        arena.free_lists[list] = found->next;
        if (spare_lines != 0) {
            put_locked((char *)found + lines * HAK_CACHE_LINE_BYTES, spare_lines);
        }
    }
    return found;
}

/* The smallest of the larger pieces. */
static void *split_locked(size_t lines) {
    void *memory = NULL;
    for (unsigned list = list_of(lines) + 1; memory == NULL && list < LISTS; list++) {
        memory = take_from_list(list, lines);
    }
    return memory;
}

/* What is left to bump. The lock is held. */
static size_t room_locked(void) {
    return (size_t)(arena.bump_end - arena.bump);
}

/* NULL when the free lists and the chunk are exhausted. The lock is held. Sets *is_zero for never-used
 * memory. */
static void *take_locked(size_t lines, bool *is_zero) {
    size_t bytes = lines * HAK_CACHE_LINE_BYTES;
    *is_zero = false;
    void *memory = take_from_list(list_of(lines), lines);
    if (memory == NULL && room_locked() >= bytes) {
        *is_zero = true;
        memory = arena.bump;
        arena.bump += bytes;
    }
    return memory != NULL ? memory : split_locked(lines);
}

/* What is left of a chunk when the next one replaces it goes to the free lists. The lock is held. */
static void retire_chunk_locked(void) {
    size_t lines = room_locked() / HAK_CACHE_LINE_BYTES;
    if (lines != 0) {
        put_locked(arena.bump, lines);
    }
}

/* With a guard page at either end. */
static size_t guarded_bytes(size_t bytes) {
    return bytes + 2 * hak_os_page_bytes();
}

/* Memory between two guard pages, that is no chunk yet; NULL when out of memory. */
static void *map_guarded(size_t bytes) {
    size_t page_bytes = hak_os_page_bytes();
    size_t mapped_bytes = guarded_bytes(bytes);
    void *reserved;
    if (hak_os_reserve_aligned(mapped_bytes, page_bytes, &reserved) != 0) {
        return NULL;
    }
    char *memory = (char *)reserved + page_bytes;
    if (hak_os_allow(memory, bytes) != 0) {
        hak_os_drop(reserved, mapped_bytes);
        return NULL;
    }
    (void)hak_atomic_add_relaxed(&arena.mapped_bytes, mapped_bytes); /* relaxed: a statistic */
    return memory;
}

static void unmap_guarded(void *memory, size_t bytes) {
    size_t mapped_bytes = guarded_bytes(bytes);
    hak_os_drop((char *)memory - hak_os_page_bytes(), mapped_bytes);
    (void)hak_atomic_add_relaxed(&arena.mapped_bytes, -mapped_bytes); /* relaxed: a statistic */
}

static void make_chunk_locked(void *memory, size_t bytes) {
    struct chunk *chunk = memory;
    chunk->bytes = bytes;
    chunk->older = arena.newest;
    arena.newest = chunk;
}

void *hak_meta_map_chunk(size_t bytes) {
    size_t chunk_bytes = hak_round_up(bytes, hak_os_page_bytes());
    void *memory = map_guarded(chunk_bytes);
    if (memory != NULL) {
        hak_lock_acquire(&hak_meta_lock);
        make_chunk_locked(memory, chunk_bytes);
        hak_lock_release(&hak_meta_lock);
    }
    return memory;
}

/* The next chunk to bump. Where another thread was first, and so many lines are to be had by now, there is
 * none more. False when out of memory. */
static bool add_chunk(size_t lines) {
    size_t bytes =
        hak_round_up(hak_meta_mapped_bytes() == 0 ? FIRST_CHUNK_BYTES : CHUNK_BYTES, hak_os_page_bytes());
    char *memory = map_guarded(bytes);
    if (memory == NULL) {
        return false;
    }
    hak_lock_acquire(&hak_meta_lock);
    bool is_wanted = room_locked() < lines * HAK_CACHE_LINE_BYTES;
    if (is_wanted) {
        make_chunk_locked(memory, bytes);
        retire_chunk_locked();
        arena.bump = memory + HAK_META_CHUNK_LEAD_LINES * HAK_CACHE_LINE_BYTES;
        arena.bump_end = memory + bytes;
    }
    hak_lock_release(&hak_meta_lock);
    if (!is_wanted) {
        unmap_guarded(memory, bytes);
    }
    return true;
}

void hak_meta_clear(void *memory, size_t bytes) {
    _Atomic uint64_t *words = memory;
#pragma GCC unroll 8
    for (size_t i = 0; i < bytes / sizeof *words; i++) {
        hak_atomic_store_relaxed(&words[i],
                                 (uint64_t)0); /* relaxed: whoever reads it now has a wrong pointer */
    }
}

void *hak_meta_alloc(size_t bytes) {
    size_t lines = lines_of(bytes);
    bool is_zero;
    for (bool is_last = false;;) {
        hak_lock_acquire(&hak_meta_lock);
        void *memory = take_locked(lines, &is_zero);
        hak_lock_release(&hak_meta_lock);
        if (memory != NULL) {
            if (!is_zero) {
                hak_meta_clear(memory, lines * HAK_CACHE_LINE_BYTES);
            }
            return memory;
        }
        if (is_last) {
            return NULL;
        }
        is_last = !add_chunk(lines); /* another thread may have been luckier */
    }
}

void hak_meta_free(void *memory, size_t bytes) {
    size_t lines = lines_of(bytes);
    hak_lock_acquire(&hak_meta_lock);
    put_locked(memory, lines);
    hak_lock_release(&hak_meta_lock);
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
