/*
 * crash_test.c - who stands in front when the program changes the action of SIGSEGV in the midst of a look at
 * it, as another thread may. The kernel's table is this file's.
 *
 * Each test is a child of its own: entries stay for good.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check/crash.h"
#include "support/child.h"
#include "support/test.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>

static struct {
    bool is_ours;               /* else the kernel's own is asked */
    struct sigaction standing;  /* of SIGSEGV */
    struct sigaction meanwhile; /* what the program installs before the next change, if `comes_between` */
    bool comes_between;
    unsigned changes;
} table;

typedef int sigaction_function(int signal, const struct sigaction *action, struct sigaction *old);

int sigaction(int signal, const struct sigaction *action, struct sigaction *old) {
    if (!table.is_ours || signal != SIGSEGV) {
        return ((sigaction_function *)dlsym(RTLD_NEXT, "sigaction"))(signal, action, old);
    }
    if (action != NULL && table.comes_between) {
        table.standing = table.meanwhile;
        table.comes_between = false;
    }
    if (old != NULL) {
        *old = table.standing;
    }
    if (action != NULL) {
        table.standing = *action;
        table.changes++;
    }
    return 0;
}

static unsigned called_first, called_second;

static void first(int signal) {
    called_first += signal == SIGSEGV;
}

static void second(int signal) {
    called_second += signal == SIGSEGV;
}

static void begin_with(void (*handler)(int)) {
    table.is_ours = true;
    table.standing = (struct sigaction){.sa_handler = handler};
}

static void comes_between(void (*handler)(int), int flags) {
    table.meanwhile = (struct sigaction){.sa_handler = handler, .sa_flags = flags};
    table.comes_between = true;
}

static void send(void) {
    CHECK((table.standing.sa_flags & SA_SIGINFO) != 0);
    table.standing.sa_sigaction(SIGSEGV, NULL, NULL);
}

static bool is_hakmems(void) {
    return table.standing.sa_handler != SIG_DFL && table.standing.sa_handler != SIG_IGN &&
           table.standing.sa_handler != first && table.standing.sa_handler != second;
}

static int install_meanwhile(void *unused) {
    (void)unused;
    begin_with(SIG_DFL);
    comes_between(second, SA_RESTART | SA_NODEFER);
    hak_crash_catch();
    CHECK(is_hakmems() && table.standing.sa_flags == (SA_RESTART | SA_NODEFER | SA_SIGINFO));
    send();
    CHECK(called_second == 1);
    return 0;
}

static int replace_meanwhile(void *unused) {
    (void)unused;
    begin_with(first);
    comes_between(second, 0);
    hak_crash_catch();
    CHECK(is_hakmems());
    send();
    CHECK(called_first == 0 && called_second == 1);
    return 0;
}

static int put_back_meanwhile(void *unused) {
    (void)unused;
    begin_with(first);
    hak_crash_catch();
    struct sigaction before_first = table.standing;
    begin_with(second);
    comes_between(before_first.sa_handler, before_first.sa_flags);
    hak_crash_catch();
    CHECK(table.standing.sa_sigaction == before_first.sa_sigaction);
    send();
    CHECK(called_first == 1 && called_second == 0);
    return 0;
}

static int ignore_meanwhile(void *unused) {
    (void)unused;
    begin_with(first);
    comes_between(SIG_IGN, 0);
    hak_crash_catch();
    CHECK(table.standing.sa_handler == SIG_IGN);
    return 0;
}

static int look_again(void *unused) {
    (void)unused;
    begin_with(first);
    hak_crash_catch();
    CHECK(is_hakmems() && table.changes == 1);
    hak_crash_catch();
    CHECK(table.changes == 1);
    return 0;
}

static void what_is_installed_meanwhile_comes_behind(void **state) {
    (void)state;
    assert_function_succeeds(install_meanwhile);
    assert_function_succeeds(replace_meanwhile);
}

static void what_is_put_back_or_ignored_meanwhile_stays(void **state) {
    (void)state;
    assert_function_succeeds(put_back_meanwhile);
    assert_function_succeeds(ignore_meanwhile);
}

static void who_stands_in_front_changes_nothing(void **state) {
    (void)state;
    assert_function_succeeds(look_again);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_installed_meanwhile_comes_behind),
        cmocka_unit_test(what_is_put_back_or_ignored_meanwhile_stays),
        cmocka_unit_test(who_stands_in_front_changes_nothing),
    };
    return cmocka_run_group_tests_name("crash", tests, NULL, NULL);
}
