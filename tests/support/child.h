/*
 * child.h - runs a function or a program in a child process and keeps what it printed and how it ended.
 *
 * Results live in the caller's struct; nothing is allocated between fork and the child's function.
 */
#ifndef HAK_TESTS_SUPPORT_CHILD_H
#define HAK_TESTS_SUPPORT_CHILD_H

#include <stdbool.h>
#include <stddef.h>

#define CHILD_OUTPUT_MAX 16384u
#define CHILD_ARGS_MAX   8u

struct child {
    /* in: one of program (with arguments, NULL at the end) or function, called with context in the child */
    const char *program;
    const char *arguments[CHILD_ARGS_MAX];
    int (*function)(void *context);
    void *context;
    /* in: called in the child before program is executed; other than 0 ends the child with status 126 */
    int (*prepare)(void *context);
    /* in: NAME=VALUE sets, NAME alone removes a variable, NULL at the end */
    const char *environment[CHILD_ARGS_MAX];
    unsigned timeout_s; /* 0: 60 */

    /* out */
    int status; /* as waitpid gives it */
    bool is_timed_out;
    size_t out_bytes, err_bytes;
    char out[CHILD_OUTPUT_MAX]; /* cut to size, ended by a zero byte */
    char err[CHILD_OUTPUT_MAX];
};

/* Runs the child to its end. */
void child_run(struct child *child);

/* True when it exited with status 0 in time. */
bool child_succeeded(const struct child *child);

/* Exit status, or -1 when it did not exit by itself. */
int child_exit_status(const struct child *child);

/* The signal that ended it, 0 when none did. */
int child_signal(const struct child *child);

/* Prints how the child ended and what it wrote, for a failing test. */
void child_report(const struct child *child);

/* cmocka: fails the test, with a report, unless the child succeeded. 77 as exit status skips the test. */
void assert_child_succeeded(const struct child *child);

/* cmocka: the same for a function that is called in a child of its own. */
void assert_function_succeeds(int (*function)(void *context));

/*
 * cmocka: the same for a part of this program that its main() knows by that argument: a process of its own,
 * in ordinary mode, with one setting of its environment or, for NULL, with none.
 */
void assert_part_succeeds(const char *part, const char *setting);

struct part {
    const char *name;
    int (*run)(void); /* returns the exit status */
};

/* For main(): the part that the program was started for; NULL when that is none of them. */
const struct part *part_asked_for(const struct part *parts, size_t count, int argc, char **argv);

/* Path of the running program, and of a file beside it (static buffers). */
const char *own_path(void);
const char *path_beside(const char *name);

/* Status for "cannot be tested here"; the child says why on stdout. */
#define CHILD_SKIP 77

#endif
