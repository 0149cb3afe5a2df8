/*
 * waiting.c - see waiting.h.
 */
#include "fuzz/waiting.h"
#include "check/zones.h"
#include "conf/options.h"
#include "fuzz/kernel.h"
#include "hakmem.h"
#include "heap/front.h"
#include "heap/requests.h"

#include <stdio.h>
#include <string.h>

#define WAITING_MAX    256u
#define PAGE_BYTES     4096u
#define RECORD_BYTES   (2 * sizeof(struct hak_record)) /* counted for each that has no guard pages */
#define SAID_BYTES_MAX 4096u

/* Freed blocks, the latest at next - 1. */
static struct waiting {
    unsigned char *start;
    size_t bytes;
    size_t held_bytes; /* at most: of the quarantine's bound */
    bool is_in_slab;
} ring[WAITING_MAX];
static unsigned next, count;
static uint64_t failures_seen;

unsigned fuzz_start_modes(void) {
    static unsigned modes;
    static bool is_known;
    if (!is_known) {
        modes = hak_front_modes();
        is_known = true;
    }
    return modes;
}

bool fuzz_is_checked(void) {
    return (fuzz_start_modes() & HAK_FRONT_CHECKED) != 0;
}

bool fuzz_is_sampling(void) {
    return (fuzz_start_modes() & HAK_FRONT_SAMPLED) != 0;
}

static struct waiting *at(unsigned back) {
    return &ring[(next + WAITING_MAX - 1 - back) % WAITING_MAX];
}

/* How many of the latest certainly wait. */
static unsigned certain(void) {
    size_t bytes_max = (size_t)hak_options.check_quarantine_mb << 20;
    size_t held_bytes = 0;
    if (failures_seen != kernel_failures()) {
        waiting_forget();
    }
    for (unsigned i = 0; i < count; i++) {
        held_bytes += at(i)->held_bytes;
        if (held_bytes > bytes_max) {
            return i;
        }
    }
    return count;
}

void waiting_enter(unsigned char *start, size_t bytes, size_t align) {
    enum hak_unit_kind kind = hak_word_kind(hak_registry_word(start));
    if (!fuzz_is_checked() || (kind != HAK_KIND_SLAB && kind != HAK_KIND_GUARDED)) {
        return; /* those of the large floor do not wait */
    }
    size_t class_bytes = hak_request_class_bytes(align, bytes + HAK_ZONE_BYTES_MIN);
    size_t closed_bytes = PAGE_BYTES + (bytes + PAGE_BYTES) / 64;
    size_t plain_bytes = bytes + HAK_ZONE_BYTES_MIN + RECORD_BYTES;
    ring[next] = (struct waiting){
        .start = start,
        .bytes = bytes,
        .held_bytes = class_bytes != 0             ? class_bytes + RECORD_BYTES
                      : closed_bytes > plain_bytes ? closed_bytes
                                                   : plain_bytes,
        .is_in_slab = class_bytes != 0,
    };
    next = (next + 1) % WAITING_MAX;
    count += count < WAITING_MAX;
}

void waiting_forget(void) {
    count = 0;
    failures_seen = kernel_failures();
}

void waiting_check_apart(const unsigned char *start, size_t bytes) {
    unsigned known = certain();
    for (unsigned i = 0; i < known; i++) {
        const struct waiting *block = at(i);
        FUZZ_CHECK(block->start + block->bytes + HAK_ZONE_BYTES_MIN <= start ||
                   start + bytes <= block->start);
    }
}

void waiting_check_all(void) {
    unsigned known = certain();
    for (unsigned i = 0; i < known; i++) {
        const struct waiting *block = at(i);
        FUZZ_CHECK(!hak_owns(block->start));
        for (size_t k = 0; block->is_in_slab && k < block->bytes + HAK_ZONE_BYTES_MIN; k++) {
            FUZZ_CHECK(block->start[k] == HAK_FILL_FREED);
        }
    }
}

void waiting_expect_report(const char *text, const void *block, size_t bytes) {
    char said[SAID_BYTES_MAX];
    char line[160];
    char why[128] = "";
    int length =
        snprintf(line, sizeof line, "hakmem: hak_verify(): %s 0x%jx", text, (uintmax_t)(uintptr_t)block);
    /* A block of no bytes is named without its size. */
    length += snprintf(line + length, sizeof line - (size_t)length,
                       bytes == 0 ? "\n  1 byte is not as left" : ", %zu-byte block\n  1 byte is not as left",
                       bytes);
    kernel_capture(said, sizeof said);
    FUZZ_CHECK(hak_verify(why, sizeof why) != 0);
    kernel_capture(NULL, 0);
    FUZZ_CHECK(strncmp(said, line, (size_t)length) == 0);
    FUZZ_CHECK(strncmp(why, "checked mode: ", 14) == 0);
}

void waiting_damage(unsigned number, size_t offset) {
    unsigned known = certain();
    if (known == 0) {
        return;
    }
    const struct waiting *block = at(number % known);
    if (block->is_in_slab) {
        unsigned char *byte = block->start + offset % (block->bytes + HAK_ZONE_BYTES_MIN);
        *byte ^= 0x20;
        waiting_expect_report("write after free to", block->start, block->bytes);
        *byte ^= 0x20;
    }
}
