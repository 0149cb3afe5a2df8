/*
 * options_test.c - each HAKMEM_ option does what it says, seen from outside: what it prints, what it changes.
 *
 * This program starts itself with the option set and a mode, and reads the reports, the CSV that
 * HAKMEM_TINY_FRONT_DUMP writes, or figures of hak_stats_get that the mode prints. The parser's own rules are
 * in unit/options_test.c, HAKMEM_DEEPBIND in dlopen_test.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CLASSES     HAK_STATS_CLASSES
#define CLASS_64    3 /* the class of 64-byte blocks */
#define LOAD_BLOCKS 10000
#define PEAK_BLOCKS (48 * 1024 * 1024 / 512)

static struct child child;

/* ---- what the children do -------------------------------------------------------------------------------
 */

static void *held[PEAK_BLOCKS];

static void take(unsigned count, size_t bytes) {
    for (unsigned i = 0; i < count; i++) {
        held[i] = malloc(bytes);
        CHECK(held[i] != NULL);
        memset(held[i], 1, bytes);
    }
}

static void give(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        free(held[i]);
    }
}

static void print_stats(void) {
    static struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    dprintf(STDOUT_FILENO, "%zu %zu %zu", stats.superslabs_empty, stats.resident_bytes, stats.mapped_bytes);
    for (unsigned i = 0; i < CLASSES; i++) {
        dprintf(STDOUT_FILENO, " %zu", stats.classes[i].cached_blocks);
    }
}

static void *take_in_a_thread(void *context) {
    (void)context;
    take(LOAD_BLOCKS, 64);
    return NULL;
}

static void run_load(void) {
    for (unsigned round = 0; round < 3; round++) {
        take(LOAD_BLOCKS, 64);
        give(LOAD_BLOCKS);
    }
    take(1000, 5000);
    give(1000);
}

static void run_remote(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_in_a_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    give(LOAD_BLOCKS);
}

static void run_take(void) {
    take(LOAD_BLOCKS, 64);
}

static void run_first(void) {
    free(launder(malloc(1)));
    print_stats();
}

static void run_cached(void) {
    run_load();
    print_stats();
}

static void run_peak(void) {
    take(PEAK_BLOCKS, 500);
    give(PEAK_BLOCKS);
    print_stats();
}

/*
 * 32 MiB stay live, so that a few MiB may stay free; 16 MiB more are freed; then a rest, and then so little
 * that nothing of what was freed is wanted again.
 */
static void run_rest(void) {
    take(PEAK_BLOCKS, 500);
    for (unsigned i = PEAK_BLOCKS / 3 * 2; i < PEAK_BLOCKS; i++) {
        free(held[i]);
    }
    usleep(100000);
    for (unsigned i = 0; i < 8; i++) {
        free(launder(malloc(20000)));
    }
    print_stats();
}

/* A program in cycles: fills and empties 32 MiB for six seconds. Prints the most that stayed after a cycle.
 */
static void run_cycles(void) {
    time_t end = time(NULL) + 6;
    size_t kept_bytes_max = 0;
    while (time(NULL) < end) {
        take(32 * 2048, 500);
        give(32 * 2048);
        size_t kept_bytes = mallinfo2().arena;
        kept_bytes_max = kept_bytes > kept_bytes_max ? kept_bytes : kept_bytes_max;
    }
    dprintf(STDOUT_FILENO, "%zu", kept_bytes_max);
}

static void run_close_stderr(void) {
    close(STDERR_FILENO);
}

/* As a daemon that closes all it has inherited and opens files of its own. */
static void run_reuse_descriptors(void) {
    for (int fd = STDERR_FILENO; fd < 1024; fd++) {
        close(fd);
    }
    for (int fd = STDERR_FILENO; fd < 200; fd++) {
        CHECK(open(getenv("TEST_FILE"), O_RDWR | O_CREAT | O_APPEND, 0600) == fd);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"load", run_load},
    {"remote", run_remote},
    {"take", run_take},
    {"first", run_first},
    {"cached", run_cached},
    {"peak", run_peak},
    {"rest", run_rest},
    {"cycles", run_cycles},
    {"close-stderr", run_close_stderr},
    {"reuse-descriptors", run_reuse_descriptors},
};

static int run_mode(const char *name) {
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        if (strcmp(modes[i].name, name) == 0) {
            modes[i].run();
            return 0;
        }
    }
    return 2;
}

/* ---- reading what they say ------------------------------------------------------------------------------
 */

static void run(const char *mode, const char *first, const char *second, const char *third) {
    child = (struct child){
        .program = own_path(), .arguments = {mode}, .environment = {first, second, third, NULL}};
    child_run(&child);
    assert_child_succeeded(&child);
}

struct figures {
    size_t superslabs_empty, resident_bytes, mapped_bytes;
    size_t cached_blocks[CLASSES];
};

static struct figures figures_of(const char *mode, const char *first, const char *second, const char *third) {
    struct figures figures;
    int used_bytes;
    run(mode, first, second, third);
    assert_string_equal(child.err, "");
    const char *position = child.out;
    assert_int_equal(sscanf(position, "%zu %zu %zu%n", &figures.superslabs_empty, &figures.resident_bytes,
                            &figures.mapped_bytes, &used_bytes),
                     3);
    for (unsigned i = 0; i < CLASSES; i++) {
        position += used_bytes;
        assert_int_equal(sscanf(position, "%zu%n", &figures.cached_blocks[i], &used_bytes), 1);
    }
    return figures;
}

enum column {
    CLASS,
    BLOCK_BYTES,
    ALLOCATIONS,
    FREES,
    CACHE_HITS,
    CACHE_MISSES,
    CACHE_SPILLS,
    WARM_HITS,
    WARM_MISSES,
    WARM_PREFILLS,
    POOL_VISITS,
    POOL_ADOPTIONS,
    NEW_SLABS,
    NEW_SUPERSLABS,
    REMOTE_FREES,
    COLUMNS,
};

#define CSV_HEADING                                                                                          \
    "class,block_bytes,allocations,frees,cache_hits,cache_misses,cache_spills,warm_hits,warm_misses,"        \
    "warm_prefills,pool_visits,pool_adoptions,new_slabs,new_superslabs,remote_frees\n"

static unsigned long csv[CLASSES][COLUMNS];

/* Reads the CSV that stands in `text`; returns what follows it. */
static const char *read_csv(const char *text) {
    const char *position = strstr(text, CSV_HEADING);
    assert_non_null(position);
    position += strlen(CSV_HEADING);
    for (unsigned row = 0; row < CLASSES; row++) {
        for (unsigned column = 0; column < COLUMNS; column++) {
            char *end;
            csv[row][column] = strtoul(position, &end, 10);
            assert_ptr_not_equal(end, position);
            assert_int_equal(*end, column + 1 < COLUMNS ? ',' : '\n');
            position = end + 1;
        }
        assert_int_equal(csv[row][CLASS], row);
    }
    return position;
}

static unsigned long sum_of(enum column column) {
    unsigned long sum = 0;
    for (unsigned row = 0; row < CLASSES; row++) {
        sum += csv[row][column];
    }
    return sum;
}

/* The numbers of the table's row that starts with `label`, after the line `title`. */
static unsigned numbers_of(const char *title, const char *label, unsigned long *numbers, unsigned count_max) {
    unsigned count = 0;
    const char *table = strstr(child.err, title);
    assert_non_null(table);
    const char *row = strstr(table, label);
    assert_non_null(row);
    for (const char *position = row + strlen(label); count < count_max; count++) {
        char *end;
        numbers[count] = strtoul(position, &end, 10);
        if (end == position || memchr(position, '\n', (size_t)(end - position)) != NULL) {
            break;
        }
        position = end;
    }
    return count;
}

/* A file in the suite's own directory that does not exist yet. */
static const char *fresh_path(const char *name) {
    static char path[4096];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/%s", folder != NULL ? folder : "/tmp", name);
    (void)unlink(path);
    return path;
}

static const char *read_file(const char *path) {
    static char text[16 * KIB];
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    close(fd);
    return text;
}

/* ---- reports --------------------------------------------------------------------------------------------
 */

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

/* ---- settings that change the heap ----------------------------------------------------------------------
 */

static void prewarm_fills_the_cache_of_a_class(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct figures cold = figures_of("first", NULL, NULL, NULL);
    struct figures warm = figures_of("first", "HAKMEM_TINY_PREWARM_C3=40", NULL, NULL);
    assert_true(cold.cached_blocks[CLASS_64] < 8);
    assert_in_range(warm.cached_blocks[CLASS_64], 38, 64);
    assert_true(warm.cached_blocks[CLASS_64 + 1] < 8);
}

static void prewarm_fills_all_classes_but_those_with_their_own(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct figures warm = figures_of("first", "HAKMEM_TINY_PREWARM_ALL=16", "HAKMEM_TINY_PREWARM_C3=0", NULL);
    assert_true(warm.cached_blocks[CLASS_64] < 8);
    for (unsigned i = 0; i < 16; i++) {
        assert_true(i == CLASS_64 || warm.cached_blocks[i] >= 15);
    }
}

static void refill_count_is_how_much_a_refill_moves(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("take", "HAKMEM_TINY_REFILL_COUNT=1", "HAKMEM_TINY_FRONT_DUMP=-", NULL);
    (void)read_csv(child.err);
    assert_true(csv[CLASS_64][CACHE_MISSES] >= LOAD_BLOCKS);
    run("take", "HAKMEM_TINY_REFILL_COUNT=100", "HAKMEM_TINY_FRONT_DUMP=-", NULL);
    (void)read_csv(child.err);
    /* and, before the class has proved hot, some single blocks */
    assert_in_range(csv[CLASS_64][CACHE_MISSES], LOAD_BLOCKS / 100, LOAD_BLOCKS / 100 + 100);
}

static void prefault_brings_new_superslabs_into_memory(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_true(figures_of("first", "HAKMEM_SS_PREFAULT=0", NULL, NULL).resident_bytes < 1 * MIB);
    assert_true(figures_of("first", "HAKMEM_SS_PREFAULT=1", NULL, NULL).resident_bytes >= 2 * MIB);
    assert_true(figures_of("first", "HAKMEM_SS_PREFAULT=2", NULL, NULL).resident_bytes >= 2 * MIB);
}

static void the_lru_keeps_within_its_count_and_bytes(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_true(figures_of("rest", "HAKMEM_SS_LRU_MS=60000", NULL, NULL).superslabs_empty >= 3);
    assert_true(
        figures_of("rest", "HAKMEM_SS_LRU_MS=60000", "HAKMEM_SS_LRU_COUNT=1", NULL).superslabs_empty <= 1);
    assert_int_equal(figures_of("rest", "HAKMEM_SS_LRU_COUNT=0", NULL, NULL).superslabs_empty, 0);
    assert_true(figures_of("rest", "HAKMEM_SS_LRU_MS=60000", "HAKMEM_SS_LRU_MB=3", NULL).superslabs_empty <=
                1);
}

static void the_lru_keeps_nothing_beyond_its_age(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_true(figures_of("rest", "HAKMEM_SS_LRU_MS=10", NULL, NULL).superslabs_empty <= 1);
    assert_true(figures_of("rest", "HAKMEM_SS_LRU_MS=86400000", NULL, NULL).superslabs_empty >= 3);
}

static void retain_bounds_what_a_program_in_cycles_keeps(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("cycles", "HAKMEM_RETAIN_MB=64", NULL, NULL);
    assert_true(strtoul(child.out, NULL, 10) >= 24 * MIB);
    run("cycles", "HAKMEM_RETAIN_MB=0", NULL, NULL);
    assert_true(strtoul(child.out, NULL, 10) <= 16 * MIB);
}

static void profiles_trade_memory_for_speed(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct figures conservative = figures_of("cached", "HAKMEM_TINY_PROFILE=conservative", NULL, NULL);
    struct figures standard = figures_of("cached", "HAKMEM_TINY_PROFILE=default", NULL, NULL);
    struct figures throughput = figures_of("cached", "HAKMEM_TINY_PROFILE=throughput", NULL, NULL);
    assert_true(conservative.cached_blocks[CLASS_64] <= standard.cached_blocks[CLASS_64]);
    assert_true(standard.cached_blocks[CLASS_64] <= throughput.cached_blocks[CLASS_64]);
    assert_true(conservative.cached_blocks[CLASS_64] < throughput.cached_blocks[CLASS_64]);
    assert_int_equal(figures_of("peak", "HAKMEM_TINY_PROFILE=conservative", NULL, NULL).superslabs_empty, 0);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        return run_mode(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_options_nothing_is_said),
        cmocka_unit_test(mistakes_are_said_once_and_the_program_runs),
        cmocka_unit_test(help_is_the_table_and_the_program_runs),
        cmocka_unit_test(stats_is_a_table_that_adds_up),
        cmocka_unit_test(reports_reach_stderr_though_the_program_closed_it),
        cmocka_unit_test(reports_reach_no_file_of_the_program),
        cmocka_unit_test(warm_pool_stats_are_the_csv_summed),
        cmocka_unit_test(front_metrics_are_the_csv_summed),
        cmocka_unit_test(the_csv_counts_rightly),
        cmocka_unit_test(the_csv_goes_to_the_file_that_is_named),
        cmocka_unit_test(the_csv_file_may_name_the_process),
        cmocka_unit_test(the_csv_follows_no_symbolic_link),
        cmocka_unit_test(prewarm_fills_the_cache_of_a_class),
        cmocka_unit_test(prewarm_fills_all_classes_but_those_with_their_own),
        cmocka_unit_test(refill_count_is_how_much_a_refill_moves),
        cmocka_unit_test(prefault_brings_new_superslabs_into_memory),
        cmocka_unit_test(the_lru_keeps_within_its_count_and_bytes),
        cmocka_unit_test(the_lru_keeps_nothing_beyond_its_age),
        cmocka_unit_test(retain_bounds_what_a_program_in_cycles_keeps),
        cmocka_unit_test(profiles_trade_memory_for_speed),
    };
    return cmocka_run_group_tests_name("options from outside", tests, NULL, heap_is_sound);
}
