/*
 * surroundings_test.c - allocation where a process has little around it: closed descriptors, another root, no
 * /proc, locked memory; and that hakmem itself prints nothing and leaves nothing open.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct load everything = {1, 3 * MIB, 32, 48, 16};

static void exercise_on_threads(void) {
    slots_load_threads(&everything, 3000);
    (void)malloc_trim(0);
    check_heap();
}

/* ---- modes of the child ---- */

static int allocate(void) {
    exercise_on_threads();
    return 0;
}

/* Whatever was opened and forgotten since the start would be the first descriptor now. */
static int expect_no_descriptor(void) {
    exercise_on_threads();
    CHECK(open("/", O_RDONLY) == 0);
    CHECK(open("/", O_RDONLY) == 1);
    CHECK(open("/", O_RDONLY) == 2);
    CHECK(open("/", O_RDONLY) == 3);
    return 0;
}

static int expect_three_descriptors(void) {
    exercise_on_threads();
    CHECK(open("/", O_RDONLY) == 3);
    return 0;
}

static int live_in_an_empty_root(void) {
    char folder[] = "/tmp/hakmem-test-root-XXXXXX";
    free(malloc(100));
    if (mkdtemp(folder) == NULL || chroot(folder) != 0 || chdir("/") != 0) {
        printf("chroot: %s\n", strerror(errno));
        fflush(stdout);
        (void)rmdir(folder);
        return CHILD_SKIP;
    }
    exercise_on_threads();
    CHECK(rmdir("/") != 0);
    return 0;
}

/* Executes the program again in a mount namespace where /proc and /sys are empty. */
static int start_without_proc(void) {
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(length > 0);
    self[length] = '\0';
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/proc", "tmpfs", 0, NULL) != 0 || mount("none", "/sys", "tmpfs", 0, NULL) != 0) {
        printf("unshare, mount: %s\n", strerror(errno));
        return CHILD_SKIP;
    }
    CHECK(access("/proc/self", F_OK) != 0);
    execl(self, self, "allocate", (char *)NULL);
    return 9;
}

/* Under mlockall no page can be given back: what hakmem takes for zero must still be zero. */
static int live_in_locked_memory(void) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    exercise_on_threads();
    (void)setrlimit(RLIMIT_MEMLOCK, &limit);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        printf("mlockall: %s\n", strerror(errno));
        return CHILD_SKIP;
    }
    exercise_on_threads();
    CHECK(munlockall() == 0);
    exercise_on_threads();
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} modes[] = {
    {"allocate", allocate},
    {"expect-no-descriptor", expect_no_descriptor},
    {"expect-three-descriptors", expect_three_descriptors},
    {"empty-root", live_in_an_empty_root},
    {"without-proc", start_without_proc},
    {"locked", live_in_locked_memory},
};

/* ---- tests ---- */

static struct child child;

static void run_mode(const char *mode, int (*prepare)(void *)) {
    child = (struct child){.program = own_path(), .arguments = {mode}, .prepare = prepare};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.err, "");
    assert_string_equal(child.out, "");
}

static int close_0_to_2(void *unused) {
    (void)unused;
    return close(0) | close(1) | close(2);
}

static int keep_0_to_2(void *unused) {
    (void)unused;
    for (int fd = 3; fd < 256; fd++) {
        (void)close(fd);
    }
    return 0;
}

static void nothing_is_printed(void **state) {
    (void)state;
    run_mode("allocate", NULL);
}

static void descriptors_0_to_2_may_be_closed_and_stay_free(void **state) {
    (void)state;
    run_mode("expect-no-descriptor", close_0_to_2);
}

static void no_descriptor_is_left_open(void **state) {
    (void)state;
    run_mode("expect-three-descriptors", keep_0_to_2);
}

static void an_empty_root_is_enough(void **state) {
    (void)state;
    run_mode("empty-root", NULL);
}

static void a_program_starts_without_proc_and_sys(void **state) {
    (void)state;
    run_mode("without-proc", NULL);
}

static void memory_may_be_locked(void **state) {
    (void)state;
    run_mode("locked", NULL);
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < COUNT_OF(modes); i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            return modes[i].run();
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_printed),
        cmocka_unit_test(descriptors_0_to_2_may_be_closed_and_stay_free),
        cmocka_unit_test(no_descriptor_is_left_open),
        cmocka_unit_test(an_empty_root_is_enough),
        cmocka_unit_test(a_program_starts_without_proc_and_sys),
        cmocka_unit_test(memory_may_be_locked),
    };
    return cmocka_run_group_tests_name("surroundings", tests, NULL, heap_is_sound);
}
