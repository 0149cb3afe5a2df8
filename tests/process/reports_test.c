/*
 * reports_test.c - what HAKMEM_STATS, _WARM_POOL_STATS, _TINY_FRONT_METRICS, _TINY_FRONT_DUMP and _HELP
 * print, where to, and that the figures are right; and that nothing is printed unasked.
 */
#include "process/options_kit.h"

static void without_options_nothing_is_said(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("load", NULL, NULL, NULL);
    assert_string_equal(child.err, "");
    assert_string_equal(child.out, "");
}

static void mistakes_are_said_once_and_the_program_runs(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("load", "HAKMEM_STAT=1", NULL, NULL);
    assert_string_equal(child.err, "hakmem: unknown option HAKMEM_STAT (did you mean HAKMEM_STATS?)\n");
    run("load", "HAKMEM_SS_LRU_MB=abc", NULL, NULL);
    assert_string_equal(child.err,
                        "hakmem: HAKMEM_SS_LRU_MB=abc: not a number of MB from 0 to 1048576; using 8\n");
}

static void options_without_effect_are_named(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("load", "HAKMEM_CHECK_LEAKS=10", "HAKMEM_CHECK=0", NULL);
    assert_string_equal(child.err, "hakmem: HAKMEM_CHECK_LEAKS: nothing is listed without HAKMEM_CHECK=1\n");
    run("load", "HAKMEM_CHECK_LEAKS=0", "HAKMEM_CHECK=0", NULL);
    assert_string_equal(child.err, "");
    run("load", "HAKMEM_GUARD_SAMPLE=10", "HAKMEM_ZERO_ON_FREE=1", "HAKMEM_CHECK=1");
    assert_string_equal(
        child.err, "hakmem: HAKMEM_GUARD_SAMPLE: none is sampled with HAKMEM_CHECK=1, which looks at all\n"
                   "hakmem: HAKMEM_ZERO_ON_FREE: not zeroed with HAKMEM_CHECK=1, which fills with 0xDF\n");
}

static void help_is_the_table_and_the_program_runs(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("first", "HAKMEM_HELP=1", NULL, NULL);
    assert_int_equal(strncmp(child.err, "NAME ", 5), 0);
    assert_non_null(strstr(child.err, "\nHAKMEM_SS_LRU_MS           1000     0..86400000 ms "));
    assert_string_not_equal(child.out, "");
}

static void stats_is_a_table_that_adds_up(void **state) {
    (void)state;
    REQUIRE_HAK();
    unsigned long of_class[6], live[2], mapped[1], metadata[1], resident[1];
    run("take", "HAKMEM_STATS=1", NULL, NULL);
    assert_int_equal(strncmp(child.err, "hakmem: heap of process ", 24), 0);
    assert_int_equal(numbers_of("heap of process", "\nlive", live, 2), 2);
    assert_int_equal(numbers_of("heap of process", "\nmapped", mapped, 1), 1);
    assert_int_equal(numbers_of("heap of process", "\nmetadata", metadata, 1), 1);
    assert_int_equal(numbers_of("heap of process", "\nresident", resident, 1), 1);
    assert_true(live[0] >= 64 * LOAD_BLOCKS && live[1] >= LOAD_BLOCKS);
    assert_true(live[0] + metadata[0] <= mapped[0]);
    assert_true(resident[0] >= 64 * LOAD_BLOCKS && resident[0] <= mapped[0]);
    assert_int_equal(numbers_of("class   bytes", "\n    3", of_class, 6), 6);
    assert_int_equal(of_class[0], 64);
    assert_int_equal(of_class[2], of_class[3] + of_class[4] + of_class[5]);
    assert_true(of_class[3] >= LOAD_BLOCKS);
}

static void stats_names_each_figure(void **state) {
    (void)state;
    REQUIRE_HAK();
    static const char *const rows[] = {
        "live",
        "  of that above 32 KiB",
        "cached by threads",
        "free",
        "metadata",
        "mapped",
        "  at most so far",
        "resident",
        "SuperSlabs",
        "  of those empty",
        "thread heaps",
        "calls to map",
        "calls to unmap",
        "calls to purge",
        "calls to remap",
        "calls to protect",
    };
    run("take", "HAKMEM_STATS=1", NULL, NULL);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char row[40];
        snprintf(row, sizeof row, "\n%s ", rows[i]);
        assert_non_null(strstr(child.err, row));
    }
}

static void reports_reach_stderr_though_the_program_closed_it(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("close-stderr", "HAKMEM_STATS=1", NULL, NULL);
    assert_non_null(strstr(child.err, "hakmem: heap of process "));
}

static void reports_reach_no_file_of_the_program(void **state) {
    (void)state;
    REQUIRE_HAK();
    static char file_setting[4096];
    const char *path = fresh_path("own-file");
    snprintf(file_setting, sizeof file_setting, "TEST_FILE=%s", path);
    run("reuse-descriptors", "HAKMEM_STATS=1", "HAKMEM_TINY_FRONT_DUMP=-", file_setting);
    assert_string_equal(child.err, "");
    assert_string_equal(read_file(path), "");
}

static void warm_pool_stats_are_the_csv_summed(void **state) {
    (void)state;
    REQUIRE_HAK();
    unsigned long all[3];
    run("load", "HAKMEM_WARM_POOL_STATS=1", "HAKMEM_TINY_FRONT_DUMP=-", NULL);
    (void)read_csv(child.err);
    assert_int_equal(numbers_of("hakmem: warm pools of process ", "\n  all", all, 3), 3);
    assert_int_equal(all[0], sum_of(WARM_HITS));
    assert_int_equal(all[1], sum_of(WARM_MISSES));
    assert_int_equal(all[2], sum_of(WARM_PREFILLS));
    assert_true(all[0] > 0 && all[1] > 0);
}

static void front_metrics_are_the_csv_summed(void **state) {
    (void)state;
    REQUIRE_HAK();
    unsigned long all[COLUMNS];
    run("load", "HAKMEM_TINY_FRONT_METRICS=1", "HAKMEM_TINY_FRONT_DUMP=1", NULL);
    (void)read_csv(child.err);
    assert_int_equal(numbers_of("hakmem: front end of process ", "\n  all", all, COLUMNS),
                     COLUMNS - ALLOCATIONS);
    for (unsigned column = ALLOCATIONS; column < COLUMNS; column++) {
        assert_int_equal(all[column - ALLOCATIONS], sum_of(column));
    }
}

static void the_csv_counts_rightly(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("load", "HAKMEM_TINY_FRONT_DUMP=-", NULL, NULL);
    assert_string_equal(read_csv(child.err), "");
    for (unsigned row = 0; row < CLASSES; row++) {
        assert_int_equal(csv[row][ALLOCATIONS], csv[row][CACHE_HITS] + csv[row][CACHE_MISSES]);
        assert_true(csv[row][FREES] <= csv[row][ALLOCATIONS]);
        assert_true(csv[row][NEW_SUPERSLABS] <= csv[row][NEW_SLABS]);
    }
    assert_in_range(csv[CLASS_64][ALLOCATIONS], 3 * LOAD_BLOCKS, 3 * LOAD_BLOCKS + 1000);
    assert_in_range(csv[CLASS_64][FREES], 3 * LOAD_BLOCKS, 3 * LOAD_BLOCKS + 1000);
    assert_int_equal(csv[CLASS_64][BLOCK_BYTES], 64);
    assert_true(csv[CLASS_64][CACHE_HITS] > csv[CLASS_64][CACHE_MISSES]);
    assert_true(csv[CLASS_64][NEW_SLABS] > 0);
    assert_true(sum_of(NEW_SUPERSLABS) > 0);
    run("remote", "HAKMEM_TINY_FRONT_DUMP=-", NULL, NULL);
    (void)read_csv(child.err);
    assert_true(csv[CLASS_64][REMOTE_FREES] >= LOAD_BLOCKS / 2);
    assert_true(csv[CLASS_64][REMOTE_FREES] <= csv[CLASS_64][FREES]);
}

static void the_csv_goes_to_the_file_that_is_named(void **state) {
    (void)state;
    REQUIRE_HAK();
    static char setting[4096];
    const char *path = fresh_path("front.csv");
    snprintf(setting, sizeof setting, "HAKMEM_TINY_FRONT_DUMP=%s", path);
    run("load", setting, NULL, NULL);
    assert_string_equal(child.err, "");
    assert_string_equal(read_csv(read_file(path)), "");
}

static void the_csv_file_may_name_the_process(void **state) {
    (void)state;
    REQUIRE_HAK();
    static char path[4096], setting[4096];
    unsigned long pid;
    snprintf(path, sizeof path, "%s", fresh_path("front.%p.csv"));
    snprintf(setting, sizeof setting, "HAKMEM_TINY_FRONT_DUMP=%s", path);
    run("load", setting, "HAKMEM_WARM_POOL_STATS=1", NULL);
    assert_int_equal(sscanf(child.err, "hakmem: warm pools of process %lu", &pid), 1);
    snprintf(setting, sizeof setting, "front.%lu.csv", pid);
    snprintf(path, sizeof path, "%s/%s", getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp", setting);
    assert_string_equal(read_csv(read_file(path)), "");
    (void)unlink(path);
}

static void the_csv_follows_no_symbolic_link(void **state) {
    (void)state;
    REQUIRE_HAK();
    static char link_path[4096], setting[4096], expected[8192];
    snprintf(link_path, sizeof link_path, "%s", fresh_path("link.csv"));
    const char *target = fresh_path("target");
    assert_int_equal(symlink(target, link_path), 0);
    snprintf(setting, sizeof setting, "HAKMEM_TINY_FRONT_DUMP=%s", link_path);
    run("load", setting, NULL, NULL);
    snprintf(expected, sizeof expected, "hakmem: HAKMEM_TINY_FRONT_DUMP: cannot open %s: errno 40\n",
             link_path);
    assert_string_equal(child.err, expected);
    assert_int_equal(access(target, F_OK), -1);
    (void)unlink(link_path);
}

/* More of it than fits once the process is named: that is said, and the program ends as it would. */
static void too_long_a_csv_path_is_said(void **state) {
    (void)state;
    REQUIRE_HAK();
    static char path[4096], setting[4096], expected[8192];
    int used = snprintf(path, sizeof path, "%s", fresh_path("front"));
    while (used + 2 < 1024) { /* no longer is taken */
        used += snprintf(path + used, sizeof path - (size_t)used, "%%p");
    }
    snprintf(setting, sizeof setting, "HAKMEM_TINY_FRONT_DUMP=%s", path);
    run("load", setting, NULL, NULL);
    snprintf(expected, sizeof expected, "hakmem: HAKMEM_TINY_FRONT_DUMP: cannot open %s: errno 36\n", path);
    assert_string_equal(child.err, expected);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        return run_mode(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_options_nothing_is_said),
        cmocka_unit_test(mistakes_are_said_once_and_the_program_runs),
        cmocka_unit_test(options_without_effect_are_named),
        cmocka_unit_test(help_is_the_table_and_the_program_runs),
        cmocka_unit_test(stats_is_a_table_that_adds_up),
        cmocka_unit_test(stats_names_each_figure),
        cmocka_unit_test(reports_reach_stderr_though_the_program_closed_it),
        cmocka_unit_test(reports_reach_no_file_of_the_program),
        cmocka_unit_test(warm_pool_stats_are_the_csv_summed),
        cmocka_unit_test(front_metrics_are_the_csv_summed),
        cmocka_unit_test(the_csv_counts_rightly),
        cmocka_unit_test(too_long_a_csv_path_is_said),
        cmocka_unit_test(the_csv_goes_to_the_file_that_is_named),
        cmocka_unit_test(the_csv_file_may_name_the_process),
        cmocka_unit_test(the_csv_follows_no_symbolic_link),
    };
    return cmocka_run_group_tests_name("reports", tests, NULL, heap_is_sound);
}
