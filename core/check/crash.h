/*
 * crash.h - the report of a fault at a guard page, written from the handler of SIGSEGV.
 *
 * A fault elsewhere goes to the program's own handler at once, and if it has none to the kernel, so that the
 * exit signal stays. After a report it goes the same way. A handler that the program installs later takes
 * this one's place; it is found at a later guarded allocation and put behind this one, with its flags and
 * mask. What it found itself, to hand signals on to or to put back, leads to what stood there before it. That
 * holds for as many actions as there are entries (crash.c); one that comes later is left in front.
 *
 * Where the signal is ignored it stays so, and there is no report.
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
