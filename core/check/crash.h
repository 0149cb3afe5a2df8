/*
 * crash.h - the report of a fault at a guard page, written from the handler of SIGSEGV.
 *
 * A fault elsewhere goes to the program's own handler at once, and if it has none to the kernel, so that the
 * exit signal stays. After a report it goes the same way. A handler that the program installs later takes
 * this one's place; it is found at a later guarded allocation and put behind this one, with its flags and
 * mask. Such a handler may hand the signal on to this one, which it found: then the signal ends the program.
 */
#ifndef HAK_CHECK_CRASH_H
#define HAK_CHECK_CRASH_H

#include "base/compiler.h"
#include "os/lock.h"

/* Installs the handler, or puts it in front again. Any thread. */
void hak_crash_catch(void);

/* For fork. */
extern struct hak_lock hak_crash_lock;

#endif
