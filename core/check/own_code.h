/*
 * own_code.h - where this library's code lies, and whether the process calls another malloc than its.
 *
 * Another malloc, the program's own for one, is called by libc too. It may not bear that before main() has
 * set it up, nor while it waits for this library under a lock. So where there is one, nothing of libc may be
 * called that allocates. Const after hak_own_code_find(). An archive's code is part of the program: low and
 * high are 0, and its malloc is taken for what the program calls.
 */
#ifndef HAK_CHECK_OWN_CODE_H
#define HAK_CHECK_OWN_CODE_H

#include "base/compiler.h"

struct hak_own_code {
    uintptr_t low, high;
    bool has_other_malloc;
};
extern struct hak_own_code hak_own_code;

/* In a constructor, after hak_check_find_libc(). Does not allocate. */
void hak_own_code_find(void);

#endif
