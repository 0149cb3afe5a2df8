/*
 * fill.h - what blocks are overwritten with where the program asked for it: M_PERTURB, HAKMEM_ZERO_ON_FREE.
 */
#ifndef HAK_HEAP_FILL_H
#define HAK_HEAP_FILL_H

#include "base/compiler.h"
#include <stddef.h>
#include <stdint.h>

/* The byte of M_PERTURB, for the mode HAK_FRONT_PERTURB (front.h). */
void hak_fill_set(uint8_t perturb_byte);

/* Fills a new block that need not be zero, if it must be. */
void hak_fill_new(void *block, size_t bytes);

/* Whether freed blocks are overwritten. */
bool hak_fill_is_of_freed(void);

/* Overwrites a block that is about to be freed; it is whole OS pages if it is large. */
void hak_fill_freed(void *block, size_t bytes);

#endif
