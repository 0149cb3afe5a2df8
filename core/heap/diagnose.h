/*
 * diagnose.h - what is wrong with a pointer: the slow, exact look that ends the program or finds nothing
 * wrong.
 */
#ifndef HAK_HEAP_DIAGNOSE_H
#define HAK_HEAP_DIAGNOSE_H

#include "meta/registry.h"
#include "os/fatal.h"
#include "slab/header_map.h"

/*
 * How pointers that the registry does not know are handled: all NULL (a fatal line), unless
 * HAKMEM_DEEPBIND=keep, which hands them to the C library's own functions. Written before the program has
 * threads.
 */
struct hak_foreign {
    void (*free)(void *block);
    void *(*realloc)(void *block, size_t bytes);
    size_t (*usable_size)(void *block);
};
extern struct hak_foreign hak_foreign;

/* Whether the pointer with that registry word is one for the large floor to judge. */
bool hak_is_large(const void *pointer, hak_word word);

/*
 * The header of the live block of a slab that starts at `pointer`, with its class in *class_idx: that of the
 * one look that found it live, since another thread may free it too. Ends the program if it is anything else,
 * naming `function`; a block that is free already is `freed_fault`. NULL for a pointer that hak_foreign
 * takes, and for one into a unit of kind GUARDED. Not for blocks of the large floor.
 */
hak_header *hak_live_header_or_die(const char *function, const void *pointer, enum hak_fault freed_fault,
                                   unsigned *class_idx);

#endif
