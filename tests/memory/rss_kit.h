/*
 * rss_kit.h - what the suites of this folder share: reading the resident size without allocating, filling
 * memory with blocks, and freeing them in random order.
 *
 * The resident size is the kernel's exact sum over the page tables (smaps_rollup), so pages that are only
 * marked as free to take (LazyFree) count in full. Arrays of pointers have mappings of their own, which are
 * unmapped before anything is measured.
 */
#ifndef HAK_TESTS_MEMORY_RSS_KIT_H
#define HAK_TESTS_MEMORY_RSS_KIT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/rng.h"
#include "support/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The number behind `name` in a file of /proc, in bytes when it is in kB; allocates nothing. */
static inline size_t proc_bytes(const char *path, const char *name) {
    static _Thread_local char text[64 * KIB];
    size_t used = 0;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    while (used < sizeof text - 1 && (got = read(fd, text + used, sizeof text - 1 - used)) > 0) {
        used += (size_t)got;
    }
    text[used] = '\0';
    close(fd);
    const char *at = strstr(text, name);
    CHECK(at != NULL);
    size_t kib = 0;
    for (at += strcspn(at, "0123456789"); *at >= '0' && *at <= '9'; at++) {
        kib = kib * 10 + (size_t)(*at - '0');
    }
    return kib * KIB;
}

static inline size_t rss_bytes(void) {
    return proc_bytes("/proc/self/smaps_rollup", "Rss:");
}

static inline uint64_t clock_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Memory of the test's own, outside the allocator. */
static inline void *map_own(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static inline void shuffle(void **blocks, size_t count, uint64_t seed) {
    struct rng rng = rng_seeded(seed);
    rng_shuffle(&rng, blocks, count);
}

/* Allocates `count` blocks and writes to every byte of them. */
static inline void fill_blocks(void **blocks, size_t count, size_t block_bytes) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = malloc(block_bytes);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, block_bytes);
    }
}

/* The same with sizes from 16 to most_bytes, evenly. */
static inline void fill_blocks_mixed(void **blocks, size_t count, size_t most_bytes, uint64_t seed) {
    struct rng rng = rng_seeded(seed);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 16 + rng_below(&rng, most_bytes - 15);
        blocks[i] = malloc(bytes);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, bytes);
    }
}

/* Frees all but every keep_every-th block (0: all), and moves those that stay to the front. Returns their
 * number. */
static inline size_t free_blocks(void **blocks, size_t count, size_t keep_every) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (keep_every != 0 && i % keep_every == 0) {
            blocks[kept++] = blocks[i];
        } else {
            free(blocks[i]);
        }
    }
    return kept;
}

static inline int compare_numbers(const void *left, const void *right) {
    uintptr_t a = *(const uintptr_t *)left;
    uintptr_t b = *(const uintptr_t *)right;
    return (a > b) - (a < b);
}

/* The OS pages that hold a byte of a live block, in bytes: what nobody can give back. Overwrites the array.
 */
static inline size_t forced_bytes(void **blocks, size_t count, size_t block_bytes) {
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t pages = 0;
    uintptr_t next = 0;
    uintptr_t *addresses = (uintptr_t *)blocks;
    qsort(addresses, count, sizeof *addresses, compare_numbers);
    for (size_t i = 0; i < count; i++) {
        uintptr_t first = addresses[i] / page_bytes;
        uintptr_t end = (addresses[i] + block_bytes - 1) / page_bytes + 1;
        first = first > next ? first : next;
        pages += end > first ? end - first : 0;
        next = end > next ? end : next;
    }
    return pages * page_bytes;
}

#endif
