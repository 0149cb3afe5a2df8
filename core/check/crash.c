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
#include "os/lock.h"
#include "os/os.h"
#include <errno.h>
#include <signal.h>
#include <ucontext.h>

struct hak_lock hak_crash_lock = HAK_LOCK_INIT(HAK_RANK_CRASH);

/* What the program had installed. Written under lock; a handler that runs meanwhile sees the one or the
 * other. */
static struct sigaction next_actions[2];
static _Atomic unsigned next_idx;

static HAK_TLS bool is_reporting;

#if defined(__x86_64__)
#define FAULT_BIT_WRITE 2
static enum hak_access access_of(const ucontext_t *context) {
    return (context->uc_mcontext.gregs[REG_ERR] & FAULT_BIT_WRITE) != 0 ? HAK_ACCESS_WRITE : HAK_ACCESS_READ;
}
#else
static enum hak_access access_of(const ucontext_t *context) {
    (void)context;
    return HAK_ACCESS_UNKNOWN;
}
#endif

/* As if this handler had not been there. */
static void pass_on(int signal, siginfo_t *info, void *context) {
    /* acquire: pairs with the store in put_behind() */
    struct sigaction next = next_actions[hak_atomic_load_acquire(&next_idx)];
    bool is_default = next.sa_handler == SIG_DFL || next.sa_handler == SIG_IGN;
    if (is_default || (next.sa_flags & SA_RESETHAND) != 0) {
        struct sigaction reset = {.sa_handler = SIG_DFL};
        (void)hak_os_signal_action(signal, &reset, NULL);
    }
    if (is_default) {
        return; /* the instruction faults again, and the kernel does what it does */
    }
    if ((next.sa_flags & SA_SIGINFO) != 0) {
        next.sa_sigaction(signal, info, context);
    } else {
        next.sa_handler(signal);
    }
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    int saved_errno = errno;
    /* Sent by somebody (code <= 0), it says nothing of an address. */
    if (!is_reporting && info->si_code > 0 && hak_guarded_covers(info->si_addr)) {
        is_reporting = true;
        (void)hak_report_access(info->si_addr, access_of(context));
        is_reporting = false;
    }
    errno = saved_errno;
    pass_on(signal, info, context);
}

/* Under lock. */
static void put_behind(const struct sigaction *action) {
    unsigned idx = 1 - hak_atomic_load_relaxed(&next_idx); /* relaxed: written under the lock */
    next_actions[idx] = *action;
    hak_atomic_store_release(&next_idx, idx); /* pairs with the load in pass_on() */
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
