/*
 * segv.h - what programs share whose cases end by SIGSEGV, or survive it: see fault.h and checked_test.sh.
 */
#ifndef HAK_TESTS_MISUSE_SEGV_H
#define HAK_TESTS_MISUSE_SEGV_H

#include "fault.h"

static inline void must_be(bool condition) {
    if (!condition) {
        say("not as promised\n");
        _exit(7);
    }
}

static inline void write_at(char *at) {
    *(volatile char *)launder(at) = 1;
}

static inline void expect_segv(const char *what, const void *block, size_t bytes) {
    char line[160];
    snprintf(line, sizeof line, "SIGSEGV: %s 0x%jx, %zu-byte block\n", what, (uintmax_t)(uintptr_t)block,
             bytes);
    say(line);
}

/* main(): without an argument it lists the cases' names, with one it commits that fault. */
static inline int segv_main(int argc, char **argv, const struct fault_case *cases, size_t count) {
    fault_setup();
    for (size_t i = 0; i < count; i++) {
        if (argc < 2) {
            say(cases[i].name);
            say("\n");
        } else if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].commit();
            return fault_survived();
        }
    }
    return argc < 2 ? 0 : 6;
}

#endif
