/*
 * trace_kit.h - a function whose frames can be counted in a call stack, for the suites of trace.h.
 */
#ifndef HAK_TESTS_UNIT_TRACE_KIT_H
#define HAK_TESTS_UNIT_TRACE_KIT_H

#include "check/trace.h"
#include "check/trace_table.h"

/* Keeps the call from becoming a jump. */
#define AFTER_CALL() __asm__ volatile("" : : : "memory")

/* In a section of its own, so that its ends are known. */
__attribute__((noinline, section("take_here_code"))) static const struct hak_trace *
take_here(unsigned depth) {
    const struct hak_trace *trace = depth == 0 ? hak_trace_take() : take_here(depth - 1);
    AFTER_CALL();
    return trace;
}

extern const char __start_take_here_code[], __stop_take_here_code[];

/* How many of the trace's frames lie in take_here(), one after the other. */
static unsigned frames_in_take_here(const struct hak_trace *trace) {
    void *const *frames = NULL;
    unsigned count = hak_trace_frames(trace, &frames);
    unsigned inside = 0;
    for (unsigned i = 0; i < count; i++) {
        inside += (const char *)frames[i] > __start_take_here_code &&
                  (const char *)frames[i] <= __stop_take_here_code;
    }
    return inside;
}

#endif
