/*
 * sparse_kit.h - what the suites of thin and ragged slabs share: 400 slabs of 512-byte blocks, which are
 * filled and freed but for some, and a count of the calls that give memory back.
 *
 * Included once by each suite, since it defines madvise: the archive calls this definition.
 */
#ifndef HAK_TESTS_UNIT_SPARSE_KIT_H
#define HAK_TESTS_UNIT_SPARSE_KIT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hakmem.h"
#include "support/test.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK_BYTES     512u
#define BLOCKS_PER_SLAB 128u
#define SLABS           400u
#define BLOCKS          (SLABS * BLOCKS_PER_SLAB)

static unsigned purge_calls;
static void (*during_purge)(void); /* called in each */

int madvise(void *address, size_t bytes, int advice) {
    purge_calls += advice == MADV_DONTNEED;
    if (during_purge != NULL && advice == MADV_DONTNEED) {
        during_purge();
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

static void *blocks[BLOCKS];

static inline void fill(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = hak_malloc(BLOCK_BYTES);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, BLOCK_BYTES);
    }
}

/* Frees all but every `every`-th block of the run of addresses in which they were handed out; 0: all. */
static inline void free_but_every(unsigned every) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (every == 0 || i % every != 0) {
            hak_free(blocks[i]);
            blocks[i] = NULL;
        }
    }
}

#endif
