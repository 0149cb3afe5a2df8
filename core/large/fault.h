/*
 * fault.h - the fatal line of a pointer that is not the start of a live large block.
 */
#ifndef HAK_LARGE_FAULT_H
#define HAK_LARGE_FAULT_H

#include "os/fatal.h"

/*
 * Says what `p` is and ends the program. The start of a block that is free: `fault_of_freed`, with that
 * block's size. Inside a live block: "invalid pointer" with the size of that block. Else: "invalid pointer".
 * No lock held.
 */
HAK_NORETURN void hak_large_fault(const char *function, enum hak_fault fault_of_freed, const void *p);

#endif
