/*
 * nearest.h - which of the words that were possible the user probably meant.
 *
 * Knows nothing of options: candidates are offered one by one. No allocation.
 */
#ifndef HAK_CONF_NEAREST_H
#define HAK_CONF_NEAREST_H

#include "base/compiler.h"

#define HAK_NEAREST_WORD_BYTES_MAX 32u

/* Owner: the caller. The best candidate so far; `distance` starts at what still counts as a slip. */
struct hak_nearest {
    const char *given;
    size_t given_bytes;
    char word[HAK_NEAREST_WORD_BYTES_MAX + 1]; /* "" while no candidate was near enough */
    size_t distance;                           /* edits; a candidate must stay below to replace `word` */
};

/* Starts a search for what is like the first `bytes` characters of `given`. */
void hak_nearest_begin(struct hak_nearest *nearest, const char *given, size_t bytes);

/* Offers a candidate of `bytes` characters; the first one among equals stays. */
void hak_nearest_offer(struct hak_nearest *nearest, const char *candidate, size_t bytes);

#endif
