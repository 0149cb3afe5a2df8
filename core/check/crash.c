/*
 * crash.c - see crash.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* registers by name */
#endif
#include "check/crash.h"
#include "base/atomic.h"
#include "check/guarded.h"
#include "check/report.h"
#include "check/trace.h"
#include "check/unwind.h"
#include "os/lock.h"
#include "os/os.h"
#include <errno.h>
#include <signal.h>
#include <ucontext.h>

struct hak_lock hak_crash_lock = HAK_LOCK_INIT(HAK_RANK_CRASH);

/*
 * What the program had installed: the handler's address, and its flags in the bits below. One word, since a
 * handler may run while it is written. Written under lock.
 */
#define NEXT_SHIFT       2u
#define NEXT_HAS_INFO    ((uintptr_t)1) /* SA_SIGINFO */
#define NEXT_IS_FOR_ONCE ((uintptr_t)2) /* SA_RESETHAND */
static _Atomic uintptr_t next_action;

static HAK_TLS bool is_reporting;

/* The signal that this thread is handing on, and where its handler's frame is. */
struct handing_on {
    const siginfo_t *info;
    uintptr_t frame;
};
static HAK_TLS struct handing_on handing_on;

#if defined(__x86_64__)
#define FAULT_BIT_WRITE 2
static enum hak_access access_of(const ucontext_t *context) {
    return (context->uc_mcontext.gregs[REG_ERR] & FAULT_BIT_WRITE) != 0 ? HAK_ACCESS_WRITE : HAK_ACCESS_READ;
}

static const struct hak_trace *trace_of(const ucontext_t *context) {
    const greg_t *registers = context->uc_mcontext.gregs;
    struct hak_frame frame = {.address = (uintptr_t)registers[REG_RIP] + 1,
                              .stack = (uintptr_t)registers[REG_RSP],
                              .base = (uintptr_t)registers[REG_RBP]};
    return hak_trace_take_from(&frame);
}
#else
static enum hak_access access_of(const ucontext_t *context) {
    (void)context;
    return HAK_ACCESS_UNKNOWN;
}

static const struct hak_trace *trace_of(const ucontext_t *context) {
    (void)context;
    return hak_trace_take();
}
#endif

/*
 * Whether the signal was handed on already: a handler that was put behind this one may hand on to what it
 * found when it was installed, which was this one. One that jumped out instead left its words behind, but
 * what came to it at that place of the stack comes to the same frame again, not to one below.
 */
static bool has_come_back(const siginfo_t *info, uintptr_t frame) {
    return info == handing_on.info && frame < handing_on.frame;
}

static void hand_on(uintptr_t next, int signal, siginfo_t *info, void *context, uintptr_t frame) {
    uintptr_t handler = next >> NEXT_SHIFT;
    struct handing_on before = handing_on;
    handing_on = (struct handing_on){info, frame};
    if ((next & NEXT_HAS_INFO) != 0) {
        ((void (*)(int, siginfo_t *, void *))handler)(signal, info, context);
    } else {
        ((void (*)(int))handler)(signal);
    }
    handing_on = before;
}

/* As if this handler had not been there; what has come back ends the program. */
static void pass_on(int signal, siginfo_t *info, void *context, uintptr_t frame) {
    /* relaxed: one word tells it all */
    uintptr_t next = has_come_back(info, frame) ? (uintptr_t)SIG_DFL : hak_atomic_load_relaxed(&next_action);
    uintptr_t handler = next >> NEXT_SHIFT;
    bool is_default = handler == (uintptr_t)SIG_DFL || handler == (uintptr_t)SIG_IGN;
    bool is_sent = info->si_code <= 0;
    if (is_sent && handler == (uintptr_t)SIG_IGN) {
        return;
    }
    if (is_default || (next & NEXT_IS_FOR_ONCE) != 0) {
        struct sigaction reset = {.sa_handler = SIG_DFL};
        (void)hak_os_signal_action(signal, &reset, NULL);
    }
    if (!is_default) {
        hand_on(next, signal, info, context, frame);
    } else if (is_sent) {
        hak_os_raise(signal); /* comes when this handler returns */
    }
    /* else the instruction faults again, and the kernel does what it does */
}

static void report(const void *address, const ucontext_t *context) {
    struct hak_record record;
    if (hak_report_find_access(address, &record)) {
        hak_report_access(&record, address, access_of(context), trace_of(context));
    }
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    int saved_errno = errno;
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    /* Sent by somebody (code <= 0), it says nothing of an address. */
    if (!is_reporting && info->si_code > 0 && hak_guarded_covers(info->si_addr) &&
        !has_come_back(info, frame)) {
        is_reporting = true;
        report(info->si_addr, context);
        is_reporting = false;
    }
    errno = saved_errno;
    pass_on(signal, info, context, frame);
}

/* Under lock. A program's addresses leave the upper bits free. */
static void put_behind(const struct sigaction *action) {
    uintptr_t next = (uintptr_t)action->sa_sigaction << NEXT_SHIFT;
    next |= (action->sa_flags & SA_SIGINFO) != 0 ? NEXT_HAS_INFO : 0;
    next |= (action->sa_flags & SA_RESETHAND) != 0 ? NEXT_IS_FOR_ONCE : 0;
    hak_atomic_store_relaxed(&next_action, next); /* relaxed: as in pass_on() */
}

void hak_crash_catch(void) {
    struct sigaction now;
    hak_lock_acquire(&hak_crash_lock);
    if (hak_os_signal_action(SIGSEGV, NULL, &now) == 0 &&
        ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != on_fault)) {
        bool is_first = now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN;
        struct sigaction own = now;
        put_behind(&now);
        own.sa_sigaction = on_fault;
        /* On the alternate stack, if there is one, unless the program's handler wants to be elsewhere. */
        own.sa_flags = (now.sa_flags & ~SA_RESETHAND) | SA_SIGINFO | (is_first ? SA_ONSTACK : 0);
        (void)hak_os_signal_action(SIGSEGV, &own, NULL);
    }
    hak_lock_release(&hak_crash_lock);
}
