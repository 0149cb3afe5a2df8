/*
 * replay.c - a main for fuzzing targets where libFuzzer is not: runs each input of the files given.
 *
 * usage: replay FILE...     a .hex file holds one input a line, any other file is one input
 * Prints "N inputs"; a failing input aborts with a line that says what failed, after its name.
 */
#include "fuzz/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_BYTES_MAX 65536u

const bool fuzz_is_replay = true;

static uint8_t input[INPUT_BYTES_MAX];
static unsigned inputs;

static void run(const char *name, unsigned number, size_t bytes) {
    fprintf(stderr, "%s:%u\r", name, number);
    /* A copy of its own, so that reading past its end is found by tools that can. */
    uint8_t *copy = malloc(bytes + (bytes == 0));
    if (copy == NULL) {
        exit(2);
    }
    memcpy(copy, input, bytes);
    (void)LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
    inputs++;
}

static int value_of(int digit) {
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static void run_hex(FILE *file, const char *name) {
    unsigned number = 1;
    size_t digits = 0;
    for (int c = fgetc(file); c != EOF; c = fgetc(file)) {
        if (c == '\n') {
            run(name, number++, digits / 2);
            digits = 0;
        } else if (value_of(c) < 0 || digits / 2 == INPUT_BYTES_MAX) {
            fprintf(stderr, "%s:%u: not an input in hexadecimal digits\n", name, number);
            exit(2);
        } else {
            input[digits / 2] =
                (uint8_t)(digits % 2 == 0 ? value_of(c) << 4 : input[digits / 2] | value_of(c));
            digits++;
        }
    }
}

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        const char *name = arguments[i];
        size_t name_bytes = strlen(name);
        FILE *file = fopen(name, "rb");
        if (file == NULL) {
            perror(name);
            return 2;
        }
        if (name_bytes > 4 && strcmp(name + name_bytes - 4, ".hex") == 0) {
            run_hex(file, name);
        } else {
            run(name, 0, fread(input, 1, sizeof input, file));
        }
        fclose(file);
    }
    printf("%u inputs\n", inputs);
    return inputs == 0;
}
