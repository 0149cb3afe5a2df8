/*
 * fatal.h - how hakmem ends a program whose heap use is wrong: one line on stderr, then abort.
 *
 * The texts are stable: tests and users' log filters compare them. No allocation, no stdio, no locks.
 */
#ifndef HAK_OS_FATAL_H
#define HAK_OS_FATAL_H

#include "base/compiler.h"

enum hak_fault {
    HAK_FAULT_DOUBLE_FREE,     /* "double free of" : the block is free already */
    HAK_FAULT_INVALID_POINTER, /* "invalid pointer" : inside a block or between blocks */
    HAK_FAULT_NOT_OURS,        /* "pointer not from this heap" */
    HAK_FAULT_HEADER_DAMAGED,  /* "header damaged at" : a header value that no state has */
    HAK_FAULT_USE_OF_FREED,    /* "use of freed block" : realloc or malloc_usable_size of a free block */
    /* Found by checked mode alone: */
    HAK_FAULT_OVERFLOW,         /* "write past the end of" */
    HAK_FAULT_UNDERFLOW,        /* "write before the start of" */
    HAK_FAULT_WRITE_AFTER_FREE, /* "write after free to" */
    HAK_FAULT_WRONG_SIZE,       /* "wrong size for" : sized delete or free_sized */
    HAK_FAULT_WRONG_ALIGNMENT,  /* "wrong alignment for" : aligned delete or free_aligned_sized */
};

/*
 * Writes `hakmem: FUNCTION(): FAULT 0xPOINTER, N-byte block` (the last part only when block_bytes is not 0)
 * and aborts. `function` is the libc function that the program called, as in "free".
 */
HAK_NORETURN void hak_fatal_pointer(const char *function, enum hak_fault fault, const void *pointer,
                                    size_t block_bytes);

/* The line of hak_fatal_pointer() alone, for a report that goes on. */
void hak_fatal_line(const char *function, enum hak_fault fault, const void *pointer, size_t block_bytes);

/* Called between hak_fatal_pointer()'s line and abort, with its pointer, to say more; NULL but in checked
 * mode. Const after start. */
extern void (*hak_fatal_explain)(const void *pointer);

/* Where to write these lines: what hak_fatal_find_fd() says, stderr where that is NULL. Const after start. */
int hak_fatal_fd(void);
extern int (*hak_fatal_find_fd)(void);

/* Writes `hakmem: TEXT` and aborts: for damage that is nobody's pointer. */
HAK_NORETURN void hak_fatal_text(const char *text);

#endif
