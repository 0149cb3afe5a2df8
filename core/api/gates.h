/*
 * gates.h - what the files of this floor share: entry points that name the caller's function in fatal lines.
 */
#ifndef HAK_API_GATES_H
#define HAK_API_GATES_H

#include "hakmem.h"

/* free() under another name. */
void hak_free_as(const char *function, void *block);

#endif
