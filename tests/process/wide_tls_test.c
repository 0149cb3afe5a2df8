/*
 * wide_tls_test.c - the helper thread in a program whose thread-local variables leave no room on a small
 * stack, and what is said where no thread can be had.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* glibc puts these on each thread's stack. */
static _Thread_local char wide[512 * KIB];

static int print_threads(void) {
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
        count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    printf("%u\n", count);
    return 0;
}

/* glibc gives threads as much as the limit of main's, unless told otherwise: more than there may be. */
static int leave_no_room(void *unused) {
    (void)unused;
    return setrlimit(RLIMIT_STACK, &(struct rlimit){GIB, GIB}) |
           setrlimit(RLIMIT_AS, &(struct rlimit){GIB / 2, GIB / 2});
}

static struct child child;

static void the_helper_has_room(void **state) {
    (void)state;
    REQUIRE_HAK();
    child = (struct child){
        .program = own_path(), .arguments = {"threads"}, .environment = {"HAKMEM_BACKGROUND=1"}};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.out, "2\n");
    assert_string_equal(child.err, "");
}

static void a_helper_that_cannot_be_had_is_missed_aloud(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct rlimit stack;
    assert_int_equal(getrlimit(RLIMIT_STACK, &stack), 0);
    if (stack.rlim_max < GIB) {
        SKIP_BECAUSE("stacks cannot be so long here");
    }
    child = (struct child){.program = own_path(),
                           .arguments = {"threads"},
                           .environment = {"HAKMEM_BACKGROUND=1"},
                           .prepare = leave_no_room};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.out, "1\n");
    assert_string_equal(child.err, "hakmem: HAKMEM_BACKGROUND: no thread can be had; nothing is given back "
                                   "but by the program's own\n");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_helper_has_room),
        cmocka_unit_test(a_helper_that_cannot_be_had_is_missed_aloud),
    };
    (void)launder(wide); /* it is there */
    if (argc > 1 && strcmp(argv[1], "threads") == 0) {
        return print_threads();
    }
    return cmocka_run_group_tests_name("wide_tls", tests, NULL, NULL);
}
