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

#define ROUNDS_MAX 16u /* of putting one action in front of another */

struct hak_lock hak_crash_lock = HAK_LOCK_INIT(HAK_RANK_CRASH);

/*
 * The handler is a table of entries, functions that differ in what of the program's stands behind them: one
 * action each, for good. So what a program finds in place of its own action, and puts back later, leads to
 * that action again.
 *
 * An action is one word, the handler's address with flags in the bits below, since a handler may run while
 * the table grows. The first entry's is SIG_DFL.
 */
#define NEXT_SHIFT       2u
#define NEXT_HAS_INFO    ((uintptr_t)1) /* SA_SIGINFO */
#define NEXT_IS_FOR_ONCE ((uintptr_t)2) /* SA_RESETHAND */

/* clang-format off */
#define ENTRY_TABLE(ROW) \
    ROW(0) ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7) \
    ROW(8) ROW(9) ROW(10) ROW(11) ROW(12) ROW(13) ROW(14) ROW(15)
/* clang-format on */

typedef void handler_with_info(int signal, siginfo_t *info, void *context);

static HAK_NOINLINE void on_fault(unsigned entry, int signal, siginfo_t *info, void *context);

#define ENTRY(number)                                                                                        \
    static void entry_##number(int signal, siginfo_t *info, void *context) {                                 \
        on_fault(number, signal, info, context);                                                             \
    }
ENTRY_TABLE(ENTRY)

#define ENTRY_ADDRESS(number) entry_##number,
static handler_with_info *const entries[] = {ENTRY_TABLE(ENTRY_ADDRESS)};
#define ENTRIES (sizeof entries / sizeof entries[0])

/* Each is written once, under lock, before the kernel gets its entry. */
static _Atomic uintptr_t next_actions[ENTRIES];
static unsigned used_entries = 1; /* under lock */

static HAK_TLS bool is_reporting;

/* The access that was reported last, as access_number() has it. One for all threads, whose stacks differ: if
 * two report in turn, one that comes again is reported again. */
static _Atomic uintptr_t reported_access;
#define ACCESS_MULTIPLIER UINT64_C(0x9E3779B97F4A7C15)

/* What an entry was called with, and by which ones the same signal came to it. */
struct arrival {
    siginfo_t *info;
    void *context;
    int signal;
    unsigned entry, came_by;
};

#if defined(__x86_64__)
/* In the frame that the kernel makes for a handler the information lies behind the context. */
#define CONTEXT_AFTER_INFO ((uintptr_t)-304)
#define FAULT_BIT_WRITE    2
static enum hak_access access_of(const ucontext_t *context) {
    return (context->uc_mcontext.gregs[REG_ERR] & FAULT_BIT_WRITE) != 0 ? HAK_ACCESS_WRITE : HAK_ACCESS_READ;
}

static uintptr_t instruction_of(const ucontext_t *context) {
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
}

static uintptr_t stack_of(const ucontext_t *context) {
    return (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
}

static const struct hak_trace *trace_of(const ucontext_t *context) {
    struct hak_frame frame = {.address = instruction_of(context) + 1,
                              .stack = stack_of(context),
                              .base = (uintptr_t)context->uc_mcontext.gregs[REG_RBP]};
    return hak_trace_take_from(&frame);
}
#else
#define CONTEXT_AFTER_INFO ((uintptr_t)128) /* the other way round */
static enum hak_access access_of(const ucontext_t *context) {
    (void)context;
    return HAK_ACCESS_UNKNOWN;
}

static uintptr_t instruction_of(const ucontext_t *context) {
    return context->uc_mcontext.pc;
}

static uintptr_t stack_of(const ucontext_t *context) {
    return context->uc_mcontext.sp;
}

static const struct hak_trace *trace_of(const ucontext_t *context) {
    (void)context;
    return hak_trace_take();
}
#endif

/* What a handler of the program hands on may be the number alone: then the pointers point anywhere. */
static bool has_pointers(const siginfo_t *info, const void *context) {
    return (uintptr_t)context - (uintptr_t)info == CONTEXT_AFTER_INFO;
}

/* Whether what the kernel says of a signal, if it says anything, is that an access made it. */
static bool may_be_fault(const struct arrival *here) {
    return has_pointers(here->info, here->context) && here->info->si_code > 0; /* else sent by somebody */
}

/* The same, and it does say so: not without SA_SIGINFO, which signal() leaves out when it puts an entry back.
 */
static bool is_fault(const struct arrival *here) {
    struct sigaction now;
    return may_be_fault(here) &&
           (hak_os_signal_action(here->signal, NULL, &now) != 0 || now.sa_handler == SIG_DFL ||
            now.sa_handler == SIG_IGN || (now.sa_flags & SA_SIGINFO) != 0);
}

/*
 * The entries by which the signal came here already, a bit each: a handler that stands behind one may hand on
 * to what it found when it was installed, which is another. They are noted in the frame of the signal itself,
 * in the context's link, which the kernel clears for each signal and does not read: so a handler that jumps
 * out leaves nothing behind.
 */
#define MARK_SHIFT 16u
_Static_assert(ENTRIES <= MARK_SHIFT, "a bit for each entry");

static uintptr_t link_mark(void) {
    return (uintptr_t)entries << MARK_SHIFT; /* is no address */
}

static unsigned came_by(const siginfo_t *info, const ucontext_t *context) {
    uintptr_t bits = has_pointers(info, context) ? (uintptr_t)context->uc_link ^ link_mark() : 0;
    return bits >> MARK_SHIFT == 0 ? (unsigned)bits : 0;
}

static void call_next(const struct arrival *here, uintptr_t next) {
    uintptr_t handler = next >> NEXT_SHIFT;
    if ((next & NEXT_HAS_INFO) != 0) {
        ((handler_with_info *)handler)(here->signal, here->info, here->context);
    } else {
        ((void (*)(int))handler)(here->signal);
    }
}

static void hand_on(const struct arrival *here, uintptr_t next) {
    ucontext_t *context = here->context;
    if (!has_pointers(here->info, context)) {
        call_next(here, next);
        return;
    }
    ucontext_t *link = context->uc_link;
    context->uc_link = (ucontext_t *)(link_mark() | here->came_by | 1u << here->entry);
    call_next(here, next);
    context->uc_link = link;
}

/* An action for once is over, as the kernel would have it before it calls; but if another stands in front,
 * that stays. */
static void reset_if_in_front(const struct arrival *here) {
    struct sigaction now, reset = {.sa_handler = SIG_DFL};
    if (hak_os_signal_action(here->signal, NULL, &now) == 0 && now.sa_sigaction == entries[here->entry]) {
        (void)hak_os_signal_action(here->signal, &reset, NULL);
    }
}

static void end_by_signal(const struct arrival *here) {
    struct sigaction reset = {.sa_handler = SIG_DFL};
    bool comes_again = is_fault(here);
    (void)hak_os_signal_action(here->signal, &reset, NULL);
    if (!comes_again) {
        hak_os_raise(here->signal); /* comes when this handler returns */
    }
    /* else the instruction faults again, and the kernel does what it does */
}

/* As if this handler had not been there; what has come back to its entry ends the program. */
static void pass_on(const struct arrival *here) {
    /* relaxed: the kernel was given the entry after its action was written */
    uintptr_t next = hak_atomic_load_relaxed(&next_actions[here->entry]);
    uintptr_t handler = next >> NEXT_SHIFT;
    bool has_come_back = (here->came_by & 1u << here->entry) != 0;
    if (has_come_back || handler == (uintptr_t)SIG_DFL) {
        end_by_signal(here);
        return;
    }
    if ((next & NEXT_IS_FOR_ONCE) != 0) {
        reset_if_in_front(here);
    }
    hand_on(here, next);
}

/* Another for each address, instruction and place on a stack, as good as always; not 0. */
static uintptr_t access_number(const void *address, const ucontext_t *context) {
    uint64_t number = (uintptr_t)address * ACCESS_MULTIPLIER ^ instruction_of(context);
    return (uintptr_t)((number * ACCESS_MULTIPLIER ^ stack_of(context)) * ACCESS_MULTIPLIER) | 1;
}

/* An access that comes again is reported once: a handler may put back what it found and return. */
static void report(const void *address, const ucontext_t *context) {
    struct hak_record record;
    uintptr_t number = access_number(address, context);
    /* relaxed: a thread's own, or else it is another */
    if (number != hak_atomic_load_relaxed(&reported_access) && hak_report_find_access(address, &record)) {
        hak_report_access(&record, address, access_of(context), trace_of(context));
        hak_atomic_store_relaxed(&reported_access, number); /* relaxed: as above */
    }
}

static void on_fault(unsigned entry, int signal, siginfo_t *info, void *context) {
    int saved_errno = errno;
    struct arrival here = {.info = info,
                           .context = context,
                           .signal = signal,
                           .entry = entry,
                           .came_by = came_by(info, context)};
    if (here.came_by == 0 && !is_reporting && may_be_fault(&here) && hak_guarded_covers(info->si_addr) &&
        is_fault(&here)) {
        is_reporting = true;
        report(info->si_addr, context);
        is_reporting = false;
    }
    errno = saved_errno;
    pass_on(&here);
}

/* ---- standing in front ---- */

#define DEFAULT_ENTRY 0u

/* A program's addresses leave the upper bits free. */
static uintptr_t next_of(const struct sigaction *action) {
    uintptr_t next = (uintptr_t)action->sa_sigaction << NEXT_SHIFT;
    if (action->sa_handler == SIG_DFL) {
        return next;
    }
    next |= (action->sa_flags & SA_SIGINFO) != 0 ? NEXT_HAS_INFO : 0;
    next |= (action->sa_flags & SA_RESETHAND) != 0 ? NEXT_IS_FOR_ONCE : 0;
    return next;
}

/* The entry that the action is; ENTRIES when it is none. */
static unsigned entry_of(const struct sigaction *action) {
    unsigned i = 0;
    while (i < ENTRIES && action->sa_sigaction != entries[i]) {
        i++;
    }
    return i;
}

/* The entry that the action stands behind from now on; ENTRIES when there is none left. */
static unsigned entry_before_locked(const struct sigaction *action) {
    uintptr_t next = next_of(action);
    unsigned i = 0;
    /* relaxed: written under the lock */
    while (i < used_entries && hak_atomic_load_relaxed(&next_actions[i]) != next) {
        i++;
    }
    if (i < ENTRIES && i == used_entries) {
        hak_atomic_store_relaxed(&next_actions[i], next); /* relaxed: as in pass_on() */
        used_entries++;
    }
    return i;
}

/*
 * What is to stand in place of the action: false when that is to stay. SIG_IGN does: the next program would
 * not inherit it from a handler, and a fault ends a program that ignores it anyway.
 */
static bool front_of_locked(const struct sigaction *action, struct sigaction *front) {
    unsigned entry = entry_of(action);
    bool is_ours = entry != ENTRIES;
    if (action->sa_handler == SIG_IGN || (is_ours && (action->sa_flags & SA_SIGINFO) != 0)) {
        return false;
    }
    if (!is_ours) {
        entry = entry_before_locked(action);
    }
    if (entry == ENTRIES) {
        return false;
    }
    *front = *action;
    front->sa_sigaction = entries[entry];
    front->sa_flags |= SA_SIGINFO;
    if (!is_ours) {
        front->sa_flags &= ~SA_RESETHAND; /* the entry knows */
    }
    if (entry == DEFAULT_ENTRY) {
        front->sa_flags |= SA_ONSTACK; /* if there is one; else the program's handler says where it wants to
                                          be */
    }
    return true;
}

/*
 * What another thread installs meanwhile is not lost: it gets its own front, or stands again. A sigaction()
 * of the program's (a sanitizer's, before that is ready) may do nothing and say that it has.
 */
static void stand_in_front_locked(void) {
    struct sigaction front, standing = {.sa_sigaction = NULL}, found = {.sa_sigaction = NULL};
    unsigned rounds = 0;
    if (hak_os_signal_action(SIGSEGV, NULL, &standing) != 0 || !front_of_locked(&standing, &front)) {
        return;
    }
    while (hak_os_signal_action(SIGSEGV, &front, &found) == 0 &&
           found.sa_sigaction != standing.sa_sigaction && rounds++ < ROUNDS_MAX) {
        standing = front;
        if (!front_of_locked(&found, &front)) {
            front = found;
        }
    }
}

void hak_crash_catch(void) {
    hak_lock_acquire(&hak_crash_lock);
    stand_in_front_locked();
    hak_lock_release(&hak_crash_lock);
}
