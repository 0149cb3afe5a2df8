/*
 * fibers.c - a scenario's threads: stacks of their own, switched by hand, each with its own copy of the
 * library's thread-local data, which is exchanged at every switch.
 */
#define _GNU_SOURCE
#include "model/checker.h"
#include <link.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK_BYTES ((size_t)256 * 1024)
#define TLS_MAX     2048u

unsigned current_thread = NOBODY;
bool is_exploring;

static struct {
    void *stack;
    ucontext_t first;
    jmp_buf base; /* at the fiber's loop: where it waits for something to run */
    jmp_buf here;
    void (*run)(void);
    char tls[TLS_MAX];
    char saved_tls[TLS_MAX];
} fibers[THREADS];

static jmp_buf search;
static char *tls_block; /* of the library, in this thread of the system */
static size_t tls_bytes;

static int find_tls(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    (void)context;
    if (strstr(info->dlpi_name, "libmodelled.so") == NULL) {
        return 0;
    }
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            tls_block = info->dlpi_tls_data;
            tls_bytes = info->dlpi_phdr[i].p_memsz;
        }
    }
    return 1;
}

static void to_search(void) {
    _longjmp(search, 1);
}

/* Where every fiber lives: runs what it is given, over and over. */
static void live(void) {
    unsigned t = current_thread;
    if (_setjmp(fibers[t].base) == 0) {
        to_search();
    }
    t = current_thread;
    fibers[t].run();
    fiber_quit();
}

static void switch_in(unsigned t) {
    current_thread = t;
    memcpy(tls_block, fibers[t].tls, tls_bytes);
}

/* After control came back from fiber t. */
static void switch_out(unsigned t) {
    memcpy(fibers[t].tls, tls_block, tls_bytes);
    current_thread = NOBODY;
}

void fibers_create(void) {
    dl_iterate_phdr(find_tls, NULL);
    if (tls_block == NULL || tls_bytes > TLS_MAX) {
        fprintf(stderr, "model: no thread-local data of the library, or too much\n");
        exit(2);
    }
    for (unsigned t = 0; t < THREADS; t++) {
        fibers[t].stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(fibers[t].tls, tls_block, tls_bytes);
        getcontext(&fibers[t].first);
        fibers[t].first.uc_stack.ss_sp = fibers[t].stack;
        fibers[t].first.uc_stack.ss_size = STACK_BYTES;
        makecontext(&fibers[t].first, live, 0);
        current_thread = t;
        if (_setjmp(search) == 0) {
            setcontext(&fibers[t].first);
        }
        current_thread = NOBODY;
    }
}

void fiber_start(unsigned t, void (*run)(void)) {
    fibers[t].run = run;
    switch_in(t);
    if (_setjmp(search) == 0) {
        _longjmp(fibers[t].base, 1);
    }
    switch_out(t);
}

void fiber_resume(unsigned t) {
    switch_in(t);
    if (_setjmp(search) == 0) {
        _longjmp(fibers[t].here, 1);
    }
    switch_out(t);
}

void fiber_yield(void) {
    if (_setjmp(fibers[current_thread].here) == 0) {
        to_search();
    }
}

void fiber_quit(void) {
    to_search();
    __builtin_unreachable();
}

void fiber_run_as(unsigned t, void (*run)(void)) {
    switch_in(t);
    run();
    switch_out(t);
}

void fibers_save(void) {
    for (unsigned t = 0; t < THREADS; t++) {
        memcpy(fibers[t].saved_tls, fibers[t].tls, tls_bytes);
    }
}

void fibers_restore(void) {
    for (unsigned t = 0; t < THREADS; t++) {
        memcpy(fibers[t].tls, fibers[t].saved_tls, tls_bytes);
    }
}
