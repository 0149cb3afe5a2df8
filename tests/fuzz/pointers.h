/*
 * pointers.h - what the files of the target pointers.c share.
 */
#ifndef HAK_TESTS_FUZZ_POINTERS_H
#define HAK_TESTS_FUZZ_POINTERS_H

#include "fuzz/shadow.h"

struct grave {
    unsigned char *start;
    size_t bytes; /* usable ones */
};

/* What a fatal line must say. */
struct verdict {
    const char *text; /* NULL: that of a freed block, or any that the wrong pointer of unknown past may get */
    bool is_freed;
    bool may_be_freed;  /* a block that checked mode remembers may have begun there */
    size_t block_bytes; /* 0: not said */
};

/*
 * Gives the pointer to the function with that number, in a child. `block` is the live block that starts
 * there, or NULL: then the child must die as the verdict says (or nothing happens, if the pointer is NULL).
 */
void pointers_give(unsigned function, void *pointer, const struct shadow_block *block,
                   const struct verdict *verdict);

#endif
