/*
 * mutate.c - mutations for inputs of operations.c: whole records come, go, double and change places, which
 * bytes that come and go would hardly achieve, since all that follows them shifts.
 */
#include "fuzz/operations.h"
#include "fuzz/target.h"

#include <string.h>

#define RUN_MAX 8u

size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t bytes_max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t bytes_max, unsigned seed);

/* The next number of a small generator. */
static size_t draw(unsigned *seed, size_t bound) {
    *seed = *seed * 1664525u + 1013904223u;
    return ((size_t)*seed >> 8) % bound;
}

static uint8_t *record_at(uint8_t *data, size_t index) {
    return data + 1 + index * RECORD_BYTES;
}

static size_t insert(uint8_t *data, size_t records, size_t at, size_t count, const uint8_t *from) {
    uint8_t copy[RUN_MAX * RECORD_BYTES];
    memcpy(copy, from, count * RECORD_BYTES);
    memmove(record_at(data, at + count), record_at(data, at), (records - at) * RECORD_BYTES);
    memcpy(record_at(data, at), copy, count * RECORD_BYTES);
    return records + count;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t bytes_max, unsigned seed) {
    uint8_t fresh[RECORD_BYTES];
    size_t records = bytes > 0 ? (bytes - 1) / RECORD_BYTES : 0;
    size_t choice = draw(&seed, 8);
    if (choice < 3 || bytes == 0) {
        return LLVMFuzzerMutate(data, bytes, bytes_max);
    }
    size_t at = draw(&seed, records + 1);
    size_t count = records == 0 ? 0 : draw(&seed, records < RUN_MAX ? records : RUN_MAX) + 1;
    bool has_room = (records + RUN_MAX) * RECORD_BYTES + 1 <= bytes_max;
    switch (choice) {
    case 3: /* one that is new */
        if (!has_room) {
            break;
        }
        for (size_t i = 0; i < RECORD_BYTES; i++) {
            fresh[i] = (uint8_t)draw(&seed, 256);
        }
        records = insert(data, records, at, 1, fresh);
        break;
    case 4: /* some once more, elsewhere */
        if (has_room && count != 0) {
            records = insert(data, records, at, count, record_at(data, draw(&seed, records - count + 1)));
        }
        break;
    case 5: /* some go */
        if (count != 0 && at + count <= records) {
            memmove(record_at(data, at), record_at(data, at + count), (records - at - count) * RECORD_BYTES);
            records -= count;
        }
        break;
    default: /* one field of one changes */
        if (at < records) {
            record_at(data, at)[draw(&seed, RECORD_BYTES)] = (uint8_t)draw(&seed, 256);
        }
        break;
    }
    return 1 + records * RECORD_BYTES;
}
