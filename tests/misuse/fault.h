/*
 * fault.h - the frame of a program that commits one heap fault, chosen by name, and states what must follow.
 *
 * `PROGRAM` alone prints the names of its cases. `PROGRAM CASE` prints, one a line, the texts that may stand
 * on stderr after "hakmem: ", then commits the fault. misuse_test.sh compares. Coming back from a fault
 * prints "survived", then "handed out twice" if new blocks overlap, and exits 3; `table` compares allocators
 * so. These programs know nothing of hakmem.
 */
#ifndef HAK_TESTS_MISUSE_FAULT_H
#define HAK_TESTS_MISUSE_FAULT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define TIME_LIMIT_S  60  /* of processor time */
#define SLEEP_LIMIT_S 600 /* of the clock: the machine may stand still for minutes */

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/* One size of each kind of block that hakmem has; those of a case's name. */
struct fault_size {
    const char *name;
    size_t bytes;
};
static const struct fault_size fault_sizes[] = {
    {"16", 16},       {"64", 64},         {"1000", 1000},   {"5000", 5000},
    {"30000", 30000}, {"100000", 100000}, {"2m", 2u << 20}, {"30m", 30u << 20},
};

/* The pointer, with all that the compiler knows about it forgotten. */
static inline void *launder(void *pointer) {
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}

static inline void say(const char *text) {
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) {
        _exit(4);
    }
}

/* States a line: FUNCTION(): FAULT 0xPOINTER, BYTES-byte block; without the last part when bytes is 0. */
static inline void expect(const char *function, const char *fault, const void *pointer, size_t bytes) {
    char line[256];
    int used = snprintf(line, sizeof line, "%s(): %s 0x%jx", function, fault, (uintmax_t)(uintptr_t)pointer);
    if (bytes != 0) {
        snprintf(line + used, sizeof line - (size_t)used, ", %zu-byte block", bytes);
    }
    say(line);
    say("\n");
}

/* Memory without which a case has nothing to test. */
static inline void *must(void *block) {
    if (block == NULL) {
        say("no memory\n");
        _exit(5);
    }
    return block;
}

static inline void on_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0 || pthread_join(thread, NULL) != 0) {
        say("no thread\n");
        _exit(5);
    }
}

/* What hangs ends: SIGXCPU if it turns in circles, SIGALRM if it sleeps. */
static inline void fault_limit_time(void) {
    struct rlimit processor = {TIME_LIMIT_S, RLIM_INFINITY};
    setrlimit(RLIMIT_CPU, &processor);
    alarm(SLEEP_LIMIT_S);
}

static inline void fault_setup(void) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    fault_limit_time();
}

static inline int fault_survived(void) {
    say("survived\n");
    return 3;
}

#define PROBED_BYTES_MAX ((size_t)64 << 20)
#define PROBED_BLOCKS    1000u

/* Says so when two blocks of the size, allocated now, are one: what the fault has done to the heap. */
static inline void fault_aftermath(size_t bytes) {
    static void *blocks[PROBED_BLOCKS];
    size_t count = PROBED_BYTES_MAX / bytes < PROBED_BLOCKS ? PROBED_BYTES_MAX / bytes : PROBED_BLOCKS;
    for (size_t i = 0; i < count; i++) {
        blocks[i] = must(malloc(bytes));
        memcpy(blocks[i], &i, sizeof i);
    }
    for (size_t i = 0; i < count; i++) {
        if (memcmp(blocks[i], &i, sizeof i) != 0) {
            say("handed out twice\n");
            return;
        }
    }
}

struct fault_case {
    const char *name;
    void (*commit)(void);
};

/*
 * main() of a program whose cases are run for every size: without an argument it lists their names, CASE
 * JOINT SIZE, with one it prepares for the size, commits that fault and should not come back.
 */
static inline int fault_main(int argc, char **argv, const char *joint, const struct fault_case *cases,
                             size_t count, void (*prepare)(size_t bytes)) {
    fault_setup();
    for (size_t i = 0; i < count * COUNT_OF(fault_sizes); i++) {
        const struct fault_case *chosen = &cases[i / COUNT_OF(fault_sizes)];
        const struct fault_size *size = &fault_sizes[i % COUNT_OF(fault_sizes)];
        char name[80];
        snprintf(name, sizeof name, "%s%s%s", chosen->name, joint, size->name);
        if (argc < 2) {
            say(name);
            say("\n");
        } else if (strcmp(argv[1], name) == 0) {
            prepare(size->bytes);
            chosen->commit();
            int status = fault_survived();
            fault_aftermath(size->bytes);
            return status;
        }
    }
    return argc < 2 ? 0 : 6;
}

#endif
