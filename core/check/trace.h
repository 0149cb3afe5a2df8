/*
 * trace.h - call stacks: taken from the running thread, kept once each, looked at again.
 *
 * A stack is walked by frame pointers where the chain of them is whole, else by what unwind.h remembers of
 * the compiler's tables, else by libc's backtrace(), which reads all of them: exact, some 140 ns a frame.
 * Frames of the shared library itself are left out. Equal stacks are one record, which lives as long as the
 * process.
 *
 * Any thread, no lock held or taken, errno left alone. A thread's first trace asks pthreads where its stack
 * is, which may allocate; what allocates inside gets no trace.
 */
#ifndef HAK_CHECK_TRACE_H
#define HAK_CHECK_TRACE_H

#include "base/compiler.h"

#define HAK_TRACE_FRAMES_MAX 32u

struct hak_trace; /* NULL: no stack was kept */

/* How many frames each trace has at most from now on, 0 to HAK_TRACE_FRAMES_MAX; 0 keeps none. In a
 * constructor. */
void hak_trace_prepare(unsigned frames);

/* The stack of the calling thread. NULL when none could be taken, kept, or is wanted. */
const struct hak_trace *hak_trace_take(void);

/* Its return addresses, the innermost first. 0 for NULL. */
unsigned hak_trace_frames(const struct hak_trace *trace, void *const **frames);

/* For the list at exit, by one thread: sums that stand with each trace, and the one with the most bytes,
 * whose sums become 0. NULL when none has any. */
struct hak_tally {
    size_t blocks, bytes;
};
void hak_trace_tally(const struct hak_trace *trace, size_t bytes);
const struct hak_trace *hak_trace_take_largest(struct hak_tally *tally);

/* Bytes of the records that are kept. */
size_t hak_trace_kept_bytes(void);

#endif
