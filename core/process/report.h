/*
 * report.h - what hakmem says of itself at exit, when an option asks for it.
 *
 * HAKMEM_STATS, HAKMEM_WARM_POOL_STATS, HAKMEM_TINY_FRONT_METRICS, HAKMEM_TINY_FRONT_DUMP, HAKMEM_CHECK and
 * GUARD_SAMPLE. No allocation, no stdio, no locks of its own; a process that sets none of them makes no
 * system call here.
 */
#ifndef HAK_PROCESS_REPORT_H
#define HAK_PROCESS_REPORT_H

#include "base/compiler.h"

/* At start, after the options are read: keeps stderr for the end, if anything is to be written there. */
void hak_report_prepare(void);

/* In the child of a fork. */
void hak_report_child_begin(void);

/* At exit, before the rest: fatal lines too go to what was kept, since the program may have closed stderr. */
void hak_report_begin_end(void);

/* At exit, once: writes what the options ask for. */
void hak_report_write(void);

#endif
