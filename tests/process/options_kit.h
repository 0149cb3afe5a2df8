/*
 * options_kit.h - what the suites of options share: what their children do, and reading what those say.
 *
 * A suite starts itself with an option set and a mode as argument; its main() calls run_mode() then.
 */
#ifndef HAK_TESTS_PROCESS_OPTIONS_KIT_H
#define HAK_TESTS_PROCESS_OPTIONS_KIT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/fresh_path.h"
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
#define REST_BLOCKS (32 * 1024 * 1024 / 512)

static struct child child;

/* ---- what the children do --------------------------------------------------------------------------- */

static void *held[PEAK_BLOCKS];

#define SWINGS       400u
#define SWING_BLOCKS 600u
#define LARGE_BLOCKS 60u

static inline void take(unsigned count, size_t bytes) {
    for (unsigned i = 0; i < count; i++) {
        held[i] = malloc(bytes);
        CHECK(held[i] != NULL);
        memset(held[i], 1, bytes);
    }
}

static inline void give(unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        free(held[i]);
    }
}

static inline void print_stats(void) {
    static struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    dprintf(STDOUT_FILENO, "%zu %zu %zu", stats.superslabs_empty, stats.resident_bytes, stats.mapped_bytes);
    for (unsigned i = 0; i < CLASSES; i++) {
        dprintf(STDOUT_FILENO, " %zu", stats.classes[i].cached_blocks);
    }
}

static inline void *take_in_a_thread(void *context) {
    (void)context;
    take(LOAD_BLOCKS, 64);
    return NULL;
}

static inline void run_load(void) {
    for (unsigned round = 0; round < 3; round++) {
        take(LOAD_BLOCKS, 64);
        give(LOAD_BLOCKS);
    }
    take(1000, 5000);
    give(1000);
}

static inline void run_remote(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_in_a_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    give(LOAD_BLOCKS);
}

static inline void run_take(void) {
    take(LOAD_BLOCKS, 64);
}

static inline void run_swings(void) {
    for (unsigned i = 0; i < SWINGS; i++) {
        take(SWING_BLOCKS, 64);
        give(SWING_BLOCKS);
    }
}

static inline void run_first(void) {
    free(launder(malloc(1)));
    print_stats();
}

static inline void run_trimmed(void) {
    void *block = launder(malloc(1));
    (void)malloc_trim(0);
    print_stats();
    free(block);
}

static inline void run_cached(void) {
    run_load();
    print_stats();
}

static inline void run_cached_large(void) {
    for (unsigned i = 0; i < SWINGS; i++) {
        take(LARGE_BLOCKS, 32768);
        give(LARGE_BLOCKS);
    }
    print_stats();
}

static inline void run_peak(void) {
    take(PEAK_BLOCKS, 500);
    give(PEAK_BLOCKS);
    print_stats();
}

/*
 * 512 MiB are in use, untouched, so that 9 may stay free; 32 more are freed; then a rest, and then so little
 * that nothing of what was freed is wanted again.
 */
static inline void run_rest(void) {
    for (unsigned i = 0; i < 512 * 32; i++) {
        CHECK(launder(malloc(32768)) != NULL);
    }
    take(REST_BLOCKS, 500);
    for (unsigned i = 0; i < REST_BLOCKS; i++) {
        free(held[i]);
    }
    usleep(100000);
    for (unsigned i = 0; i < 8; i++) {
        free(launder(malloc(20000)));
    }
    print_stats();
}

/* A program in cycles: fills and empties 32 MiB for six seconds. Prints the most that stayed. */
static inline void run_cycles(void) {
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

static inline void run_close_stderr(void) {
    close(STDERR_FILENO);
}

/* As a daemon that closes all it has inherited and opens files of its own. */
static inline void run_reuse_descriptors(void) {
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
    {"swings", run_swings},
    {"first", run_first},
    {"trimmed", run_trimmed},
    {"cached", run_cached},
    {"cached-large", run_cached_large},
    {"peak", run_peak},
    {"rest", run_rest},
    {"cycles", run_cycles},
    {"close-stderr", run_close_stderr},
    {"reuse-descriptors", run_reuse_descriptors},
};

static inline int run_mode(const char *name) {
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        if (strcmp(modes[i].name, name) == 0) {
            modes[i].run();
            return 0;
        }
    }
    return 2;
}

/* ---- reading what they say -------------------------------------------------------------------------- */

static inline void run(const char *mode, const char *first, const char *second, const char *third) {
    child = (struct child){
        .program = own_path(), .arguments = {mode}, .environment = {first, second, third, NULL}};
    child_run(&child);
    assert_child_succeeded(&child);
}

struct figures {
    size_t superslabs_empty, resident_bytes, mapped_bytes;
    size_t cached_blocks[CLASSES];
};

static inline struct figures figures_of(const char *mode, const char *first, const char *second,
                                        const char *third) {
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
    GUESTS,
    REMOTE_FREES,
    COLUMNS,
};

#define CSV_HEADING                                                                                          \
    "class,block_bytes,allocations,frees,cache_hits,cache_misses,cache_spills,warm_hits,warm_misses,"        \
    "warm_prefills,pool_visits,pool_adoptions,new_slabs,new_superslabs,guests,remote_frees\n"

static unsigned long csv[CLASSES][COLUMNS];

/* Reads the CSV that stands in `text`; returns what follows it. */
static inline const char *read_csv(const char *text) {
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

static inline unsigned long sum_of(enum column column) {
    unsigned long sum = 0;
    for (unsigned row = 0; row < CLASSES; row++) {
        sum += csv[row][column];
    }
    return sum;
}

/* The numbers of the table's row that starts with `label`, after the line `title`. */
static inline unsigned numbers_of(const char *title, const char *label, unsigned long *numbers,
                                  unsigned count_max) {
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

static inline const char *read_file(const char *path) {
    static char text[16 * KIB];
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    close(fd);
    return text;
}

#endif
