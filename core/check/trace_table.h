/*
 * trace_table.h - the call stacks that are kept: equal ones are one record, which lives as long as the
 * process.
 *
 * A hash table whose records are only ever added, so that any thread finds and adds without a lock.
 */
#ifndef HAK_CHECK_TRACE_TABLE_H
#define HAK_CHECK_TRACE_TABLE_H

#include "base/compiler.h"

struct hak_trace; /* NULL: no stack was kept */

/* Makes the table; 0 or an errno value. In a constructor, before the rest. */
int hak_trace_table_prepare(void);

/* The record of a stack, its return addresses from the innermost on. NULL when it has no room or memory. Any
 * thread. */
const struct hak_trace *hak_trace_keep(void *const *frames, unsigned count);

/* Its return addresses, the innermost first. 0 for NULL. */
unsigned hak_trace_frames(const struct hak_trace *trace, void *const **frames);

/* For the list at exit, by one thread: sums that stand with each trace, and the one with the most bytes,
 * whose sums become 0. NULL when none has any. */
struct hak_trace_sums {
    size_t blocks, bytes;
};
void hak_trace_add(const struct hak_trace *trace, size_t bytes);
const struct hak_trace *hak_trace_take_largest(struct hak_trace_sums *sums);

/* Visits the table itself; the records are metadata. Any thread. */
void hak_trace_table_visit_mapped(hak_range_visitor visitor, void *context);

/* Bytes of the records that are kept. */
size_t hak_trace_kept_bytes(void);

#endif
