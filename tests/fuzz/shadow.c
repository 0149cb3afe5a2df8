/*
 * shadow.c - see shadow.h.
 */
#include "fuzz/shadow.h"
#include "check/zones.h"
#include "fuzz/kernel.h"
#include "fuzz/own.h"
#include "fuzz/waiting.h"
#include "heap/front.h"
#include "meta/registry.h"

#include <stdlib.h>
#include <string.h>

#define WHOLE_BYTES    512u /* blocks up to this are filled from end to end */
#define HEAD_BYTES     128u
#define TAIL_BYTES     64u
#define PAGE_BYTES     4096u
#define PAGES_MAX      6u   /* so many page starts are written at most */
#define ZERO_PAGES_MAX 128u /* and so many looked at for zeros */
#define PAIRS_MAX      96u  /* with more blocks, overlaps are looked for in shadow_check_all() alone */
#define PRIME          0x9E3779B97F4A7C15u

struct shadow_block shadow_blocks[SHADOW_SLOTS];
struct shadow_sums shadow_sums;
static uint64_t next_seed = 1;

/* The offset of the next word to write or to look at after the one at `offset`; `bytes` or more at the end.
 */
static size_t next_word(size_t offset, size_t bytes, size_t pages_max) {
    offset += sizeof(uint64_t);
    if (bytes <= WHOLE_BYTES || offset < HEAD_BYTES || offset > bytes - TAIL_BYTES) {
        return offset;
    }
    size_t pages = bytes / PAGE_BYTES;
    size_t step_bytes = (pages / pages_max + 1) * PAGE_BYTES;
    size_t next = (offset + step_bytes - 1) / step_bytes * step_bytes;
    return next < bytes - TAIL_BYTES ? next : bytes - TAIL_BYTES;
}

static uint64_t word_of(uint64_t seed, size_t offset) {
    return (seed + offset) * PRIME;
}

static void fill(const struct shadow_block *block) {
    for (size_t at = 0; at + sizeof(uint64_t) <= block->usable_bytes;
         at = next_word(at, block->usable_bytes, PAGES_MAX)) {
        uint64_t word = word_of(block->seed, at);
        memcpy(block->start + at, &word, sizeof word);
    }
}

/* Looks at what was written to the block when it was as `block` says, up to `limit_bytes`. */
static void check_contents(const struct shadow_block *block, const unsigned char *start, size_t limit_bytes) {
    for (size_t at = 0; at + sizeof(uint64_t) <= limit_bytes;
         at = next_word(at, block->usable_bytes, PAGES_MAX)) {
        uint64_t word;
        memcpy(&word, start + at, sizeof word);
        FUZZ_CHECK(word == word_of(block->seed, at));
    }
}

static void check_apart(const struct shadow_block *block) {
    for (unsigned i = 0; i < SHADOW_SLOTS; i++) {
        const struct shadow_block *other = &shadow_blocks[i];
        if (other != block && other->start != NULL) {
            FUZZ_CHECK(other->start + other->usable_bytes <= block->start ||
                       block->start + block->usable_bytes <= other->start);
        }
    }
}

static size_t usable_bytes_of(void *start) {
    size_t usable_bytes = hak_usable_size(start);
    FUZZ_CHECK(own_malloc_usable_size(start) == usable_bytes);
    return usable_bytes;
}

/* How many bytes of red zone behind the block can be looked at: it may end with its page. */
static size_t zone_bytes_of(const struct shadow_block *block) {
    uintptr_t end = (uintptr_t)block->start + block->usable_bytes;
    size_t page_rest_bytes = (PAGE_BYTES - end % PAGE_BYTES) % PAGE_BYTES;
    return page_rest_bytes < HAK_ZONE_BYTES_MIN ? page_rest_bytes : HAK_ZONE_BYTES_MIN;
}

static void check_zone(const struct shadow_block *block) {
    const unsigned char *end = block->start + block->usable_bytes;
    size_t zone_bytes = fuzz_is_checked() ? zone_bytes_of(block) : 0;
    for (size_t i = 0; i < zone_bytes; i++) {
        FUZZ_CHECK(end[i] == HAK_FILL_RED);
    }
}

void shadow_damage(const struct shadow_block *block, size_t offset) {
    size_t zone_bytes = zone_bytes_of(block);
    if (zone_bytes != 0) {
        unsigned char *byte = block->start + block->usable_bytes + offset % zone_bytes;
        *byte ^= 0x40;
        waiting_expect_report("write past the end of", block->start, block->usable_bytes);
        *byte ^= 0x40;
    }
}

static size_t counted_bytes_of(const struct shadow_block *block) {
    bool is_guarded = hak_word_kind(hak_registry_word(block->start)) == HAK_KIND_GUARDED;
    return is_guarded ? block->usable_bytes : hak_usable_plain("fuzz", block->start);
}

/* The block is there and as long as it says; writes it down. */
static void enter(struct shadow_block *block, void *start, size_t bytes, size_t align) {
    *block = (struct shadow_block){.start = start,
                                   .bytes = bytes,
                                   .usable_bytes = usable_bytes_of(start),
                                   .align = align < HAK_ALIGN_BYTES ? HAK_ALIGN_BYTES : align,
                                   .seed = next_seed};
    next_seed += PRIME;
    block->counted_bytes = counted_bytes_of(block);
    FUZZ_CHECK(block->usable_bytes >= bytes);
    FUZZ_CHECK(hak_owns(start));
    shadow_sums.blocks++;
    shadow_sums.usable_bytes += block->usable_bytes;
    shadow_sums.counted_bytes += block->counted_bytes;
    shadow_sums.addresses += (uintptr_t)start * block->usable_bytes;
    if (shadow_sums.blocks <= PAIRS_MAX) {
        check_apart(block);
    }
    waiting_check_apart(block->start, block->usable_bytes);
    check_zone(block);
    fill(block);
}

static void leave(struct shadow_block *block) {
    shadow_sums.blocks--;
    shadow_sums.usable_bytes -= block->usable_bytes;
    shadow_sums.counted_bytes -= block->counted_bytes;
    shadow_sums.addresses -= (uintptr_t)block->start * block->usable_bytes;
    block->start = NULL;
}

void shadow_enter(unsigned slot, void *start, size_t bytes, size_t align) {
    FUZZ_CHECK((uintptr_t)start % 16 == 0);
    FUZZ_CHECK(align == 0 || (uintptr_t)start % align == 0);
    enter(&shadow_blocks[slot], start, bytes, align);
}

void shadow_forget(unsigned slot) {
    leave(&shadow_blocks[slot]);
}

void *shadow_remove(unsigned slot) {
    struct shadow_block *block = &shadow_blocks[slot];
    void *start = block->start;
    shadow_check(block);
    leave(block);
    return start;
}

void shadow_resized(unsigned slot, void *start, size_t bytes) {
    struct shadow_block before = shadow_blocks[slot];
    FUZZ_CHECK((uintptr_t)start % 16 == 0);
    check_contents(&before, start, before.bytes < bytes ? before.bytes : bytes);
    leave(&shadow_blocks[slot]);
    enter(&shadow_blocks[slot], start, bytes, start == before.start ? before.align : HAK_ALIGN_BYTES);
}

void shadow_check(const struct shadow_block *block) {
    FUZZ_CHECK(usable_bytes_of(block->start) == block->usable_bytes);
    check_contents(block, block->start, block->usable_bytes);
    check_zone(block);
}

void shadow_check_zero(const void *start, size_t bytes) {
    const unsigned char *byte = start;
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at = next_word(at, bytes, ZERO_PAGES_MAX)) {
        uint64_t word;
        memcpy(&word, byte + at, sizeof word);
        FUZZ_CHECK(word == 0);
    }
    for (size_t at = bytes / sizeof(uint64_t) * sizeof(uint64_t); at < bytes; at++) {
        FUZZ_CHECK(byte[at] == 0);
    }
}

static int by_start(const void *left, const void *right) {
    const unsigned char *a = (*(const struct shadow_block *const *)left)->start;
    const unsigned char *b = (*(const struct shadow_block *const *)right)->start;
    return (a > b) - (a < b);
}

void shadow_check_all(void) {
    static const struct shadow_block *sorted[SHADOW_SLOTS];
    size_t count = 0;
    for (unsigned i = 0; i < SHADOW_SLOTS; i++) {
        if (shadow_blocks[i].start != NULL) {
            shadow_check(&shadow_blocks[i]);
            sorted[count++] = &shadow_blocks[i];
        }
    }
    FUZZ_CHECK(count == shadow_sums.blocks);
    qsort(sorted, count, sizeof sorted[0], by_start);
    for (size_t i = 1; i < count; i++) {
        FUZZ_CHECK(sorted[i - 1]->start + sorted[i - 1]->usable_bytes <= sorted[i]->start);
    }
}

int shadow_find_around(const void *pointer) {
    uintptr_t address = (uintptr_t)pointer;
    for (unsigned i = 0; i < SHADOW_SLOTS; i++) {
        uintptr_t start = (uintptr_t)shadow_blocks[i].start;
        if (start != 0 && address >= start &&
            (address == start ||
             address - start < shadow_blocks[i].usable_bytes)) { /* it may have no bytes */
            return (int)i;
        }
    }
    return -1;
}

int shadow_find(const void *pointer) {
    int slot = shadow_find_around(pointer);
    return slot >= 0 && shadow_blocks[slot].start == pointer ? slot : -1;
}
