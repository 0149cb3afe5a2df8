/*
 * nearest.c - see nearest.h. Levenshtein distance (V. Levenshtein, 1966) with one row of the matrix
 * (R. Wagner, M. Fischer, "The string-to-string correction problem", 1974): O(given * candidate) steps, both
 * bounded by HAK_NEAREST_WORD_BYTES_MAX.
 */
#include "conf/nearest.h"
#include "base/bits.h"
#include <string.h>

static size_t edit_distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    size_t row[HAK_NEAREST_WORD_BYTES_MAX + 1];
    for (size_t j = 0; j <= b_bytes; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = hak_smaller(replaced, hak_smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_bytes];
}

void hak_nearest_begin(struct hak_nearest *nearest, const char *given, size_t bytes) {
    nearest->given = given;
    nearest->given_bytes = bytes;
    nearest->word[0] = '\0';
    nearest->distance = hak_smaller(bytes, HAK_NEAREST_WORD_BYTES_MAX) / 3 + 2;
}

void hak_nearest_offer(struct hak_nearest *nearest, const char *candidate, size_t bytes) {
    if (bytes > HAK_NEAREST_WORD_BYTES_MAX || nearest->given_bytes > HAK_NEAREST_WORD_BYTES_MAX) {
        return;
    }
    size_t distance = edit_distance(nearest->given, nearest->given_bytes, candidate, bytes);
    if (distance < nearest->distance) {
        nearest->distance = distance;
        memcpy(nearest->word, candidate, bytes);
        nearest->word[bytes] = '\0';
    }
}
