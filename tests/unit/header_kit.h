/*
 * header_kit.h - for suites that look at the headers of blocks.
 */
#ifndef HAK_TESTS_UNIT_HEADER_KIT_H
#define HAK_TESTS_UNIT_HEADER_KIT_H

#include "heap/front.h"
#include "support/test.h"

/* Of a block that starts there; the test fails where none can. */
static inline hak_header *header_of(const void *block) {
    struct block_place place = hak_place_in(hak_registry_word(block), block);
    CHECK(place.is_exact);
    return hak_place_header(&place);
}

static inline unsigned header_value(const hak_header *header) {
    return hak_atomic_load_relaxed(header); /* relaxed: nobody else stores */
}

#endif
