/*
 * quarantine.h - freed blocks that wait, oldest first, before their memory serves others.
 *
 * Bounded by the bytes that they hold. Only addresses are kept here; what becomes of a block that leaves is
 * the caller's business. Any thread; one lock of rank QUEUE, held for a moment.
 */
#ifndef HAK_CHECK_QUARANTINE_H
#define HAK_CHECK_QUARANTINE_H

#include "base/compiler.h"
#include "os/lock.h"

/* Sets the bound: blocks leave while more than this waits. */
void hak_quarantine_prepare(size_t bytes_max);

/* Adds a block that holds `bytes` of memory. False when there is no memory to remember it. */
bool hak_quarantine_push(void *block, size_t bytes);

/* Takes the oldest block if more than the bound waits, or any if `to_be_emptied`; NULL when there is none to
 * take. */
void *hak_quarantine_pop(bool to_be_emptied);

/* Drops each block for which is_lost() is true: in the child of a fork, alone. */
void hak_quarantine_forget(bool (*is_lost)(const void *block));

extern struct hak_lock hak_quarantine_lock;

#endif
