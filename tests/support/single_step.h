/*
 * single_step.h - one thread stops after each instruction of the library that it executes, and another does
 * something there: what a preemption at that very point, the worst one, would let happen.
 *
 * By the processor's trap flag, so for x86-64 alone. A lock that the stopped thread holds and the other one
 * wants would stop both for ever: a stop lasts some ten milliseconds at most, then the thread goes on step by
 * step without further stops until the other is through. While a thread steps SIGTRAP must not be blocked, as
 * it is inside pthread_create() and at the very end of a thread.
 */
#ifndef HAK_TESTS_SUPPORT_SINGLE_STEP_H
#define HAK_TESTS_SUPPORT_SINGLE_STEP_H

#include <stdbool.h>
#include <stdint.h>

/* False: not this processor, or the library is not a shared one. */
bool single_step_is_possible(void);

/* Starts the other thread, which calls between() at each stop. */
void single_step_start(void (*between)(void));

/* Ends it. */
void single_step_end(void);

/* From here to single_step_off() the calling thread stops after each `stride`-th of its instructions that lie
 * in the library; 0: never, they are counted alone. */
void single_step_on(unsigned stride);
void single_step_off(void);

/* For between(): the stopped thread stops until between() returns, however long that takes. To be called when
 * no lock is waited for any more. */
void single_step_hold(void);

/* The instructions in the library since the last call of this, and the stops at which between() was called.
 */
struct single_steps {
    unsigned long instructions, stops;
};
struct single_steps single_step_counts(void);

/* Where in the library's file the thread stopped last: for a failure's message. */
uintptr_t single_step_where(void);

#endif
