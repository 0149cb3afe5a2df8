/*
 * verify.h - every invariant of the heap, checked.
 */
#ifndef HAK_PROCESS_VERIFY_H
#define HAK_PROCESS_VERIFY_H

#include "base/compiler.h"
/* NULL, or a sentence about the first broken invariant. Any thread; no lock held. */
HAK_COLD const char *hak_process_verify(void);

#endif
