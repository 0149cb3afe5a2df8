/*
 * target.h - the library under test as a whole: is it there, which flavour, is its heap sound.
 *
 * Suites are linked with hakmem. Compiled with TEST_LIBC_ONLY they run on plain libc instead, the tests of
 * hak_ names skipped: that shows that what the rest claims is what libc does.
 */
#ifndef HAK_TESTS_SUPPORT_TARGET_H
#define HAK_TESTS_SUPPORT_TARGET_H

#include "hakmem.h"

#include <stdbool.h>
#include <stddef.h>

#ifndef TEST_HAK_NAMES
#pragma weak hak_version
#pragma weak hak_malloc
#pragma weak hak_free
#pragma weak hak_calloc
#pragma weak hak_realloc
#pragma weak hak_aligned_alloc
#pragma weak hak_usable_size
#pragma weak hak_good_size
#pragma weak hak_owns
#pragma weak hak_trim
#pragma weak hak_defrag_hint
#pragma weak hak_stats_get
#pragma weak hak_verify
#pragma weak hak_heap_walk
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* False on plain libc alone. */
bool hak_is_there(void);

/* Any function by name, NULL when there is none: for names that not every libc declares. */
void *function_named(const char *name);

/* Path of the flavour's shared library (TEST_SO), NULL when it is not set. */
const char *library_path(void);

/* True when the flavour under test is the debug one (TEST_FLAVOUR). */
bool library_is_debug(void);

/* Aborts the program, saying what is broken, unless every invariant of the heap holds. */
void check_heap(void);

/* The same for cmocka's teardown and group teardown. */
int heap_is_sound(void **state);

#ifdef __cplusplus
}
#endif

#define REQUIRE_HAK()                                                                                        \
    do {                                                                                                     \
        if (!hak_is_there()) {                                                                               \
            SKIP_BECAUSE("runs on libc's malloc");                                                           \
        }                                                                                                    \
    } while (0)

/* For what shows hakmem larger OS pages than there are; where it asks for their size (base/config.h). */
#define REQUIRE_PAGE_BYTES()                                                                                 \
    do {                                                                                                     \
        if (HAK_KNOWN_PAGE_SHIFT != 0 && !library_is_debug()) {                                              \
            SKIP_BECAUSE("the flavour knows the page of this architecture");                                 \
        }                                                                                                    \
    } while (0)

#endif
