/*
 * heap_table.h - the figures of struct hak_stats as a table for people.
 */
#ifndef HAK_PROCESS_HEAP_TABLE_H
#define HAK_PROCESS_HEAP_TABLE_H

#include "base/compiler.h"

/* Totals, the system calls made, and the classes that have slabs. One write per line, no allocation. */
HAK_COLD void hak_heap_table(int fd);

#endif
