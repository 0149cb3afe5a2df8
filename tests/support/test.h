/*
 * test.h - what every behaviour test includes: cmocka with the headers it needs, and checks for threads.
 *
 * cmocka's assert_ functions end a test by longjmp, so they are for the test's own thread. CHECK is for
 * everywhere else: it says where and what, and aborts the program.
 *
 * TEST_SCALE (default 1) multiplies the length of the stress tests.
 */
#ifndef HAK_TESTS_SUPPORT_TEST_H
#define HAK_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include <cmocka.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            check_failed(#condition, __FILE__, __LINE__);                                                    \
        }                                                                                                    \
    } while (0)

/* Writes the text and aborts; allocates nothing. */
void check_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

/* TEST_SCALE as a number from 1 to 1000. */
unsigned test_scale(void);

#ifdef __cplusplus
}
#endif

/* The pointer, with all that the compiler knows about it forgotten. */
static inline void *launder(void *pointer) {
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}

/* Skips the running cmocka test, saying why: nothing is passed over in silence. */
#define SKIP_BECAUSE(reason)                                                                                 \
    do {                                                                                                     \
        print_message("SKIP %s (%s)\n", __func__, reason);                                                   \
        skip();                                                                                              \
    } while (0)

#endif
