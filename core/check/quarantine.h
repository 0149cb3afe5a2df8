/*
 * quarantine.h - freed blocks that wait, oldest first, before their memory serves others.
 *
 * Bounded by the memory that they hold and by the address space that they keep from the program. Only
 * addresses are kept here; what becomes of a block that leaves is the caller's business. Any thread; one lock
 * of rank QUEUE, held for a moment.
 */
#ifndef HAK_CHECK_QUARANTINE_H
#define HAK_CHECK_QUARANTINE_H

#include "base/compiler.h"
#include "os/lock.h"

/* What a block that waits costs. */
struct hak_held {
    size_t bytes;       /* of memory */
    size_t space_bytes; /* of address space that serves nothing else meanwhile */
};

/* Sets the bounds: blocks leave while more than this waits. In a constructor. */
void hak_quarantine_prepare(struct hak_held bounds);

/* Adds a block. False when it keeps more address space than may be kept in all, or there is no memory to
 * remember it. */
bool hak_quarantine_push(void *block, struct hak_held held);

/* Takes the oldest block (of those that keep address space, if that is too much) while more than the bounds
 * allow waits, or any if `to_be_emptied`; NULL when there is none to take. */
void *hak_quarantine_pop(bool to_be_emptied);

/* Drops each block for which is_lost() is true: in the child of a fork, alone. */
void hak_quarantine_forget(bool (*is_lost)(const void *block));

extern struct hak_lock hak_quarantine_lock;

#endif
