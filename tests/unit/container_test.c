/*
 * container_test.c - a process that starts in a container of 64 MiB: what it finds at start bounds what it
 * keeps.
 *
 * The files of control groups are the test's own: hakmem's constructor opens them by way of this syscall().
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "conf/options.h"
#include "large/retain.h"
#include "support/kernel.h"
#include "support/test.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *path;
    const char *text;
} files[] = {
    {"/proc/self/cgroup", "0::/\n"},
    {"/sys/fs/cgroup/memory.max", "67108864\n"},
};

static int open_own(const char *text) {
    int fd = (int)syscall(SYS_memfd_create, "container", 0);
    size_t bytes = strlen(text);
    if (fd >= 0 &&
        (syscall(SYS_write, fd, text, bytes) != (long)bytes || syscall(SYS_lseek, fd, 0, 0) != 0)) {
        syscall(SYS_close, fd);
        return -1;
    }
    return fd;
}

/* Called before main. */
long syscall(long number, ...) {
    struct arguments arguments;
    ARGUMENTS_OF(number, &arguments);
    const char *path = number == SYS_openat ? (const char *)arguments.of[1] : "";
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        if (strcmp(path, files[i].path) == 0) {
            return open_own(files[i].text);
        }
    }
    if (strncmp(path, "/sys/fs/cgroup", 14) == 0) {
        errno = ENOENT;
        return -1;
    }
    return kernel_with(number, &arguments);
}

static void options_are_bound(void **state) {
    (void)state;
    assert_int_equal(hak_options.retain_mb, 4);
    assert_int_equal(hak_options.ss_lru_mb, 2);
    assert_int_equal(hak_options.base_floor_kib, 256);
}

static void the_floor_of_large_blocks_is_bound_too(void **state) {
    (void)state;
    assert_int_equal(hak_large_policy.floor_bytes, 256 * KIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_bound),
        cmocka_unit_test(the_floor_of_large_blocks_is_bound_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
