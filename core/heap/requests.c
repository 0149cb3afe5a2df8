/*
 * requests.c - see requests.h.
 */
#include "heap/requests.h"
#include "base/assert.h"
#include "base/bits.h"
#include "conf/options.h"
#include "heap/checked.h"
#include "heap/diagnose.h"
#include "heap/fill.h"
#include "heap/front.h"
#include "heap/reclaim.h"
#include "heap/sampled.h"
#include "large/large.h"
#include <errno.h>
#include <string.h>

/*
 * Whether the free gate would take the block; if so, the row of its class and its header. In checked mode and
 * the like it takes none, nor NULL.
 */
HAK_ALWAYS_INLINE bool is_own_live(const void *block, size_t *row, hak_header **header) {
    struct hak_at at = hak_registry_at(hak_registry_at_hand(), block);
    *row = hak_own_row(at.word);
    return HAK_LIKELY(*row <= HAK_LAST_SLAB_ROW) && HAK_LIKELY(hak_first_is_live(at, *row, block, header));
}

/* ---- aligned ----------------------------------------------------------------------------------- */

size_t hak_request_class_bytes(size_t align, size_t bytes) {
    if (HAK_UNLIKELY(bytes > HAK_MID_MAX_BYTES || align > HAK_MID_MAX_BYTES)) {
        return 0;
    }
    /*
     * Blocks start at multiples of their size from a 64 KiB boundary. The largest class is a multiple of each
     * alignment, so the size that is rounded up fits it; and of the classes above a multiple the lowest is
     * one too, or, where that is one for a power of two with a header, the next (unit/meta asks all).
     */
    unsigned class_idx = hak_class_of(hak_round_up(bytes + (bytes == 0), align));
    class_idx += !hak_is_aligned(hak_class_block_bytes[class_idx], align);
    size_t class_bytes = hak_class_block_bytes[class_idx];
    HAK_ASSERT(hak_is_aligned(class_bytes, align));
    return class_bytes;
}

static HAK_NOINLINE void *large_aligned(size_t align, size_t bytes) {
    (void)hak_heap_attach(); /* starts the process's heap if this is its first allocation */
    if (bytes <= HAK_BLOCK_BYTES_MAX) {
        bool is_zero;
        size_t at_least_one = bytes + (bytes == 0);
        void *block = hak_large_alloc(at_least_one, align, &is_zero);
        if (block == NULL) {
            hak_reclaim_everything(hak_heap_attach());
            block = hak_large_alloc(at_least_one, align, &is_zero);
        }
        if (block != NULL) {
            hak_fill_new(block, bytes);
            return block;
        }
    }
    errno = ENOMEM;
    return NULL;
}

/* A slab's blocks are aligned as their size is, but guests are not. */
static HAK_NOINLINE void *in_place_of_guest(void *guest, size_t class_bytes) {
    hak_free_gate(guest, "free");
    return hak_alloc_no_guest(class_bytes);
}

HAK_NOINLINE void *hak_request_aligned_slow(size_t align, size_t bytes) {
    if (align <= HAK_ALIGN_BYTES) {
        return hak_alloc_gate(bytes);
    }
    if (hak_is_checked()) {
        return hak_checked_alloc(bytes, align, false);
    }
    size_t class_bytes = hak_request_class_bytes(align, bytes);
    if (HAK_UNLIKELY(class_bytes == 0)) {
        return large_aligned(align, bytes);
    }
    void *block = hak_alloc_gate(class_bytes);
    return HAK_LIKELY(hak_is_aligned((uintptr_t)block, align)) ? block
                                                               : in_place_of_guest(block, class_bytes);
}

void *hak_request_aligned(size_t align, size_t bytes) {
    void *at_hand = hak_take_aligned(align, bytes);
    if (HAK_LIKELY(at_hand != NULL)) {
        return at_hand;
    }
    return hak_request_aligned_slow(align, bytes);
}

/* ---- realloc ----------------------------------------------------------------------------------- */

/* Stays where it is: it fits, and at least half of the block is still used or no smaller one would do. */
static bool fits_in_place(unsigned class_idx, size_t bytes) {
    size_t usable_bytes = hak_class_block_bytes[class_idx];
    return bytes <= usable_bytes && (bytes >= usable_bytes / 2 || hak_class_of(bytes) == class_idx);
}

/* Where there is no memory for another block: one that is to be smaller stays as it is. */
static HAK_COLD void *stay(void *block, size_t old_bytes, size_t bytes, int saved_errno) {
    if (bytes > old_bytes) {
        return NULL;
    }
    errno = saved_errno;
    return block;
}

/* What stay() would put back: asked where the block is to be smaller alone, since that is a call. */
static int errno_if_smaller(size_t old_bytes, size_t bytes) {
    return bytes <= old_bytes ? errno : 0;
}

void *hak_request_move(const char *function, void *block, size_t old_bytes, size_t bytes) {
    int saved_errno = errno_if_smaller(old_bytes, bytes);
    void *moved = hak_alloc_gate(bytes);
    if (HAK_UNLIKELY(moved == NULL)) {
        return stay(block, old_bytes, bytes, saved_errno);
    }
    memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
    hak_free_gate(block, function);
    return moved;
}

/* Nothing of the old contents may stay behind: what is cut off goes first, from the first OS page that is not
 * asked for, whichever kind of block it is; what is copied the large floor wipes. */
static void wipe_tail(void *block, size_t old_bytes, size_t bytes) {
    size_t left_bytes = hak_os_page_round(bytes);
    if (left_bytes < old_bytes) {
        hak_fill_freed((char *)block + left_bytes, old_bytes - left_bytes);
    }
}

static void *realloc_large(const char *function, void *block, hak_word word, size_t bytes) {
    (void)hak_heap_attach(); /* as in hak_defrag_helps(): what is cut off may go back by the hands of this
                                thread */
    if (bytes <= HAK_MID_MAX_BYTES) {
        size_t old_bytes = hak_large_usable(function, block, word);
        /* One that is hardly shorter stays as it is: its end would be a hole that fits nothing. */
        bool stays = bytes <= old_bytes && bytes >= old_bytes - old_bytes / 4;
        return stays ? block : hak_request_move(function, block, old_bytes, bytes);
    }
    if (HAK_UNLIKELY(hak_options.zero_on_free)) {
        wipe_tail(block, hak_large_usable(function, block, word), bytes);
    }
    void *moved = hak_large_realloc(function, block, word, bytes);
    if (moved == NULL) {
        hak_reclaim_everything(hak_heap_attach());
        moved = hak_large_realloc(function, block, word, bytes);
    }
    if (moved == NULL) {
        errno = ENOMEM;
    }
    return moved;
}

/* What hak_request_realloc() does not do itself. */
static HAK_NOINLINE void *realloc_far(const char *function, void *block, size_t bytes) {
    if (hak_is_checked()) {
        return hak_checked_realloc(function, block, bytes);
    }
    if (bytes == 0) {
        hak_free_gate(block, function);
        return NULL;
    }
    hak_word word = hak_registry_word(block);
    bool is_large = hak_is_large(block, word);
    unsigned class_idx;
    if (!is_large && hak_live_header_or_die(function, block, HAK_FAULT_USE_OF_FREED, &class_idx) == NULL) {
        return hak_word_kind(word) == HAK_KIND_GUARDED ? hak_sampled_realloc(function, block, bytes)
                                                       : hak_foreign.realloc(block, bytes);
    }
    if (bytes > HAK_BLOCK_BYTES_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    if (is_large) {
        return realloc_large(function, block, word, bytes);
    }
    return fits_in_place(class_idx, bytes)
               ? block
               : hak_request_move(function, block, hak_class_block_bytes[class_idx], bytes);
}

/* Apart, so that the other ways need no frame. */
static HAK_NOINLINE void *move_own(const char *function, void *block, hak_header *header, size_t row,
                                   size_t bytes) {
    size_t usable_bytes = hak_class_block_bytes[row - HAK_HEADER_LIVE];
    int saved_errno = errno_if_smaller(usable_bytes, bytes);
    void *moved = hak_alloc_gate(bytes);
    if (HAK_UNLIKELY(moved == NULL)) {
        return stay(block, usable_bytes, bytes, saved_errno);
    }
    memcpy(moved, block, usable_bytes < bytes ? usable_bytes : bytes);
    hak_push_own(block, header, row, function);
    return moved;
}

/* A block that the free gate would take and a size of malloc's hit path. */
void *hak_request_realloc(const char *function, void *block, size_t bytes) {
    if (block == NULL) {
        return hak_alloc_gate(bytes);
    }
    hak_header *header;
    size_t row;
    if (HAK_UNLIKELY(bytes - 1 >= HAK_MID_MAX_BYTES) || HAK_UNLIKELY(!is_own_live(block, &row, &header))) {
        return realloc_far(function, block, bytes);
    }
    if (HAK_LIKELY(fits_in_place((unsigned)row - HAK_HEADER_LIVE, bytes))) {
        return block;
    }
    return move_own(function, block, header, row, bytes);
}

/* ---- questions --------------------------------------------------------------------------------- */

size_t hak_request_usable(const char *function, const void *block) {
    hak_header *header;
    size_t row;
    if (HAK_LIKELY(is_own_live(block, &row, &header))) {
        return hak_class_block_bytes[row - HAK_HEADER_LIVE];
    }
    if (block == NULL) {
        return 0;
    }
    return hak_is_checked() ? hak_checked_usable(function, block) : hak_usable_plain(function, block);
}

size_t hak_usable_plain(const char *function, const void *block) {
    hak_word word = hak_registry_word(block);
    if (hak_is_large(block, word)) {
        return hak_large_usable(function, block, word);
    }
    unsigned class_idx;
    if (hak_live_header_or_die(function, block, HAK_FAULT_USE_OF_FREED, &class_idx) == NULL) {
        return hak_word_kind(word) == HAK_KIND_GUARDED ? hak_checked_usable(function, block)
                                                       : hak_foreign.usable_size((void *)(uintptr_t)block);
    }
    return hak_class_block_bytes[class_idx];
}

bool hak_request_owns(const void *pointer) {
    return hak_keeps_records() ? hak_checked_owns(pointer) : hak_owns_plain(pointer);
}

bool hak_owns_plain(const void *pointer) {
    hak_word word = hak_registry_word(pointer);
    if (hak_is_large(pointer, word)) {
        return hak_large_owns(pointer, word);
    }
    if (hak_word_kind(word) != HAK_KIND_SLAB) {
        return false;
    }
    unsigned class_idx;
    struct block_place place = hak_place_in(word, pointer);
    return hak_place_class(&place, &class_idx);
}

size_t hak_request_good_size(size_t bytes) {
    if (hak_is_checked()) {
        return bytes; /* behind it begins the red zone */
    }
    if (bytes <= HAK_MID_MAX_BYTES) {
        return hak_class_block_bytes[hak_class_of(bytes)];
    }
    return hak_large_good_size(bytes);
}
