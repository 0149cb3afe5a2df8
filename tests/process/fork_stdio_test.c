/*
 * fork_stdio_test.c - threads fork while others hold the C library's locks of streams and allocate.
 *
 * suite: limit 1000 s
 * fork takes the lock of the list of streams, fflush(NULL) takes it and then each stream's, and getline holds
 * its stream's while it calls realloc. A fork handler that holds the heap's locks when fork asks for the list
 * closes the circle: so hakmem's takes the list first.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/soak.h"
#include "support/target.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKERS    2u
#define READERS    6u
#define LIMIT_S    300u /* a machine that is busy with other things makes no deadlock */
#define LINE_BYTES 50000u

static atomic_bool is_over;
static char text[LINE_BYTES];

static void *fork_until_over(void *unused) {
    while (!atomic_load(&is_over)) {
        int status = 0;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            alarm(LIMIT_S);
            CHECK(fflush(NULL) == 0); /* the child has the locks of streams in order too */
            free(malloc(100000));
            _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    return unused;
}

/* The line is long: its buffer grows while the stream is locked. */
static void *read_until_over(void *unused) {
    while (!atomic_load(&is_over)) {
        char *line = NULL;
        size_t room = 0;
        FILE *lines = fmemopen(text, sizeof text, "r");
        CHECK(lines != NULL && getline(&line, &room, lines) == (ssize_t)sizeof text);
        free(line);
        CHECK(fclose(lines) == 0);
    }
    return unused;
}

static void *flush_until_over(void *unused) {
    while (!atomic_load(&is_over)) {
        CHECK(fflush(NULL) == 0);
    }
    return unused;
}

static int run_all(void *unused) {
    (void)unused;
    memset(text, 'x', sizeof text);
    pthread_t threads[FORKERS + READERS + 1];
    for (unsigned i = 0; i < COUNT_OF(threads); i++) {
        void *(*body)(void *) = i < FORKERS             ? fork_until_over
                                : i < FORKERS + READERS ? read_until_over
                                                        : flush_until_over;
        CHECK(pthread_create(&threads[i], NULL, body, NULL) == 0);
    }
    for (time_t end = soak_end(); soak_goes_on(end);) {
        usleep(100000);
    }
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < COUNT_OF(threads); i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    check_heap();
    return 0;
}

static struct child child;

static void fork_waits_for_no_stream(void **state) {
    (void)state;
    child = (struct child){.function = run_all,
                           .timeout_s = LIMIT_S + (test_scale() > 1 ? SOAK_LONG_S : SOAK_QUICK_S)};
    child_run(&child);
    assert_child_succeeded(&child);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fork_waits_for_no_stream)};
    return cmocka_run_group_tests_name("fork and stdio", tests, NULL, heap_is_sound);
}
