/*
 * libfuzzer.c - what targets tell libFuzzer and the sanitizers beside it.
 */
#include "fuzz/target.h"

const bool fuzz_is_replay = false;

/* hakmem's memory is none of the sanitizer's business: nothing in it is a leak. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0:allocator_may_return_null=1:handle_abort=0";
}
