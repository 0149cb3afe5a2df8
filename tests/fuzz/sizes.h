/*
 * sizes.h - requests out of two bytes of a fuzzer's input, most of them where something changes: at the edges
 * of classes, pages, units, of the large floor and of what can be represented.
 */
#ifndef HAK_TESTS_FUZZ_SIZES_H
#define HAK_TESTS_FUZZ_SIZES_H

#include <stddef.h>
#include <stdint.h>

/* Any size, absurd ones too. */
size_t size_of_code(uint16_t code);

/* Any alignment, from 0 to 2^63, some of them no power of two. */
size_t alignment_of_code(uint8_t code);

#endif
