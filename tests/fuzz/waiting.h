/*
 * waiting.h - the model's quarantine: which freed blocks checked mode must still keep from use.
 *
 * A block certainly waits while what was freed after it, and itself, hold less than the bound. What could
 * have emptied the quarantine before its time (a failed call, a request that failed) forgets all. In other
 * modes nothing is entered.
 */
#ifndef HAK_TESTS_FUZZ_WAITING_H
#define HAK_TESTS_FUZZ_WAITING_H

#include <stdbool.h>
#include <stddef.h>

/* Whether this process is in checked mode, or samples. Const once hakmem has started. */
bool fuzz_is_checked(void);
bool fuzz_is_sampling(void);

/* The modes that hakmem was started with: those that an input set are put back to these. */
unsigned fuzz_start_modes(void);

/* Enters a block that was just freed. `align` as it was asked for, at least 16. */
void waiting_enter(unsigned char *start, size_t bytes, size_t align);

/* The quarantine may have been emptied. */
void waiting_forget(void);

/* Aborts when a block that certainly waits shares a byte with this range: it was handed out too early. */
void waiting_check_apart(const unsigned char *start, size_t bytes);

/* Aborts unless each of them is what free left: owned by nobody, overwritten from end to end. */
void waiting_check_all(void);

/* Writes to one of them, chosen by a number, and aborts unless hak_verify names it; then puts it right again.
 */
void waiting_damage(unsigned number, size_t offset);

/* Aborts unless hak_verify reports this of the block; the text ends in front of the address. */
void waiting_expect_report(const char *text, const void *block, size_t bytes);

#endif
