/*
 * unwind_table.h - reads what the tables of .eh_frame say of one address. Slow; any thread, no lock.
 */
#ifndef HAK_CHECK_UNWIND_TABLE_H
#define HAK_CHECK_UNWIND_TABLE_H

#include "base/compiler.h"

/* How to go from a frame to its caller's, in words of 8 bytes; 8 bytes in all. */
struct hak_unwind_rule {
    uint32_t outer_words; /* from the stack or the base pointer up to the caller's stack pointer */
    uint16_t
        base_words; /* below that, where the caller's base pointer was saved; 0: nowhere, it is as it was */
    uint8_t is_from_base : 1; /* the base pointer, not the stack pointer */
    uint8_t is_outermost : 1; /* nobody called the function: a program's or thread's start */
    uint8_t is_bare : 1;      /* not known, and by nobody: no object with tables is there */
    uint8_t is_known;
};

/* Whether the loader can be asked for tables, and this processor's are known. After hak_check_find_libc(). */
bool hak_unwind_can_read_tables(void);

/* The rule for the return address; is_known 0 when none is found, or none that can be said so. */
struct hak_unwind_rule hak_unwind_read_rule(uintptr_t return_address);

#endif
