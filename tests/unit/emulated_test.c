/*
 * emulated_test.c - hakmem where calls for memory say that they were carried out and were not, as under
 * QEMU's user mode (simulated): nothing that is relied on may be missing in silence.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"
#include "support/child.h"
#include "support/pattern.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* From MADV_DONTNEED alone on mappings that the emulator knows (QEMU from 7.1), or no advice at all. */
static enum { REAL, KNOWN_MAPPINGS, NO_ADVICE } emulator;

/* What MREMAP_DONTUNMAP left mapped, which the emulator takes for unmapped. One thread. */
#define FORGOTTEN_MAX 4096u
static struct { uintptr_t start, end; } forgotten[FORGOTTEN_MAX];
static unsigned forgotten_count;

static bool is_forgotten(uintptr_t start, uintptr_t end) {
    for (unsigned i = 0; i < forgotten_count; i++) {
        if (start < forgotten[i].end && forgotten[i].start < end) {
            return true;
        }
    }
    return false;
}

/* Unmapped or mapped anew, the emulator knows it again, if it is the whole of what was forgotten. */
static void remember(uintptr_t start, uintptr_t end) {
    for (unsigned i = 0; i < forgotten_count; i++) {
        if (start <= forgotten[i].start && forgotten[i].end <= end) {
            forgotten[i--] = forgotten[--forgotten_count];
        }
    }
}

int madvise(void *address, size_t bytes, int advice) {
    uintptr_t start = (uintptr_t)address;
    bool is_carried_out = emulator == REAL || (emulator == KNOWN_MAPPINGS && advice == MADV_DONTNEED &&
                                               !is_forgotten(start, start + bytes));
    return is_carried_out ? (int)syscall(SYS_madvise, address, bytes, advice) : 0;
}

int munmap(void *address, size_t bytes) {
    remember((uintptr_t)address, (uintptr_t)address + bytes);
    return (int)syscall(SYS_munmap, address, bytes);
}

void *mremap(void *old, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    void *target = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void *) : NULL;
    va_end(arguments);
    void *moved = (void *)syscall(SYS_mremap, old, old_bytes, new_bytes, flags, target);
    if (moved != MAP_FAILED && emulator == KNOWN_MAPPINGS && (flags & MREMAP_DONTUNMAP) != 0) {
        CHECK(forgotten_count < FORGOTTEN_MAX);
        forgotten[forgotten_count].start = (uintptr_t)old;
        forgotten[forgotten_count++].end = (uintptr_t)old + old_bytes;
    }
    return moved;
}

/* ---- what the os floor says ---- */

static void *mapped_with(unsigned char value, size_t bytes) {
    void *address;
    CHECK(hak_os_map(NULL, bytes, &address) == 0);
    memset(address, value, bytes);
    return address;
}

static int purged_memory_is_zero_in_child(void *unused) {
    (void)unused;
    size_t bytes = 8 * hak_os_page_bytes();
    char *address = mapped_with(7, bytes);
    errno = 3;
    CHECK(hak_os_purge(address + bytes / 4, bytes / 4) == 0);
    CHECK(errno == 3);
    CHECK(bytes_are(address, bytes / 4, 7) && bytes_are(address + bytes / 4, bytes / 4, 0) &&
          bytes_are(address + bytes / 2, bytes / 2, 7));
    address[bytes / 4] = 1;
    CHECK(hak_os_unmap(address, bytes) == 0);
    return 0;
}

static void purged_memory_is_zero(void **state) {
    (void)state;
    for (unsigned which = REAL; which <= NO_ADVICE; which++) {
        emulator = which;
        assert_function_succeeds(purged_memory_is_zero_in_child);
    }
}

/* Moves that would leave memory behind which nothing can be given back of are refused; the target is gone
 * then. */
static int old_pages_are_not_left_in_child(void *unused) {
    (void)unused;
    size_t bytes = 4 * hak_os_page_bytes();
    char *source = mapped_with(7, bytes);
    uint64_t before_bytes = hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes); /* relaxed: one thread */
    void *target = NULL;
    CHECK(hak_os_detach(source, bytes, &target) == EINVAL && target == NULL);
    CHECK(hak_os_reserve_aligned(bytes, hak_os_page_bytes(), &target) == 0);
    CHECK(hak_os_move_pages(source, bytes, target) == EINVAL);
    /* relaxed: one thread */
    CHECK(hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes) == before_bytes);
    CHECK(bytes_are(source, bytes, 7));
    CHECK(hak_os_purge(source, bytes) == 0 && bytes_are(source, bytes, 0));
    CHECK(hak_os_guard(source, bytes) == EINVAL); /* the mode with guards takes a mapping without access */
    CHECK(hak_os_unmap(source, bytes) == 0);
    return 0;
}

static void old_pages_are_not_left_and_guards_are_refused(void **state) {
    (void)state;
    emulator = KNOWN_MAPPINGS;
    assert_function_succeeds(old_pages_are_not_left_in_child);
    emulator = NO_ADVICE;
    assert_function_succeeds(old_pages_are_not_left_in_child);
}

/* ---- what programs see ---- */

#define SLOTS 64u

static void replace_blocks(size_t low_bytes, size_t high_bytes, unsigned rounds) {
    static struct slot slots[SLOTS];
    const struct load load = {.low_bytes = low_bytes, .high_bytes = high_bytes, .calloc_parts = 128};
    struct rng rng = rng_seeded(high_bytes);
    for (unsigned i = 0; i < rounds; i++) {
        struct slot *slot = &slots[rng_below(&rng, SLOTS)];
        slot_clear(slot);
        slot->is_dense = true;
        CHECK(slot_fill(slot, &load, &rng));
        CHECK(rng_below(&rng, 4) != 0 || slot_resize(slot, &load, &rng));
    }
    slots_clear(slots, SLOTS);
    check_heap();
}

static int calloc_is_zero_in_child(void *unused) {
    (void)unused;
    replace_blocks(1, 1000, 3000);
    replace_blocks(1000, 30 * KIB, 3000);
    replace_blocks(30 * KIB, 1 * MIB, 1500);
    replace_blocks(1 * MIB, 4 * MIB, 400);
    return 0;
}

static void calloc_is_zero_and_contents_are_kept(void **state) {
    (void)state;
    for (unsigned which = REAL; which <= NO_ADVICE; which++) {
        emulator = which;
        assert_function_succeeds(calloc_is_zero_in_child);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(purged_memory_is_zero),
        cmocka_unit_test(old_pages_are_not_left_and_guards_are_refused),
        cmocka_unit_test(calloc_is_zero_and_contents_are_kept),
    };
    return cmocka_run_group_tests_name("emulated", tests, NULL, NULL);
}
