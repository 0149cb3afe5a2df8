/*
 * trace.h - call stacks: taken from the running thread; trace_table.h keeps them.
 *
 * A stack is walked by frame pointers where the chain of them is whole and the compiler's tables say that it
 * leaves nobody out, else by what unwind.h remembers of those tables, else by libc's backtrace(), which reads
 * all of them: exact, some 140 ns a frame.
 * Frames of the shared library itself are left out. Where stacks are taken seldom, libc is not asked if the
 * tables can be read, since that loads another library: a stack then ends at a frame for which there is no
 * rule, a signal's for one.
 *
 * Any thread, no lock held or taken, errno left alone. A thread's first trace asks pthreads where its stack
 * is, which may allocate (so not where another malloc stands before ours); what allocates inside gets no
 * trace. For the thread that prepares, that is done then. Where the program itself asks pthreads just then,
 * it is left to the next trace.
 */
#ifndef HAK_CHECK_TRACE_H
#define HAK_CHECK_TRACE_H

#include "base/compiler.h"

#define HAK_TRACE_FRAMES_MAX 32u

struct hak_trace; /* NULL: no stack was kept */

/* How many frames each trace has at most from now on, 0 to HAK_TRACE_FRAMES_MAX; 0 keeps none. And whether
 * few traces will be taken. In a constructor. */
void hak_trace_prepare(unsigned frames, bool is_seldom);

/* The stack of the calling thread. NULL when none could be taken, kept, or is wanted. */
const struct hak_trace *hak_trace_take(void);

/* The same from where a signal interrupted the thread: the frame's address is one past the instruction's. */
struct hak_frame;
const struct hak_trace *hak_trace_take_from(const struct hak_frame *frame);

#endif
