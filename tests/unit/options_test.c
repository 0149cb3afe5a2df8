/*
 * options_test.c - the option parser: what is taken, what is refused with which text, what wins over what.
 */
#include "conf/nearest.h"
#include "conf/option_rows.h"
#include "conf/options.h"
#include "meta/classes.h"
#include "os/os.h"
#include "support/child.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define SAID_BYTES_MAX 4096
#define RETAIN_MB      64
#define PINNED_PAGES   1536

static struct hak_options options;
static unsigned processors = 1;
static char said[SAID_BYTES_MAX];

/* Parses an environment of up to three entries into `options`, fresh defaults, and keeps what was said. */
static void parse(const char *first, const char *second, const char *third) {
    char *environment[] = {"PATH=/bin", (char *)first, (char *)second, (char *)third, NULL};
    static const struct hak_options *defaults = &hak_options;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    memcpy(&options, defaults, sizeof options);
    options.retain_mb = RETAIN_MB;           /* as the table has it, however many processors there are here */
    options.pinned_pages = HAK_PINNED_PAGES; /* likewise */
    options.parked_shards = HAK_PARKED_SHARDS;
    options.lasting_mb = HAK_LASTING_MB;
    hak_options_parse(&options, environment, processors, ends[1]);
    assert_int_equal(close(ends[1]), 0);
    ssize_t bytes = read(ends[0], said, sizeof said - 1);
    assert_true(bytes >= 0);
    said[bytes] = '\0';
    assert_int_equal(close(ends[0]), 0);
}

/* The same on a machine with so many processors. */
static void parse_for(unsigned now, const char *setting) {
    processors = now;
    parse(setting, NULL, NULL);
    processors = 1;
}

static void test_defaults_stand_before_anything_ran(void **state) {
    (void)state;
    assert_int_equal(hak_options.ss_lru_count, 4);
    assert_int_equal(hak_options.ss_lru_mb, 8);
    assert_int_equal(hak_options.ss_lru_ms, 1000);
    parse_for(hak_os_processors(), NULL);
    assert_int_equal(hak_options.retain_mb, options.retain_mb);
    assert_int_equal(hak_options.pinned_pages, options.pinned_pages);
    assert_int_equal(hak_options.tiny_profile, HAK_PROFILE_DEFAULT);
    assert_int_equal(hak_options.deepbind, HAK_DEEPBIND_CLEAR);
    assert_int_equal(hak_options.tiny_prewarm_blocks[42], 0);
    assert_false(hak_options.stats);
    assert_string_equal(hak_options.tiny_front_dump, "");
}

static void test_every_row_is_within_its_bounds_and_named_once(void **state) {
    (void)state;
    for (size_t i = 0; i < HAK_OPTION_ROWS; i++) {
        const struct hak_option_row *row = &hak_option_rows[i];
        if (row->kind == HAK_OPTION_NUMBER || row->kind == HAK_OPTION_LIST) {
            assert_in_range(row->initial, row->minimum, row->maximum);
        }
        assert_true(strlen(row->help) > 0);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(row->name, hak_option_rows[j].name);
        }
    }
}

static void test_good_values_are_taken_in_silence(void **state) {
    (void)state;
    parse("HAKMEM_SS_LRU_MB=17", "HAKMEM_STATS=1", "HAKMEM_DEEPBIND=keep");
    assert_string_equal(said, "");
    assert_int_equal(options.ss_lru_mb, 17);
    assert_true(options.stats);
    assert_int_equal(options.deepbind, HAK_DEEPBIND_KEEP);
    parse("HAKMEM_SS_LRU_MB=0", "HAKMEM_SS_LRU_MS=86400000", "HAKMEM_SS_PREFAULT=2");
    assert_string_equal(said, "");
    assert_int_equal(options.ss_lru_mb, 0);
    assert_int_equal(options.ss_lru_ms, 86400000);
    assert_int_equal(options.ss_prefault, HAK_PREFAULT_TOUCH);
}

static void test_empty_values_and_other_names_say_nothing(void **state) {
    (void)state;
    parse("HAKMEM_STATS=", "HAKMEMSTATS=1", "XHAKMEM_STATS=1");
    assert_string_equal(said, "");
    assert_false(options.stats);
    parse("HAKMEM_STATS", "HAKMEM_DEBUG_COUNTERS=1", "HAKMEM_BUILD_RELEASE=0");
    assert_string_equal(said, "");
    assert_memory_equal(&options, &hak_options, sizeof options);
    parse(NULL, NULL, NULL);
    assert_memory_equal(&options, &hak_options, sizeof options);
}

static void test_unknown_names_get_the_nearest_match(void **state) {
    (void)state;
    parse("HAKMEM_STAT=1", NULL, NULL);
    assert_string_equal(said, "hakmem: unknown option HAKMEM_STAT (did you mean HAKMEM_STATS?)\n");
    parse("HAKMEM_TINY_PREWRM_C3=1", NULL, NULL);
    assert_string_equal(
        said, "hakmem: unknown option HAKMEM_TINY_PREWRM_C3 (did you mean HAKMEM_TINY_PREWARM_C3?)\n");
    parse("HAKMEM_TINY_PREWARM_C44=1", NULL, NULL);
    assert_string_equal(
        said, "hakmem: unknown option HAKMEM_TINY_PREWARM_C44 (did you mean HAKMEM_TINY_PREWARM_C4?)\n");
    parse("HAKMEM_QUACK_LIKE_A_DUCK=1", NULL, NULL);
    assert_string_equal(said, "hakmem: unknown option HAKMEM_QUACK_LIKE_A_DUCK\n");
    parse("HAKMEM_=1", NULL, NULL);
    assert_string_equal(said, "hakmem: unknown option HAKMEM_\n");
}

static void test_bad_numbers_keep_the_default(void **state) {
    static const char *const bad[] = {"abc", "-1", "1048577", "8x", " 8", "0x10", "99999999999999999999999",
                                      "+8"};
    (void)state;
    for (size_t i = 0; i < HAK_COUNT_OF(bad); i++) {
        char entry[64];
        char expected[160];
        (void)snprintf(entry, sizeof entry, "HAKMEM_SS_LRU_MB=%s", bad[i]);
        (void)snprintf(expected, sizeof expected,
                       "hakmem: %s: not a number of MB from 0 to 1048576; using 8\n", entry);
        parse(entry, NULL, NULL);
        assert_string_equal(said, expected);
        assert_int_equal(options.ss_lru_mb, 8);
    }
    parse("HAKMEM_SS_PREFAULT=3", NULL, NULL);
    assert_string_equal(said, "hakmem: HAKMEM_SS_PREFAULT=3: not a number from 0 to 2; using 0\n");
}

static void test_bad_flags_and_words_keep_the_default(void **state) {
    (void)state;
    parse("HAKMEM_STATS=yes", NULL, NULL);
    assert_string_equal(said, "hakmem: HAKMEM_STATS=yes: not 0 or 1; using 0\n");
    parse("HAKMEM_TINY_PROFILE=troughput", NULL, NULL);
    assert_string_equal(said, "hakmem: HAKMEM_TINY_PROFILE=troughput: not one of default, conservative, "
                              "throughput (did you mean throughput?); using default\n");
    parse("HAKMEM_DEEPBIND=0", NULL, NULL);
    assert_string_equal(said, "hakmem: HAKMEM_DEEPBIND=0: not one of clear, keep; using clear\n");
}

static void test_a_profile_sets_defaults_and_explicit_settings_win(void **state) {
    (void)state;
    parse("HAKMEM_SS_LRU_MB=3", "HAKMEM_TINY_PROFILE=conservative", NULL);
    assert_string_equal(said, "");
    assert_int_equal(options.ss_lru_mb, 3);
    assert_int_equal(options.ss_lru_count, 0);
    assert_int_equal(options.retain_mb, 0);
    parse("HAKMEM_TINY_PROFILE=throughput", "HAKMEM_SS_LRU_MB=none", NULL);
    assert_string_equal(said,
                        "hakmem: HAKMEM_SS_LRU_MB=none: not a number of MB from 0 to 1048576; using 64\n");
    assert_int_equal(options.ss_lru_mb, 64);
    assert_int_equal(options.retain_mb, 512);
}

static void assert_kept(unsigned now, const char *setting, unsigned retain_mb, unsigned pinned_pages) {
    parse_for(now, setting);
    assert_string_equal(said, "");
    assert_int_equal(options.retain_mb, retain_mb);
    assert_int_equal(options.pinned_pages, pinned_pages);
}

static void assert_lasting(unsigned now, const char *setting, unsigned lasting_mb) {
    parse_for(now, setting);
    assert_int_equal(options.lasting_mb, lasting_mb);
}

/* Only where nobody has said what may stay it may be more where cycles last. */
static void test_lasting_cycles_keep_more_unless_it_is_said_how_much(void **state) {
    (void)state;
    assert_lasting(1, NULL, HAK_LASTING_MB);
    assert_lasting(1, "HAKMEM_STATS=1", HAK_LASTING_MB);
    assert_lasting(1, "HAKMEM_RETAIN_MB=32", 32);
    assert_lasting(1, "HAKMEM_RETAIN_MB=64", 64);
    assert_lasting(8, "HAKMEM_RETAIN_MB=128", 128);
    assert_lasting(1, "HAKMEM_RETAIN_MB=0", 0);
    assert_lasting(1, "HAKMEM_RETAIN_MB=100000", 100000);
    assert_lasting(1, "HAKMEM_TINY_PROFILE=conservative", 0);
    assert_lasting(1, "HAKMEM_TINY_PROFILE=throughput", 512);
    assert_lasting(16, NULL, 256);
    assert_lasting(32, NULL, 512);
    assert_lasting(32, "HAKMEM_STATS=1", 512);
    assert_lasting(32, "HAKMEM_RETAIN_MB=64", 64);
}

static void test_shards_of_parked_runs_go_with_the_processors(void **state) {
    (void)state;
    static const unsigned rows[][2] = {{1, 4}, {7, 4}, {8, 8}, {12, 8}, {16, 16}, {32, 32}, {10000, 32}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        parse_for(rows[i][0], NULL);
        assert_int_equal(options.parked_shards, rows[i][1]);
    }
}

static void test_what_is_kept_goes_with_the_processors_unless_it_is_set(void **state) {
    (void)state;
    assert_kept(1, NULL, RETAIN_MB, PINNED_PAGES);
    assert_kept(7, NULL, RETAIN_MB, PINNED_PAGES);
    assert_kept(8, NULL, 2 * RETAIN_MB, 2 * PINNED_PAGES);
    assert_kept(16, "HAKMEM_STATS=1", 4 * RETAIN_MB, 4 * PINNED_PAGES);
    assert_kept(16, "HAKMEM_TINY_PROFILE=throughput", 4 * 512, 4 * PINNED_PAGES);
    assert_kept(16, "HAKMEM_TINY_PROFILE=conservative", 0, 4 * PINNED_PAGES);
    assert_kept(16, "HAKMEM_RETAIN_MB=65", 65, 4 * PINNED_PAGES);
    assert_kept(10000, NULL, 16 * RETAIN_MB, 16 * PINNED_PAGES);
}

static void test_prewarm_of_one_class_wins_over_all(void **state) {
    (void)state;
    parse("HAKMEM_TINY_PREWARM_C43=0", "HAKMEM_TINY_PREWARM_ALL=5", "HAKMEM_TINY_PREWARM_C0=256");
    assert_string_equal(said, "");
    assert_int_equal(options.tiny_prewarm_blocks[0], 256);
    assert_int_equal(options.tiny_prewarm_blocks[1], 5);
    assert_int_equal(options.tiny_prewarm_blocks[38], 5);
    assert_int_equal(options.tiny_prewarm_blocks[43], 0);
    parse("HAKMEM_TINY_PREWARM_C7=257", "HAKMEM_TINY_PREWARM_ALL=9", NULL);
    assert_string_equal(
        said, "hakmem: HAKMEM_TINY_PREWARM_C7=257: not a number of blocks from 0 to 256; using 9\n");
    assert_int_equal(options.tiny_prewarm_blocks[7], 9);
}

static void test_paths(void **state) {
    static char entry[HAK_OPTION_PATH_BYTES + 64];
    (void)state;
    parse("HAKMEM_TINY_FRONT_DUMP=/tmp/a b.csv", NULL, NULL);
    assert_string_equal(options.tiny_front_dump, "/tmp/a b.csv");
    parse("HAKMEM_TINY_FRONT_DUMP=1", NULL, NULL);
    assert_string_equal(options.tiny_front_dump, HAK_OPTION_PATH_STDERR);
    parse("HAKMEM_TINY_FRONT_DUMP=0", NULL, NULL);
    assert_string_equal(options.tiny_front_dump, "");
    parse("HAKMEM_TINY_FRONT_DUMP=off", NULL, NULL); /* as the table says */
    assert_string_equal(options.tiny_front_dump, "");
    strcpy(entry, "HAKMEM_TINY_FRONT_DUMP=");
    size_t name_bytes = strlen(entry);
    memset(entry + name_bytes, 'p', HAK_OPTION_PATH_BYTES - 1);
    entry[name_bytes + HAK_OPTION_PATH_BYTES - 1] = '\0';
    parse(entry, NULL, NULL);
    assert_string_equal(said, "");
    assert_int_equal(strlen(options.tiny_front_dump), HAK_OPTION_PATH_BYTES - 1);
    strcat(entry, "p");
    parse(entry, NULL, NULL);
    assert_non_null(strstr(said, "ppp...: longer than 1023 characters; using none\n"));
    assert_string_equal(options.tiny_front_dump, "");
}

static void test_warnings_carry_no_control_characters(void **state) {
    (void)state;
    parse("HAKMEM_STATS=\x1b[31m\n", "HAKMEM_\x07=1", NULL);
    assert_string_equal(said, "hakmem: HAKMEM_STATS=?[31m?: not 0 or 1; using 0\nhakmem: unknown option "
                              "HAKMEM_?\n");
}

static void test_help_has_one_aligned_line_for_each_option(void **state) {
    int ends[2];
    size_t lines = 0;
    (void)state;
    assert_int_equal(pipe(ends), 0);
    hak_options_help(ends[1]);
    assert_int_equal(close(ends[1]), 0);
    ssize_t bytes = read(ends[0], said, sizeof said - 1);
    assert_true(bytes > 0 && (size_t)bytes < sizeof said - 1);
    said[bytes] = '\0';
    assert_int_equal(close(ends[0]), 0);
    size_t help_column = (size_t)(strstr(said, "MEANING") - said);
    for (char *line = strtok(said, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++) {
        assert_true(strlen(line) > help_column);
        assert_int_equal(line[help_column - 1], ' ');
        assert_int_not_equal(line[help_column], ' ');
    }
    assert_int_equal(lines, HAK_OPTION_ROWS + 1);
}

static void test_nearest_counts_edits(void **state) {
    struct hak_nearest nearest;
    (void)state;
    hak_nearest_begin(&nearest, "kitten", 6);
    hak_nearest_offer(&nearest, "sitting", 7);
    assert_string_equal(nearest.word, "sitting");
    assert_int_equal(nearest.distance, 3);
    hak_nearest_offer(&nearest, "mitten", 6);
    assert_string_equal(nearest.word, "mitten");
    hak_nearest_offer(&nearest, "bitten", 6);
    assert_string_equal(nearest.word, "mitten");
    static const char long_word[] = "a word of more than thirty-two characters";
    hak_nearest_offer(&nearest, long_word, sizeof long_word - 1);
    assert_string_equal(nearest.word, "mitten");
    hak_nearest_begin(&nearest, "", 0);
    hak_nearest_offer(&nearest, "ab", 2);
    assert_string_equal(nearest.word, "");
}

/* Set in a child: no OS page's rights can be changed. */
static bool has_no_mprotect;

/* In place of the C library's, for hakmem's objects in this program. */
int mprotect(void *address, size_t bytes, int protection) {
    if (has_no_mprotect) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_mprotect, address, bytes, protection);
}

/* What stands before a write to the options, in a child. */
struct before_write {
    const char *setting;
    uint64_t limit_bytes;
    size_t offset_bytes; /* of the write */
};

static int write_to_the_options(void *context) {
    const struct before_write *before = context;
    char *environment[] = {(char *)before->setting, NULL};
    (void)signal(SIGSEGV, SIG_DFL); /* cmocka has a handler */
    uint32_t retain_mb = hak_options.retain_mb;
    hak_options_start(environment, before->limit_bytes, 1);
    bool is_changed = hak_options.retain_mb != retain_mb;
    if (is_changed != (before->setting != NULL || before->limit_bytes != 0)) {
        return 1;
    }
    ((uint8_t *)&hak_options)[before->offset_bytes] = 1;
    return 0;
}

static void test_a_write_to_the_options_faults_whatever_was_set(void **state) {
    (void)state;
    static struct child child;
    const size_t last = sizeof hak_options - 1;
    struct before_write befores[] = {{NULL, 0, 0},
                                     {NULL, 0, last},
                                     {"HAKMEM_RETAIN_MB=3", 0, 0},
                                     {"HAKMEM_RETAIN_MB=3", 0, last},
                                     {NULL, (uint64_t)128 << 20, 0}};
    for (unsigned i = 0; i < sizeof befores / sizeof befores[0]; i++) {
        child = (struct child){.function = write_to_the_options, .context = &befores[i]};
        child_run(&child);
        assert_int_equal(child_signal(&child), SIGSEGV);
    }
}

static int start_without_mprotect(void *context) {
    char *environment[] = {context, NULL};
    uint32_t retain_mb = hak_options.retain_mb;
    has_no_mprotect = true;
    hak_options_start(environment, 0, 1);
    return hak_options.retain_mb == retain_mb ? 0 : 1;
}

static void test_settings_that_cannot_be_stored_are_told(void **state) {
    (void)state;
    static struct child child;
    static char setting[] = "HAKMEM_RETAIN_MB=3";
    child = (struct child){.function = start_without_mprotect, .context = setting};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.err,
                        "hakmem: mprotect failed: the settings in the environment are not in force\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_stand_before_anything_ran),
        cmocka_unit_test(test_every_row_is_within_its_bounds_and_named_once),
        cmocka_unit_test(test_good_values_are_taken_in_silence),
        cmocka_unit_test(test_empty_values_and_other_names_say_nothing),
        cmocka_unit_test(test_unknown_names_get_the_nearest_match),
        cmocka_unit_test(test_bad_numbers_keep_the_default),
        cmocka_unit_test(test_bad_flags_and_words_keep_the_default),
        cmocka_unit_test(test_a_profile_sets_defaults_and_explicit_settings_win),
        cmocka_unit_test(test_what_is_kept_goes_with_the_processors_unless_it_is_set),
        cmocka_unit_test(test_lasting_cycles_keep_more_unless_it_is_said_how_much),
        cmocka_unit_test(test_shards_of_parked_runs_go_with_the_processors),
        cmocka_unit_test(test_prewarm_of_one_class_wins_over_all),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_warnings_carry_no_control_characters),
        cmocka_unit_test(test_help_has_one_aligned_line_for_each_option),
        cmocka_unit_test(test_nearest_counts_edits),
        cmocka_unit_test(test_a_write_to_the_options_faults_whatever_was_set),
        cmocka_unit_test(test_settings_that_cannot_be_stored_are_told),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
