/*
 * slots_test.c - the slots of sampled blocks: which slot a block gets and where in it, what faults beside it
 * and after it, the order in which slots come again, and a kernel that refuses what is asked of it.
 *
 * Each test is a child of its own: chunks of slots stay for good.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/config.h"
#include "check/guarded.h"
#include "check/records.h"
#include "check/slots.h"
#include "meta/arena.h"
#include "meta/registry.h"
#include "os/os.h"
#include "support/child.h"
#include "support/test.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MARKERS_ON  102 /* MADV_GUARD_INSTALL */
#define MARKERS_OFF 103 /* MADV_GUARD_REMOVE */
#define CHUNK_SLOTS 63u /* that are used */
#define SMALL_WAIT  1024u
#define LARGE_WAIT  256u
#define ALIGN_SHIFT 4u

/* ---- a kernel that refuses ---- */

static struct {
    bool has_no_markers;
    bool mapping, reserving_again, allowing, opening; /* these are refused */
    unsigned reserved_again;
} kernel;

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    kernel.reserved_again += (flags & MAP_FIXED) != 0 && protection == PROT_NONE;
    if ((flags & MAP_FIXED) != 0 && protection == PROT_NONE ? kernel.reserving_again : kernel.mapping) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

int mprotect(void *address, size_t bytes, int protection) {
    if (kernel.allowing && protection == (PROT_READ | PROT_WRITE)) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_mprotect, address, bytes, protection);
}

int madvise(void *address, size_t bytes, int advice) {
    if ((kernel.has_no_markers && advice == MARKERS_ON) || (kernel.opening && advice == MARKERS_OFF)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

/* Whether the kernel has markers of its own, which many tests need. */
static bool has_markers(void) {
    size_t bytes = hak_os_page_bytes();
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    bool has = madvise(page, bytes, MARKERS_ON) == 0;
    CHECK(munmap(page, bytes) == 0);
    return has;
}

/* ---- blocks ---- */

static int probe[2];

/* Whether the byte can be read; no fault if not. */
static bool can_be_read(const char *byte) {
    char unused;
    bool can = write(probe[1], byte, 1) == 1;
    CHECK(can || errno == EFAULT);
    CHECK(!can || read(probe[0], &unused, 1) == 1);
    return can;
}

static char *open_slot(size_t bytes, unsigned align_shift) {
    char *block = hak_slot_is_for(bytes, align_shift) ? hak_slot_open(bytes, align_shift) : NULL;
    if (block != NULL) {
        struct hak_record record = {.address = (uintptr_t)block,
                                    .bytes = bytes,
                                    .align_shift = (uint8_t)align_shift,
                                    .kind = HAK_RECORD_GUARDED,
                                    .state = HAK_RECORD_LIVE};
        CHECK(hak_records_enter(&record));
    }
    return block;
}

static void close_slot(char *block) {
    struct hak_record record;
    CHECK(hak_record_live_to_freeing(block, NULL, 0, &record));
    hak_slot_shut(&record);
    hak_record_freeing_to_quarantined(block);
    hak_slot_give_back(block);
}

static char *must_open(size_t bytes) {
    char *block = open_slot(bytes, ALIGN_SHIFT);
    CHECK(block != NULL);
    return block;
}

/* How far apart the slots lie that two blocks of this kind get one after the other. */
static size_t slot_bytes_of(size_t bytes, unsigned align_shift) {
    char *first = open_slot(bytes, align_shift);
    char *second = open_slot(bytes, align_shift);
    CHECK(first != NULL && second != NULL);
    return (size_t)(second > first ? second - first : first - second);
}

/* ---- where a block lies ---- */

static int take_the_least_slot(void *unused) {
    size_t page_bytes = hak_os_page_bytes();
    unsigned page_shift = (unsigned)__builtin_ctzl(page_bytes);
    (void)unused;
    CHECK(slot_bytes_of(0, ALIGN_SHIFT) == 2 * page_bytes);
    CHECK(slot_bytes_of(1, ALIGN_SHIFT) == 2 * page_bytes);
    CHECK(slot_bytes_of(page_bytes, ALIGN_SHIFT) == 2 * page_bytes);
    CHECK(slot_bytes_of(page_bytes, page_shift) == 2 * page_bytes);
    CHECK(slot_bytes_of(1, page_shift + 1) == HAK_UNIT_BYTES); /* its guard is two pages */
    CHECK(slot_bytes_of(page_bytes + 1, ALIGN_SHIFT) == HAK_UNIT_BYTES);
    CHECK(slot_bytes_of(HAK_UNIT_BYTES - page_bytes, ALIGN_SHIFT) == HAK_UNIT_BYTES);
    CHECK(slot_bytes_of(HAK_UNIT_BYTES / 2, 15) == HAK_UNIT_BYTES);
    CHECK(open_slot(HAK_UNIT_BYTES - page_bytes + 1, ALIGN_SHIFT) == NULL);
    CHECK(open_slot(HAK_UNIT_BYTES / 2 + 1, 15) == NULL);
    CHECK(open_slot(HAK_UNIT_BYTES / 2, 16) == NULL);
    CHECK(open_slot(SIZE_MAX, ALIGN_SHIFT) == NULL);
    CHECK(open_slot(SIZE_MAX - page_bytes, ALIGN_SHIFT) == NULL);
    return 0;
}

/* A zeroed block that ends with its page, as nearly as its alignment allows; before and behind it all is
 * shut. */
static int look_around_blocks(void *unused) {
    size_t page_bytes = hak_os_page_bytes();
    size_t sizes[] = {0, 1, 15, 16, 17, 100, page_bytes - 1, page_bytes, page_bytes + 1, 5 * page_bytes};
    (void)unused;
    for (unsigned i = 0; i < COUNT_OF(sizes); i++) {
        for (unsigned shift = 4; shift <= 6; shift++) {
            size_t bytes = sizes[i] != 0 ? sizes[i] : 1; /* of none there is one too */
            char *block = open_slot(sizes[i], shift);
            CHECK(block != NULL && (uintptr_t)block % ((size_t)1 << shift) == 0);
            uintptr_t end = ((uintptr_t)block + bytes + page_bytes - 1) / page_bytes * page_bytes;
            CHECK(end - ((uintptr_t)block + bytes) < (size_t)1 << shift);
            for (size_t k = 0; k < bytes; k++) {
                CHECK(block[k] == 0);
            }
            memset(block, 0x77, bytes);
            CHECK(!can_be_read((char *)end));
            CHECK(!can_be_read((char *)((uintptr_t)block / page_bytes * page_bytes) - 1));
            close_slot(block);
            CHECK(!can_be_read(block) && !can_be_read((char *)end - 1));
        }
    }
    return 0;
}

/* ---- records ---- */

struct seen {
    char *blocks[8];
    unsigned count, stop_at;
};

static int see(const struct hak_record *record, void *context) {
    struct seen *seen = context;
    CHECK(seen->count < COUNT_OF(seen->blocks));
    seen->blocks[seen->count++] = (char *)record->address;
    return seen->count == seen->stop_at ? 7 : 0;
}

static bool is_among(const struct seen *seen, const char *block) {
    bool is = false;
    for (unsigned i = 0; i < seen->count; i++) {
        is = is || seen->blocks[i] == block;
    }
    return is;
}

static int visit(struct seen *seen) {
    hak_lock_acquire(&hak_slots_lock);
    int result = hak_slots_visit_locked(see, seen);
    hak_lock_release(&hak_slots_lock);
    return result;
}

static int visit_and_count(void *unused) {
    char *blocks[4] = {must_open(10), must_open(20), must_open(9000), must_open(40000)};
    (void)unused;
    CHECK(hak_slots_live() == 4);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(hak_slot_record(blocks[i])->address == (uintptr_t)blocks[i]);
    }
    CHECK(hak_slot_record(&probe) == NULL && hak_slot_record(NULL) == NULL);
    struct seen seen = {.count = 0};
    CHECK(visit(&seen) == 0);
    CHECK(seen.count == 4);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(is_among(&seen, blocks[i]));
    }
    for (unsigned stop_at = 1; stop_at <= 4; stop_at++) {
        seen = (struct seen){.stop_at = stop_at};
        CHECK(visit(&seen) == 7);
        CHECK(seen.count == stop_at);
    }
    close_slot(blocks[0]);
    close_slot(blocks[3]);
    CHECK(hak_slots_live() == 2);
    return 0;
}

/* A slot that is taken again has no record until one is entered: what it had would be another block's. */
static int forget_the_block_before(void *unused) {
    char *first = must_open(1);
    (void)unused;
    close_slot(first);
    for (unsigned i = 0; i < SMALL_WAIT; i++) {
        close_slot(must_open(1));
    }
    struct hak_record record;
    CHECK(hak_records_get(first, &record) && record.state == HAK_RECORD_QUARANTINED);
    CHECK(hak_slot_open(1, ALIGN_SHIFT) == first);
    CHECK(!hak_records_get(first, &record));
    return 0;
}

/* ---- whose turn it is ---- */

/* One slot at a time: each comes again when as many as may wait were given back after it, in that order. */
static void check_turns(size_t bytes, unsigned wait) {
    static char *blocks[2 * (SMALL_WAIT + 1)];
    unsigned count = 2 * (wait + 1);
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = must_open(bytes);
        for (unsigned k = 0; i <= wait && k < i; k++) {
            CHECK(blocks[k] != blocks[i]);
        }
        CHECK(i <= wait || blocks[i] == blocks[i - wait - 1]);
        close_slot(blocks[i]);
    }
    CHECK(hak_slots_live() == 0);
}

static int take_turns(void *unused) {
    (void)unused;
    check_turns(1, SMALL_WAIT);
    check_turns(HAK_UNIT_BYTES / 2, LARGE_WAIT);
    return 0;
}

/* What lies behind the record of a chunk is as nobody had written to it. */
static int look_behind_a_record(void *unused) {
    (void)unused;
    must_open(1);
    const char *behind = hak_meta_alloc(KIB);
    for (unsigned i = 0; i < KIB; i++) {
        CHECK(behind[i] == 0);
    }
    return 0;
}

/* Chunks of 64 slots, the last of which is none. */
static int use_whole_chunks(void *unused) {
    size_t page_bytes = hak_os_page_bytes();
    char *least = NULL, *most = NULL;
    (void)unused;
    for (unsigned i = 0; i < CHUNK_SLOTS; i++) {
        char *block = must_open(page_bytes);
        least = least == NULL || block < least ? block : least;
        most = block > most ? block : most;
    }
    CHECK((size_t)(most - least) == (CHUNK_SLOTS - 1) * 2 * page_bytes);
    CHECK(((uintptr_t)least - page_bytes) % HAK_UNIT_BYTES == 0);
    CHECK(hak_slot_record(most + 2 * page_bytes) != NULL); /* of the last one, shut for good */
    CHECK(!can_be_read(most + 2 * page_bytes));
    char *next = must_open(page_bytes);
    CHECK(next < least || next > most + 2 * page_bytes);
    return 0;
}

/* ---- a kernel that refuses ---- */

/* Early is better than never: the slots that wait serve when the kernel gives no more. */
static int use_what_waits(void *unused) {
    char *blocks[CHUNK_SLOTS];
    (void)unused;
    for (unsigned i = 0; i < CHUNK_SLOTS; i++) {
        blocks[i] = must_open(1);
    }
    kernel.mapping = true;
    CHECK(open_slot(1, ALIGN_SHIFT) == NULL);
    CHECK(hak_slots_live() == CHUNK_SLOTS);
    close_slot(blocks[3]);
    close_slot(blocks[1]);
    CHECK(open_slot(1, ALIGN_SHIFT) == blocks[3]);
    CHECK(open_slot(1, ALIGN_SHIFT) == blocks[1]);
    CHECK(open_slot(1, ALIGN_SHIFT) == NULL);
    CHECK(hak_slots_live() == CHUNK_SLOTS);
    kernel.mapping = false;
    CHECK(must_open(1) != NULL);
    return 0;
}

/* What was got for a chunk that could not be mapped goes back. */
static int fail_for_long(void *unused) {
    (void)unused;
    must_open(1);
    kernel.reserving_again = kernel.has_no_markers = true;
    CHECK(open_slot(HAK_UNIT_BYTES / 2, ALIGN_SHIFT) == NULL);
    size_t mapped_bytes = hak_meta_mapped_bytes();
    for (unsigned i = 0; i < 1000; i++) {
        CHECK(open_slot(HAK_UNIT_BYTES / 2, ALIGN_SHIFT) == NULL);
    }
    CHECK(hak_meta_mapped_bytes() == mapped_bytes);
    return 0;
}

/* Without markers each slot's pages are mapped and unmapped. */
static int do_without_markers(void *unused) {
    kernel.has_no_markers = true;
    (void)look_around_blocks(unused);
    CHECK(kernel.reserved_again >= 2 + 30); /* two chunks, and each block */
    unsigned before = kernel.reserved_again;
    kernel.reserving_again = true;
    for (unsigned i = 0; i < CHUNK_SLOTS; i++) { /* a chunk that could not be shut is none */
        (void)open_slot(1, ALIGN_SHIFT);
    }
    CHECK(kernel.reserved_again > before);
    kernel.reserving_again = false;
    (void)look_around_blocks(unused);
    return 0;
}

/* A slot whose pages the kernel would not open is not lost, and not in use. */
static int refuse_to_open(void *unused) {
    (void)unused;
    must_open(1);
    kernel.opening = true;
    CHECK(open_slot(1, ALIGN_SHIFT) == NULL);
    CHECK(hak_slots_live() == 1);
    kernel.opening = false;
    CHECK(must_open(1) != NULL);
    CHECK(hak_slots_live() == 2);
    return 0;
}

/* Locked pages take no markers: such a slot is unmapped instead, from then on each time. */
static int refuse_a_marker(void *unused) {
    (void)unused;
    char *block = must_open(1);
    kernel.has_no_markers = true;
    unsigned before = kernel.reserved_again;
    close_slot(block);
    kernel.has_no_markers = false;
    CHECK(kernel.reserved_again == before + 1);
    CHECK(!can_be_read(block));
    for (unsigned i = 0; i < SMALL_WAIT; i++) {
        close_slot(must_open(1));
    }
    CHECK(kernel.reserved_again == before + 1);
    CHECK(must_open(1) == block);
    *block = 1;
    close_slot(block);
    CHECK(kernel.reserved_again == before + 2);
    CHECK(!can_be_read(block));
    return 0;
}

/* The same where the next block has more pages: they had markers from before. */
static int refuse_a_marker_of_few_pages(void *unused) {
    size_t many_bytes = HAK_UNIT_BYTES - hak_os_page_bytes();
    (void)unused;
    char *few = must_open(hak_os_page_bytes() + 1);
    kernel.has_no_markers = true;
    close_slot(few);
    kernel.has_no_markers = false;
    for (unsigned i = 0; i < LARGE_WAIT; i++) {
        close_slot(must_open(many_bytes));
    }
    char *many = must_open(many_bytes);
    CHECK(many < few && few < many + many_bytes);
    CHECK(!can_be_read(many - 1));
    CHECK(can_be_read(many) && can_be_read(many + many_bytes - 1));
    memset(many, 0x77, many_bytes);
    close_slot(many);
    CHECK(!can_be_read(many) && !can_be_read(few));
    return 0;
}

/* A slot that nothing shuts but taking the access away never comes again, and stays counted. */
static int refuse_to_shut(void *unused) {
    (void)unused;
    char *block = must_open(1);
    kernel.has_no_markers = kernel.reserving_again = true;
    close_slot(block);
    kernel.has_no_markers = kernel.reserving_again = false;
    CHECK(!can_be_read(block));
    CHECK(hak_slots_live() == 1);
    for (unsigned i = 0; i <= 2 * SMALL_WAIT; i++) {
        char *other = must_open(1);
        CHECK(other != block);
        close_slot(other);
    }
    CHECK(hak_slots_live() == 1);
    return 0;
}

/* ---- the suite ---- */

static void where_markers_are(int (*function)(void *)) {
    if (!has_markers()) {
        SKIP_BECAUSE("the kernel has no guard markers");
    }
    assert_function_succeeds(function);
}

#define A_CHILD(name, runner, function)                                                                      \
    static void name(void **state) {                                                                         \
        (void)state;                                                                                         \
        runner(function);                                                                                    \
    }

A_CHILD(a_block_lies_at_the_end_of_a_slot_between_guards, assert_function_succeeds, look_around_blocks)
A_CHILD(blocks_are_visited_and_counted, assert_function_succeeds, visit_and_count)
A_CHILD(a_slot_forgets_the_block_before, assert_function_succeeds, forget_the_block_before)
A_CHILD(a_chunk_keeps_to_its_record, assert_function_succeeds, look_behind_a_record)
A_CHILD(slots_take_turns, assert_function_succeeds, take_turns)
A_CHILD(what_waits_serves_when_memory_is_short, assert_function_succeeds, use_what_waits)
A_CHILD(nothing_is_lost_with_a_chunk_that_fails, assert_function_succeeds, fail_for_long)
A_CHILD(a_kernel_without_markers_will_do, assert_function_succeeds, do_without_markers)
A_CHILD(a_slot_that_does_not_open_is_given_back, where_markers_are, refuse_to_open)
A_CHILD(pages_that_take_no_marker_are_unmapped, where_markers_are, refuse_a_marker)
A_CHILD(pages_around_take_no_marker_either, where_markers_are, refuse_a_marker_of_few_pages)
A_CHILD(a_slot_that_cannot_be_shut_is_never_used_again, where_markers_are, refuse_to_shut)

/* Of both sizes only where pages are small. */
static void where_pages_are_small(int (*function)(void *)) {
    if (hak_os_page_bytes() != 4 * KIB) {
        SKIP_BECAUSE("the figures are those of OS pages of 4 KiB");
    }
    assert_function_succeeds(function);
}

A_CHILD(the_least_slot_that_has_room_is_taken, where_pages_are_small, take_the_least_slot)
A_CHILD(a_chunk_is_used_but_for_its_last_slot, where_pages_are_small, use_whole_chunks)

static int open_probe(void **state) {
    (void)state;
    hak_slots_prepare(SIZE_MAX);
    return pipe(probe);
}

/*
 * What no slot holds has a mapping, in whose every unit the registry's word says so: an address may have been
 * a large block's before, whose mark would answer for a pointer to the inside.
 */
static void each_unit_of_a_mapping_is_named(void **state) {
    (void)state;
    const size_t bytes = 7 * HAK_UNIT_BYTES + 1000;
    uintptr_t block = (uintptr_t)hak_guarded_alloc(bytes, 4);
    struct hak_record record = {.address = block, .bytes = bytes, .align_shift = 4};
    assert_int_not_equal(block, 0);
    for (uintptr_t p = block; p < block + bytes; p += 1000) {
        assert_int_equal(hak_word_kind(hak_registry_word((const void *)p)), HAK_KIND_GUARDED);
    }
    hak_guarded_unmap(&record);
    for (uintptr_t p = block; p < block + bytes; p += 1000) {
        assert_int_equal(hak_registry_word((const void *)p), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_slot_that_has_room_is_taken),
        cmocka_unit_test(a_block_lies_at_the_end_of_a_slot_between_guards),
        cmocka_unit_test(blocks_are_visited_and_counted),
        cmocka_unit_test(a_slot_forgets_the_block_before),
        cmocka_unit_test(a_chunk_keeps_to_its_record),
        cmocka_unit_test(slots_take_turns),
        cmocka_unit_test(a_chunk_is_used_but_for_its_last_slot),
        cmocka_unit_test(what_waits_serves_when_memory_is_short),
        cmocka_unit_test(nothing_is_lost_with_a_chunk_that_fails),
        cmocka_unit_test(a_kernel_without_markers_will_do),
        cmocka_unit_test(a_slot_that_does_not_open_is_given_back),
        cmocka_unit_test(pages_that_take_no_marker_are_unmapped),
        cmocka_unit_test(pages_around_take_no_marker_either),
        cmocka_unit_test(a_slot_that_cannot_be_shut_is_never_used_again),
        cmocka_unit_test(each_unit_of_a_mapping_is_named),
    };
    return cmocka_run_group_tests(tests, open_probe, NULL);
}
