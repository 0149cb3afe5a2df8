/*
 * large.c - see large.h: which of the two kinds a block is, and what a wrong pointer is.
 */
#include "large/large.h"
#include "conf/options.h"
#include "large/extent.h"
#include "large/fault.h"
#include "large/mapped.h"
#include "large/parked.h"
#include "large/run.h"
#include "os/os.h"
#include "slab/superslab.h"
#include <string.h>

#define MAP_THRESHOLD_BYTES ((size_t)1024 * 1024)

/* A block that shrinks to so much is copied. */
#define SHRINK_COPY_BYTES_MAX ((size_t)512 * 1024)

/* Pages of a block that are looked at before it is copied or zeroed. */
#define SAMPLES 8u

/* From here on a block for calloc() that seems to be untouched is given back rather than zeroed. */
#define PURGED_TO_ZERO_BYTES_MIN ((size_t)8 * 1024 * 1024)

HAK_READ_MOSTLY _Atomic size_t hak_large_map_threshold = MAP_THRESHOLD_BYTES;

/* ---- allocation ---- */

/* A fresh block of either kind and what is known of its bytes. */
struct fresh {
    void *block;
    bool is_run;
    struct hak_run run; /* of a run: with its dirty pages */
    size_t dirty_bytes; /* of a mapping: bytes from here on are zero */
};

/* Whether a run is what a block of so many bytes is first tried as. */
static bool is_run_length(size_t bytes) {
    /* relaxed: any value stored meanwhile is a right one */
    return bytes < hak_atomic_load_relaxed(&hak_large_map_threshold);
}

static bool alloc_run(size_t bytes, size_t align, struct fresh *fresh) {
    if (!hak_run_can_hold(bytes, align) || !hak_run_alloc(bytes, align, &fresh->run)) {
        return false;
    }
    fresh->is_run = true;
    fresh->block = hak_extent_address(fresh->run.extent, fresh->run.page, hak_os_page_bytes());
    return true;
}

static bool alloc_mapped(size_t bytes, size_t align, bool to_be_zeroed, struct fresh *fresh) {
    fresh->is_run = false;
    fresh->block = hak_mapped_alloc(bytes, align, to_be_zeroed, &fresh->dirty_bytes);
    return fresh->block != NULL;
}

/* What the size asks for first; when that cannot be had, the other kind. False: out of memory. */
static bool alloc_fresh(size_t bytes, size_t align, bool to_be_zeroed, struct fresh *fresh) {
    if (bytes > HAK_BLOCK_BYTES_MAX) {
        return false;
    }
    if (is_run_length(bytes)) {
        return alloc_run(bytes, align, fresh) || alloc_mapped(bytes, align, to_be_zeroed, fresh);
    }
    /* A run wastes most of an extent here: first, empty SuperSlabs give up their address space. */
    return alloc_mapped(bytes, align, to_be_zeroed, fresh) ||
           (hak_superslab_trim(0) != 0 && alloc_mapped(bytes, align, to_be_zeroed, fresh)) ||
           alloc_run(bytes, align, fresh);
}

void *hak_large_alloc(size_t bytes, size_t align, bool *is_zero) {
    struct fresh fresh;
    void *parked = align <= hak_os_page_bytes() ? hak_parked_take(bytes) : NULL;
    if (parked != NULL) {
        *is_zero = false;
        return parked;
    }
    if (!alloc_fresh(bytes, align, false, &fresh)) {
        return NULL;
    }
    *is_zero = fresh.is_run ? fresh.run.dirty_pages == 0 : fresh.dirty_bytes == 0;
    return fresh.block;
}

void *hak_large_alloc_other(size_t bytes) {
    struct fresh fresh;
    void *parked = hak_parked_take_other(bytes);
    if (parked != NULL) {
        return parked;
    }
    return alloc_fresh(bytes, HAK_ALIGN_BYTES, false, &fresh) ? fresh.block : NULL;
}

static bool holds_anything(const char *page) {
    for (size_t offset = 0; offset < hak_os_page_bytes(); offset += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, page + offset, sizeof word);
        if (word != 0) {
            return true;
        }
    }
    return false;
}

/* How many of SAMPLES pages spread over the block hold something. What was never touched has no pages. */
static unsigned filled_samples(const void *p, size_t bytes) {
    size_t step_bytes = hak_round_down(bytes / SAMPLES, hak_os_page_bytes());
    unsigned filled = 0;
    for (unsigned i = 0; i < SAMPLES; i++) {
        filled += holds_anything((const char *)p + i * step_bytes);
    }
    return filled;
}

/*
 * Zeroing gives pages to what the last owner never touched. Where that seems to be most of a long block, it
 * goes back as a whole: a few pages more to fault in, but megabytes less. Short blocks are zeroed as fast as
 * that.
 */
static void zero_mapped(void *block, size_t bytes) {
    bool is_sparse = bytes >= PURGED_TO_ZERO_BYTES_MIN && filled_samples(block, bytes) <= SAMPLES / 4;
    if (!is_sparse || hak_os_purge(block, hak_os_page_round(bytes)) != 0) {
        memset(block, 0, bytes);
    }
}

void *hak_large_calloc(size_t bytes) {
    struct fresh fresh;
    void *parked = hak_parked_take(bytes);
    if (parked != NULL) {
        return memset(parked, 0, bytes);
    }
    if (!alloc_fresh(bytes, HAK_ALIGN_BYTES, true, &fresh)) {
        return NULL;
    }
    if (fresh.is_run) {
        hak_run_zero(&fresh.run, bytes);
    } else if (fresh.dirty_bytes != 0) {
        zero_mapped(fresh.block, hak_smaller(fresh.dirty_bytes, bytes));
    }
    return fresh.block;
}

size_t hak_large_good_size(size_t bytes) {
    if (bytes > HAK_BLOCK_BYTES_MAX) {
        return bytes;
    }
    bool is_run = is_run_length(bytes) && bytes <= HAK_SUPERSLAB_BYTES;
    return is_run ? hak_os_page_round(bytes) : hak_mapping_round(bytes);
}

/* ---- freeing and questions: the record decides under the lock, a wrong pointer never returns ---- */

static bool park(struct hak_extent *extent, void *p) {
    void *evicted;
    bool is_parked = hak_parked_put(extent, p, &evicted);
    if (HAK_UNLIKELY(evicted != NULL)) {
        hak_run_free_parked(evicted);
    }
    return is_parked;
}

void hak_large_free(const char *function, void *p, hak_word word) {
    enum hak_unit_kind kind = hak_word_kind(word);
    if (kind == HAK_KIND_EXTENT && park(hak_word_address(word), p)) {
        return;
    }
    bool is_freed = (kind == HAK_KIND_EXTENT && hak_run_free(hak_word_address(word), p)) ||
                    (kind == HAK_KIND_MAPPED && hak_mapped_free(hak_word_address(word), p));
    if (HAK_UNLIKELY(!is_freed)) {
        hak_large_fault(function, HAK_FAULT_DOUBLE_FREE, p);
    }
}

/* Bytes of the live block that starts exactly at `p`; 0 when there is none. */
static size_t live_bytes_at(const void *p, hak_word word) {
    switch (hak_word_kind(word)) {
    case HAK_KIND_EXTENT:
        return hak_run_bytes(hak_word_address(word), p);
    case HAK_KIND_MAPPED:
        return hak_mapped_bytes(hak_word_address(word), p);
    default:
        return 0;
    }
}

size_t hak_large_usable(const char *function, const void *p, hak_word word) {
    size_t bytes = live_bytes_at(p, word);
    if (HAK_UNLIKELY(bytes == 0)) {
        hak_large_fault(function, HAK_FAULT_USE_OF_FREED, p);
    }
    return bytes;
}

bool hak_large_owns(const void *p, hak_word word) {
    return live_bytes_at(p, word) != 0;
}

/* ---- realloc ---- */

/* *is_cold: the copy lies in memory that had no pages yet. */
static void *copy_to(const char *function, void *p, hak_word word, size_t old_bytes, size_t bytes,
                     bool *is_cold) {
    void *block = hak_large_alloc(bytes, HAK_ALIGN_BYTES, is_cold);
    if (block != NULL) {
        memcpy(block, p, old_bytes < bytes ? old_bytes : bytes);
        if (HAK_UNLIKELY(hak_options.zero_on_free)) {
            memset(p, 0, old_bytes);
        }
        hak_large_free(function, p, word);
    }
    return block;
}

static void *copy_block(const char *function, void *p, hak_word word, size_t old_bytes, size_t bytes) {
    bool is_cold;
    return copy_to(function, p, word, old_bytes, bytes, &is_cold);
}

/* The copy of a run that is better copied, or NULL: a copy would have the pages that the run has not. */
static void *copy_run(const char *function, void *p, hak_word word, size_t old_bytes, size_t bytes) {
    bool is_cold;
    void *block = filled_samples(p, old_bytes) > SAMPLES / 2
                      ? copy_to(function, p, word, old_bytes, bytes, &is_cold)
                      : NULL;
    if (block != NULL) {
        hak_run_note_copied(is_cold);
    }
    return block;
}

static void *realloc_run(const char *function, void *p, hak_word word, size_t bytes) {
    struct hak_extent *extent = hak_word_address(word);
    size_t old_bytes = 0;
    enum hak_copy copy = is_run_length(bytes) ? HAK_COPY_RUN : HAK_COPY_MAPPED;
    enum hak_run_fit fit = hak_run_resize(extent, p, bytes, copy, &old_bytes);
    void *block = fit == HAK_RUN_COPY ? copy_run(function, p, word, old_bytes, bytes) : NULL;
    if (block != NULL) {
        return block;
    }
    if (fit == HAK_RUN_COPY) {
        fit = hak_run_resize(extent, p, bytes, HAK_COPY_NONE, &old_bytes);
    }
    if (fit == HAK_RUN_NOT_LIVE) {
        hak_large_fault(function, HAK_FAULT_USE_OF_FREED, p);
    }
    if (fit == HAK_RUN_RESIZED) {
        return p;
    }
    if (fit == HAK_RUN_HELD) {
        block = hak_mapped_adopt(p, old_bytes, bytes, copy == HAK_COPY_RUN);
        hak_run_moved(extent, p, block != NULL);
    }
    return block != NULL ? block : copy_block(function, p, word, old_bytes, bytes);
}

/*
 * What is to be a run and at most half as long is copied, so that the mapping is whole for the next block of
 * its length: it is what programs read files and messages into before they know their lengths.
 */
static bool is_shrunk_by_copy(const void *p, size_t old_bytes, size_t bytes) {
    return bytes <= SHRINK_COPY_BYTES_MAX && bytes <= old_bytes / 2 && is_run_length(bytes) &&
           filled_samples(p, bytes) > SAMPLES / 2;
}

static void *realloc_mapped(const char *function, void *p, hak_word word, size_t bytes) {
    struct hak_mapping *mapping = hak_word_address(word);
    size_t old_bytes = bytes <= SHRINK_COPY_BYTES_MAX ? hak_mapped_bytes(mapping, p) : 0;
    void *block =
        is_shrunk_by_copy(p, old_bytes, bytes) ? copy_block(function, p, word, old_bytes, bytes) : NULL;
    if (block != NULL) {
        return block;
    }
    bool is_copy_better = false;
    block = hak_mapped_resize(mapping, p, bytes, &is_copy_better, &old_bytes);
    if (block == NULL && old_bytes == 0) {
        hak_large_fault(function, HAK_FAULT_USE_OF_FREED, p);
    }
    if (is_copy_better && filled_samples(p, old_bytes) > SAMPLES / 2) {
        block = copy_block(function, p, word, old_bytes, bytes);
    }
    if (block == NULL && (is_copy_better || hak_mapped_make_way(old_bytes, bytes))) {
        block = hak_mapped_resize(mapping, p, bytes, NULL, &old_bytes);
    }
    return block != NULL ? block : copy_block(function, p, word, old_bytes, bytes);
}

void *hak_large_realloc(const char *function, void *p, hak_word word, size_t bytes) {
    if (hak_word_kind(word) == HAK_KIND_LARGE_FREED) {
        hak_large_fault(function, HAK_FAULT_USE_OF_FREED, p);
    }
    if (bytes > HAK_BLOCK_BYTES_MAX) {
        (void)hak_large_usable(function, p, word); /* ends the program for a wrong pointer */
        return NULL;
    }
    return hak_word_kind(word) == HAK_KIND_EXTENT ? realloc_run(function, p, word, bytes)
                                                  : realloc_mapped(function, p, word, bytes);
}
