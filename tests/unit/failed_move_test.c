/*
 * failed_move_test.c - a move of pages that the kernel refuses, before or after it has unmapped the target:
 * what the library reserved goes back, and what another thread has mapped there meanwhile stays.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/atomic.h"
#include "os/os.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGES 4u

/* What the next moves to a fixed target come to. */
enum outcome {
    CARRIED_OUT,
    REFUSED_AT_ONCE, /* kernels from 6.17 on, beyond a limit; all, for want of mappings */
    REFUSED_LATE,    /* older kernels, beyond a limit: the target is unmapped, */
    REPLACED,        /* and then mapped by another thread */
};

static enum outcome outcome;
static unsigned refusals;  /* so many moves are refused, the others carried out */
static uint32_t last_word; /* of the target of one that was refused at once and grows */

static void *refuse(void *target, size_t bytes, bool grows) {
    if (outcome == REFUSED_AT_ONCE && grows) {
        last_word = *((uint32_t *)(void *)((char *)target + bytes) - 1);
    }
    if (outcome != REFUSED_AT_ONCE) {
        CHECK(munmap(target, bytes) == 0);
    }
    if (outcome == REPLACED) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        CHECK(mmap(target, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == target);
        memset(target, 9, bytes);
    }
    errno = ENOMEM;
    return MAP_FAILED;
}

void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *target = va_arg(rest, void *);
    va_end(rest);
    if ((flags & MREMAP_FIXED) != 0 && refusals != 0) {
        refusals--;
        return refuse(target, new_bytes, new_bytes > old_bytes);
    }
    return (void *)syscall(SYS_mremap, address, old_bytes, new_bytes, flags, target);
}

static bool is_full; /* the kernel's limit of mappings is reached: none of them can be cut in two */

int mprotect(void *address, size_t bytes, int protection) {
    if (is_full) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_mprotect, address, bytes, protection);
}

static size_t page_bytes;

static size_t mapped_bytes(void) {
    return hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes); /* relaxed: one thread */
}

static bool is_mapped(void *address) {
    size_t resident_bytes;
    return hak_os_resident(address, page_bytes, &resident_bytes) == 0;
}

static char *map_source(void) {
    void *source;
    page_bytes = hak_os_page_bytes();
    CHECK(hak_os_map(NULL, PAGES * page_bytes, &source) == 0);
    memset(source, 5, PAGES * page_bytes);
    return source;
}

static char *reserve(size_t pages) {
    void *target;
    CHECK(hak_os_reserve_aligned(pages * page_bytes, page_bytes, &target) == 0);
    return target;
}

/* Moves PAGES pages to a target of so many, which is refused; returns the target. */
static char *fail_to_move(size_t pages, enum outcome what) {
    char *source = map_source();
    char *target = reserve(pages);
    outcome = what;
    refusals = 2;
    CHECK(hak_os_move(source, PAGES * page_bytes, target, pages * page_bytes) == ENOMEM);
    refusals = 0;
    for (size_t i = 0; i < PAGES * page_bytes; i++) {
        CHECK(source[i] == 5);
    }
    CHECK(hak_os_unmap(source, PAGES * page_bytes) == 0);
    return target;
}

/* Under a limit that is all the address space which the process may have. */
static void a_target_that_is_there_yet_goes_back(void **state) {
    (void)state;
    size_t before_bytes = mapped_bytes();
    char *target = fail_to_move(2 * PAGES, REFUSED_AT_ONCE);
    for (size_t i = 0; i < 2 * PAGES; i++) {
        assert_false(is_mapped(target + i * page_bytes));
    }
    assert_int_equal(mapped_bytes(), before_bytes);
}

static void a_target_is_marked_where_there_are_threads(void **state) {
    (void)state;
    bool is_alone = hak_os_is_only_thread();
    (void)fail_to_move(2 * PAGES, REFUSED_AT_ONCE);
    assert_int_equal(last_word == 0, is_alone);
}

static void a_target_that_is_gone_is_forgotten(void **state) {
    (void)state;
    size_t before_bytes = mapped_bytes();
    char *target = fail_to_move(2 * PAGES, REFUSED_LATE);
    assert_false(is_mapped(target));
    assert_int_equal(mapped_bytes(), before_bytes);
}

static void what_another_thread_has_mapped_there_stays(void **state) {
    (void)state;
    for (size_t pages = PAGES; pages <= 2 * PAGES; pages += PAGES) {
        size_t before_bytes = mapped_bytes();
        char *target = fail_to_move(pages, REPLACED);
        for (size_t i = 0; i < pages * page_bytes; i++) {
            assert_int_equal(target[i], 9);
        }
        assert_int_equal(mapped_bytes(), before_bytes);
        assert_int_equal(munmap(target, pages * page_bytes), 0);
    }
}

/* Without growth a mark costs a call, which all pay from when one move has failed. */
static void targets_without_growth_go_back_once_moves_fail(void **state) {
    (void)state;
    (void)fail_to_move(2 * PAGES, REFUSED_AT_ONCE);
    size_t before_bytes = mapped_bytes();
    assert_false(is_mapped(fail_to_move(PAGES, REFUSED_AT_ONCE)));
    assert_int_equal(mapped_bytes(), before_bytes);
}

/* At the limit of mappings the target's last page cannot be made writable, and no move would succeed. */
static void what_cannot_be_marked_goes_back_untried(void **state) {
    (void)state;
    (void)fail_to_move(2 * PAGES, REFUSED_AT_ONCE);
    size_t before_bytes = mapped_bytes();
    char *source = map_source();
    char *target = reserve(PAGES);
    outcome = REFUSED_AT_ONCE;
    refusals = 1;
    is_full = true;
    assert_int_equal(hak_os_move(source, PAGES * page_bytes, target, PAGES * page_bytes), ENOMEM);
    is_full = false;
    assert_int_equal(refusals, 1);
    refusals = 0;
    assert_false(is_mapped(target));
    assert_int_equal(source[PAGES * page_bytes - 1], 5);
    assert_int_equal(hak_os_unmap(source, PAGES * page_bytes), 0);
    assert_int_equal(mapped_bytes(), before_bytes);
}

/* The kernel may count what the target could be written in as if it were to stay. */
static void what_grows_is_tried_again_with_less(void **state) {
    (void)state;
    size_t before_bytes = mapped_bytes();
    char *source = map_source();
    char *target = reserve(2 * PAGES);
    outcome = REFUSED_AT_ONCE;
    refusals = 1;
    assert_int_equal(hak_os_move(source, PAGES * page_bytes, target, 2 * PAGES * page_bytes), 0);
    assert_int_equal(refusals, 0);
    for (size_t i = 0; i < 2 * PAGES * page_bytes; i++) {
        assert_int_equal(target[i], i < PAGES * page_bytes ? 5 : 0);
    }
    assert_int_equal(hak_os_unmap(target, 2 * PAGES * page_bytes), 0);
    assert_int_equal(mapped_bytes(), before_bytes);
}

static void words_are_compared_without_a_fault(void **state) {
    (void)state;
    uint32_t *words = (uint32_t *)(void *)map_source();
    errno = 7;
    assert_true(hak_os_word_is(words, 0x05050505));
    assert_false(hak_os_word_is(words, 0));
    assert_int_equal(hak_os_forbid(words, PAGES * page_bytes), 0);
    assert_false(hak_os_word_is(words, 0x05050505));
    assert_int_equal(hak_os_unmap(words, PAGES * page_bytes), 0);
    assert_false(hak_os_word_is(words, 0x05050505));
    assert_int_equal(errno, 7);
}

/* libc's, in its place. */
char __libc_single_threaded;

static int be_alone(void **state) {
    (void)state;
    __libc_single_threaded = 1;
    return !hak_os_is_only_thread();
}

static int be_one_of_several(void **state) {
    (void)state;
    __libc_single_threaded = 0;
    return hak_os_is_only_thread();
}

int main(void) {
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(a_target_that_is_there_yet_goes_back),
        cmocka_unit_test(a_target_is_marked_where_there_are_threads),
        cmocka_unit_test(a_target_that_is_gone_is_forgotten),
        cmocka_unit_test(targets_without_growth_go_back_once_moves_fail),
        cmocka_unit_test(what_grows_is_tried_again_with_less),
        cmocka_unit_test(words_are_compared_without_a_fault),
    };
    const struct CMUnitTest beside_others[] = {
        cmocka_unit_test(a_target_that_is_there_yet_goes_back),
        cmocka_unit_test(a_target_is_marked_where_there_are_threads),
        cmocka_unit_test(a_target_that_is_gone_is_forgotten),
        cmocka_unit_test(what_another_thread_has_mapped_there_stays),
        cmocka_unit_test(targets_without_growth_go_back_once_moves_fail),
        cmocka_unit_test(what_cannot_be_marked_goes_back_untried),
        cmocka_unit_test(what_grows_is_tried_again_with_less),
    };
    return cmocka_run_group_tests(alone, be_alone, NULL) +
           cmocka_run_group_tests(beside_others, be_one_of_several, NULL);
}
