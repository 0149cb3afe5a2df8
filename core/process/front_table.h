/*
 * front_table.h - the counters of heap/counters.h as text: per class, for people and as CSV.
 *
 * The columns follow HAK_FRONT_COUNTERS. Sums over all threads, living and gone; while threads run, each is
 * right for some moment. One write per line, no allocation.
 */
#ifndef HAK_PROCESS_FRONT_TABLE_H
#define HAK_PROCESS_FRONT_TABLE_H

#include "base/compiler.h"

/* Warm pool hits, misses and prefills of the classes that used it, and their sums. */
HAK_COLD void hak_warm_pool_table(int fd);

/* Every counter of the classes that were used, and their sums. */
HAK_COLD void hak_front_table(int fd);

/* CSV: a line of column names, then one line for each class, used or not. */
HAK_COLD void hak_front_dump(int fd);

#endif
