/*
 * operations.h - the records of an input of operations.c.
 */
#ifndef HAK_TESTS_FUZZ_OPERATIONS_H
#define HAK_TESTS_FUZZ_OPERATIONS_H

#include <stdint.h>

#define RECORD_BYTES 6u /* the last is spare */

/* Bits of an input's first byte; the two highest name the thread that frees what is left at the end. */
#define MODE_FRESH 1u

enum operation {
    OPERATION_PLAIN,
    OPERATION_CALLOC,
    OPERATION_ALIGNED,
    OPERATION_RESIZE,
    OPERATION_FREE,
    OPERATION_PLAIN_MANY,
    OPERATION_FREE_MANY,
    OPERATION_WHOSE,
    OPERATION_TRIM,
    OPERATION_MALLOPT,
    OPERATION_PERTURB,
    OPERATION_METER,
    OPERATION_CHECK,
    OPERATION_FAULT,
    OPERATION_CLOCK,
    OPERATION_END, /* of the thread */
};

struct record {
    uint8_t operation; /* enum operation */
    uint8_t slot;
    uint16_t size; /* for size_of_code() */
    uint8_t argument;
};

#endif
