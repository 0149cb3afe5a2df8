/*
 * unwind.h - from a frame of a call stack to its caller's, by the tables that compilers leave for exceptions.
 *
 * What a table says of a return address is a rule of a few bytes: where the caller's frame begins, from the
 * stack or the frame pointer, and where that pointer was saved. Rules are remembered by address, so that a
 * frame costs a look-up. What no such rule can say (signal frames, expressions, tables in rare encodings,
 * code without one, other processors than x86-64) is left to others. The format: DWARF 5, 6.4, and the LSB's
 * .eh_frame and .eh_frame_hdr.
 *
 * Any thread, no lock held or taken. A remembered rule of code that was unloaded may be used for what is
 * loaded there next, so the caller must not trust what it comes to: he bounds the addresses that are read and
 * looks where the walk arrives.
 */
#ifndef HAK_CHECK_UNWIND_H
#define HAK_CHECK_UNWIND_H

#include "base/compiler.h"

/* A frame: the address that its function will go on at, and the two registers as they are there. */
struct hak_frame {
    uintptr_t address;
    uintptr_t stack;
    uintptr_t base;
    bool is_outermost; /* set by a step that was not taken because nobody called this function */
    bool is_bare;      /* set by a step that was not taken because no tables are loaded there */
    bool is_read_anew; /* each rule: it must be right, or there are few */
    bool is_unbound;   /* how far the stack goes is not known: the kernel is asked for each page */
    uintptr_t page;    /* of an unbound stack, that may be read */
};

/* In a constructor: makes room for rules. Before it, and when it returns false, no step is taken. */
bool hak_unwind_prepare(void);

/*
 * Makes *frame its caller's. Reads only words between `low` and `high`, of a stack that grows down. False,
 * and the registers of *frame in no defined state, when a rule leads elsewhere; as they were when there is
 * none.
 */
bool hak_unwind_step(struct hak_frame *frame, uintptr_t low, uintptr_t high);

/* Whether by the remembered rules a base pointer leads from each of these return addresses to the next. */
bool hak_unwind_is_chain(void *const *frames, unsigned count);

#endif
