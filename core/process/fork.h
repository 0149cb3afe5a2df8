/*
 * fork.h - a consistent heap on both sides of fork().
 */
#ifndef HAK_PROCESS_FORK_H
#define HAK_PROCESS_FORK_H

/* Registers the handlers; once, from the constructor. */
void hak_fork_register(void);

#endif
