/*
 * single_step.c - see single_step.h. The signal handler and the other thread take turns by one state.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/single_step.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#define NAP_NS       20000
#define NAPS_OF_STOP 500 /* 10 ms and more: somebody else may be waiting for the stopped thread */

enum state { FREE, STOPPED, HELD, DONE, ENDED };

static _Atomic enum state state;
static void (*between_steps)(void);
static pthread_t other;
static unsigned stride_now;
static uintptr_t load_address, code_begin, code_end;
static atomic_ulong instructions, stops;
static _Atomic uintptr_t where;

static int find_library(struct dl_phdr_info *info, size_t bytes, void *unused) {
    (void)bytes;
    (void)unused;
    if (library_path() == NULL || strcmp(info->dlpi_name, library_path()) != 0) {
        return 0;
    }
    load_address = info->dlpi_addr;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) != 0) {
            uintptr_t begin = load_address + segment->p_vaddr;
            code_begin = code_begin == 0 || begin < code_begin ? begin : code_begin;
            code_end = begin + segment->p_memsz > code_end ? begin + segment->p_memsz : code_end;
        }
    }
    return 1;
}

static void nap(void) {
    struct timespec time = {.tv_nsec = NAP_NS};
    (void)nanosleep(&time, NULL);
}

/* Of the stepping thread: what the other one is through with is over. */
static void take_up(void) {
    while (atomic_load(&state) == HELD) {
        nap();
    }
    if (atomic_load(&state) == DONE) {
        atomic_store(&state, FREE);
    }
}

static void stop_at(uintptr_t address) {
    atomic_store(&where, address - load_address);
    atomic_store(&state, STOPPED);
    for (unsigned naps = 0; naps < NAPS_OF_STOP && atomic_load(&state) == STOPPED; naps++) {
        nap();
    }
    take_up();
}

#if defined(__x86_64__)
#define HAS_TRAP_FLAG 1

static uintptr_t address_in(const void *context) {
    return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}

/* Over the red zone. */
#define CHANGE_FLAGS(operation)                                                                              \
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" operation                                        \
                     " (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp"                                            \
                     :                                                                                       \
                     :                                                                                       \
                     : "memory", "cc")

static void set_trap_flag(bool is_on) {
    if (is_on) {
        CHANGE_FLAGS("orq $0x100,");
    } else {
        CHANGE_FLAGS("andq $-0x101,");
    }
}
#else
#define HAS_TRAP_FLAG 0

static uintptr_t address_in(const void *context) {
    (void)context;
    return 0;
}

static void set_trap_flag(bool is_on) {
    (void)is_on;
}
#endif

static void on_trap(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    int error = errno;
    uintptr_t address = address_in(context);
    take_up();
    if (address >= code_begin && address < code_end) {
        unsigned long number = atomic_fetch_add(&instructions, 1);
        if (stride_now != 0 && number % stride_now == 0 && atomic_load(&state) == FREE) {
            stop_at(address);
        }
    }
    errno = error;
}

static void *run_between(void *unused) {
    for (;;) {
        enum state now = atomic_load(&state);
        if (now == ENDED) {
            return unused;
        }
        if (now != STOPPED) {
            nap();
            continue;
        }
        between_steps();
        atomic_fetch_add(&stops, 1);
        atomic_store(&state, DONE);
    }
}

bool single_step_is_possible(void) {
    (void)dl_iterate_phdr(find_library, NULL);
    return HAS_TRAP_FLAG && code_begin != 0;
}

void single_step_start(void (*between)(void)) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
    between_steps = between;
    atomic_store(&state, FREE);
    CHECK(pthread_create(&other, NULL, run_between, NULL) == 0);
}

void single_step_end(void) {
    single_step_off();
    atomic_store(&state, ENDED);
    CHECK(pthread_join(other, NULL) == 0);
}

void single_step_on(unsigned stride) {
    stride_now = stride;
    set_trap_flag(true);
}

void single_step_off(void) {
    set_trap_flag(false);
    while (atomic_load(&state) == STOPPED) {
        nap(); /* it waited for a lock, which is free now */
    }
    take_up();
}

void single_step_hold(void) {
    atomic_store(&state, HELD);
}

struct single_steps single_step_counts(void) {
    return (struct single_steps){.instructions = atomic_exchange(&instructions, 0),
                                 .stops = atomic_exchange(&stops, 0)};
}

uintptr_t single_step_where(void) {
    return atomic_load(&where);
}
