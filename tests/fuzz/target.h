/*
 * target.h - what a fuzzing target gives to libFuzzer or to replay.c, and what it may ask.
 */
#ifndef HAK_TESTS_FUZZ_TARGET_H
#define HAK_TESTS_FUZZ_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Runs one input; aborts when hakmem did what it should not. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* True in replay.c: every input is checked in full. */
extern const bool fuzz_is_replay;

#endif
