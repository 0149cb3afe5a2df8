/*
 * cgroup_test.c - the container's memory limit is found in both versions of control groups, and bounds what
 * is kept.
 *
 * suite: limit 30 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "conf/options.h"
#include "os/cgroup.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[256];

static int new_root(void **state) {
    static unsigned number;
    const char *folder = getenv("TMPDIR");
    (void)state;
    snprintf(root, sizeof root, "%s/cgroup-%d-%u", folder != NULL ? folder : "/tmp", (int)getpid(), number++);
    return mkdir(root, 0700);
}

/* Writes a file below the root, and the folders it needs. */
static void put(const char *path, const char *text) {
    char full[1024];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void version_2(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/user.slice/app.scope\n");
    put("/sys/fs/cgroup/user.slice/app.scope/memory.max", "536870912\n");
    assert_int_equal(hak_cgroup_limit_bytes(root), 512 * MIB);
}

static void version_2_inside_a_container(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "268435456\n");
    assert_int_equal(hak_cgroup_limit_bytes(root), 256 * MIB);
}

static void the_lowest_limit_above_counts(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/a/memory.max", "134217728\n");
    assert_int_equal(hak_cgroup_limit_bytes(root), 128 * MIB);
}

/* Containers within containers: the mount's own limit counts however far down the group lies. */
static void a_deep_group_finds_the_limit_at_the_top(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20\n");
    put("/sys/fs/cgroup/memory.max", "134217728\n");
    assert_int_equal(hak_cgroup_limit_bytes(root), 128 * MIB);
}

/* As long as its path may be: the limit of the group itself counts, not only those above it. */
static void a_group_with_a_long_path_finds_its_own(void **state) {
    (void)state;
    static char line[600], file[600];
    char path[511] = "";
    while (strlen(path) < 510) {
        (void)strcat(path, strlen(path) % 102 == 0 ? "/" : "g");
    }
    (void)snprintf(line, sizeof line, "0::%s\n", path);
    (void)snprintf(file, sizeof file, "/sys/fs/cgroup%s/memory.max", path);
    put("/proc/self/cgroup", line);
    put(file, "536870912\n");
    assert_int_equal(hak_cgroup_limit_bytes(root), 512 * MIB);
}

static void version_1(void **state) {
    (void)state;
    put("/proc/self/cgroup", "9:name=systemd:/\n5:cpu,memory:/docker/1\n0::/\n");
    put("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "402653184\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(hak_cgroup_limit_bytes(root), 384 * MIB);
}

/* The path is the host's, and only the container's own group is mounted. */
static void version_1_inside_a_container(void **state) {
    (void)state;
    put("/proc/self/cgroup", "4:memory:/docker/0123456789\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "402653184\n");
    assert_int_equal(hak_cgroup_limit_bytes(root), 384 * MIB);
}

static void without_a_limit_there_is_none(void **state) {
    (void)state;
    assert_int_equal(hak_cgroup_limit_bytes(root), 0);
    put("/proc/self/cgroup", "0::/a\n");
    assert_int_equal(hak_cgroup_limit_bytes(root), 0);
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    assert_int_equal(hak_cgroup_limit_bytes(root), 0);
    put("/proc/self/cgroup", "memory\n::\n4:memoryless,mem:/x\n");
    assert_int_equal(hak_cgroup_limit_bytes(root), 0);
}

static void it_bounds_what_is_kept(void **state) {
    (void)state;
    struct hak_options options = hak_options;
    hak_options_bound(&options, 0);
    assert_int_equal(options.retain_mb, hak_options.retain_mb);
    hak_options_bound(&options, GIB * 64);
    assert_int_equal(options.retain_mb, hak_options.retain_mb);
    assert_int_equal(options.ss_lru_mb, hak_options.ss_lru_mb);
    assert_int_equal(options.base_floor_kib, HAK_BASE_FLOOR_KIB);
    hak_options_bound(&options, 128 * MIB);
    assert_int_equal(options.retain_mb, 8);
    assert_int_equal(options.lasting_mb, 8);
    assert_int_equal(options.ss_lru_mb, 4);
    assert_int_equal(options.base_floor_kib, 512);
    assert_int_equal(options.pinned_pages, 128 * MIB / 4096 / 64);
    assert_int_equal(options.parked_shards, HAK_PARKED_SHARDS);
    options.parked_shards = 32;
    hak_options_bound(&options, 768 * MIB);
    assert_int_equal(options.parked_shards, 16);
    hak_options_bound(&options, 32 * MIB);
    assert_int_equal(options.parked_shards, HAK_PARKED_SHARDS);
    options = hak_options;
    hak_options_bound(&options, GIB * 2);
    assert_int_equal(options.retain_mb, hak_options.retain_mb);
    assert_int_equal(options.lasting_mb, 128);
    options = hak_options;
    hak_options_bound(&options, 960 * MIB);
    assert_int_equal(options.retain_mb, 60);
    hak_options_bound(&options, 248 * MIB);
    assert_int_equal(options.ss_lru_mb, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(version_2, new_root),
        cmocka_unit_test_setup(version_2_inside_a_container, new_root),
        cmocka_unit_test_setup(the_lowest_limit_above_counts, new_root),
        cmocka_unit_test_setup(a_deep_group_finds_the_limit_at_the_top, new_root),
        cmocka_unit_test_setup(a_group_with_a_long_path_finds_its_own, new_root),
        cmocka_unit_test_setup(version_1, new_root),
        cmocka_unit_test_setup(version_1_inside_a_container, new_root),
        cmocka_unit_test_setup(without_a_limit_there_is_none, new_root),
        cmocka_unit_test(it_bounds_what_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
