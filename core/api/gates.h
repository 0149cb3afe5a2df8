/*
 * gates.h - what the files of this floor share: entry points that name the caller's function in fatal lines.
 */
#ifndef HAK_API_GATES_H
#define HAK_API_GATES_H

#include "hakmem.h"

/* free() under another name, with what the caller claims of the block: see struct hak_claim. */
void hak_free_claiming_as(const char *function, void *block, size_t bytes, size_t align);

#endif
