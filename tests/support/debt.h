/*
 * debt.h - memory that is to go back, as far as those who free blocks can see.
 */
#ifndef HAK_TESTS_SUPPORT_DEBT_H
#define HAK_TESTS_SUPPORT_DEBT_H

#include "base/hint.h"
#include "slab/purge.h"

/* Somebody gave units back a moment ago. Nobody has looked yet whether anything is to go back for it. */
static inline void debt_note(void) {
    hak_hint_set(&hak_purge_debt, true);
}

/* A step has ended at its bound with more to give back. */
static inline void debt_outlast_a_step(void) {
    hak_hint_set(&hak_purge_behind, true);
    debt_note();
}

#endif
