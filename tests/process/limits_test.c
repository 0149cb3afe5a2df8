/*
 * limits_test.c - no memory left: an address space limit, a full map table, strict overcommit.
 *
 * suite: limit 120 s
 * Each child fills memory until malloc says NULL and ENOMEM, goes on, frees everything, and must then be able
 * to fill it again with blocks of other sizes. Changing the system's overcommit mode is done only when
 * TEST_SYSTEM=1 is set, and undone.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/limits.h"
#include "support/pattern.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* A list through the blocks themselves: it needs no memory of its own. */
struct link {
    struct link *next;
    size_t bytes;
};

static bool list_push(struct link **list, size_t bytes) {
    errno = 0;
    struct link *link = malloc(bytes);
    if (link == NULL) {
        CHECK(errno == ENOMEM);
        return false;
    }
    pattern_mark(link + 1, bytes - sizeof *link, bytes);
    link->next = *list;
    link->bytes = bytes;
    *list = link;
    return true;
}

static void list_clear(struct link **list) {
    while (*list != NULL) {
        struct link *link = *list;
        *list = link->next;
        CHECK(pattern_marked(link + 1, link->bytes - sizeof *link, link->bytes));
        free(link);
    }
}

/* Fills memory with blocks of one size, at most `limit` bytes; returns how many bytes were to be had. */
static size_t fill(struct link **list, size_t bytes, size_t limit) {
    size_t total_bytes = 0;
    while (total_bytes < limit && list_push(list, bytes)) {
        total_bytes += bytes;
    }
    return total_bytes;
}

static const size_t sizes[] = {100, 4000, 30000, 500, 100000, 1500000, 64, 12000, 300000, 5000000, 1000};

/* With memory full: every kind of request fails cleanly or works, nothing is damaged. */
static void go_on_while_full(struct link *list) {
    static const size_t requests[] = {1, 100, 5000, 50000, 500000, 50000000};
    for (size_t i = 0; i < COUNT_OF(requests); i++) {
        void *block = calloc(1, requests[i]);
        CHECK(block == NULL || bytes_are(block, requests[i], 0));
        free(block);
        errno = 0;
        block = memalign(8192, requests[i]);
        CHECK(block != NULL || errno == ENOMEM);
        free(block);
    }
    if (list != NULL) {
        errno = 0;
        void *moved = realloc(list->next != NULL ? list->next : NULL, (size_t)1 << 40);
        CHECK(moved == NULL && errno == ENOMEM);
    }
    check_heap();
}

/* Fill, go on, free, and fill again in the next size: at least three quarters must come back each time. */
static int exhaust_again_and_again(size_t limit) {
    size_t least = SIZE_MAX, most = 0;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct link *list = NULL;
        size_t total_bytes = fill(&list, sizes[i], limit);
        go_on_while_full(list);
        list_clear(&list);
        check_heap();
        least = total_bytes < least ? total_bytes : least;
        most = total_bytes > most ? total_bytes : most;
        printf("%zu-byte blocks: %zu KiB\n", sizes[i], total_bytes / KIB);
    }
    fflush(stdout);
    return least >= most / 4 * 3 ? 0 : 1;
}

static int exhaust_everything(void) {
    return exhaust_again_and_again(SIZE_MAX);
}

#define TABLE_PAGES ((size_t)1 << 20)

struct map_table {
    char *range;
    size_t page_bytes;
    size_t end; /* the page up to which they alternate */
};

/* Fills the table of mappings: pages of alternating rights cannot be merged into one mapping. */
static bool fill_map_table(struct map_table *table) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    *table = (struct map_table){.page_bytes = (size_t)sysconf(_SC_PAGESIZE), .end = 1};
    table->range = mmap(NULL, TABLE_PAGES * table->page_bytes, PROT_NONE, flags, -1, 0);
    CHECK(table->range != MAP_FAILED);
    while (table->end < TABLE_PAGES &&
           mprotect(table->range + table->end * table->page_bytes, table->page_bytes, PROT_READ) == 0) {
        table->end += 2;
    }
    if (table->end >= TABLE_PAGES) {
        printf("vm.max_map_count is beyond what this test fills\n");
    }
    return table->end < TABLE_PAGES;
}

/* Makes room for so many mappings, by twos. */
static void thin_map_table(struct map_table *table, size_t mappings) {
    table->end -= mappings;
    CHECK(mprotect(table->range + table->end * table->page_bytes, mappings * table->page_bytes, PROT_NONE) ==
          0);
}

static void empty_map_table(struct map_table *table) {
    CHECK(munmap(table->range, TABLE_PAGES * table->page_bytes) == 0);
}

static int exhaust_the_map_table(void) {
    struct map_table table;
    free(malloc(100));
    if (!fill_map_table(&table)) {
        return CHILD_SKIP;
    }
    struct link *lists[COUNT_OF(sizes)] = {NULL};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        (void)fill(&lists[i], sizes[i], 20 * MIB);
        go_on_while_full(lists[i]);
    }
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        list_clear(&lists[i]);
    }
    (void)malloc_trim(0);
    check_heap();
    empty_map_table(&table);
    return exhaust_again_and_again(64 * MIB);
}

/* What cannot be had leaves nothing behind: no records of what would have been. */
static int ask_for_too_much(void) {
    char *block = malloc(4 * MIB);
    limit_room(8 * MIB);
    for (unsigned i = 0; i < 3; i++) {
        errno = 0;
        CHECK(realloc(block, (size_t)70 * 1024 * MIB) == NULL && errno == ENOMEM);
    }
    CHECK(launder(malloc(3 * MIB)) != NULL);
    return 0;
}

/* A block that shrinks needs no other one. */
static int shrink_while_full(void) {
    static const size_t from[] = {100, 20000, 100000, 1500000};
    static const size_t to[] = {10, 500, 1000, 2000};
    void *blocks[COUNT_OF(from)];
    struct link *list = NULL;
    for (size_t i = 0; i < COUNT_OF(from); i++) {
        blocks[i] = malloc(from[i]);
        pattern_fill(blocks[i], to[i], i);
    }
    limit_room(0);
    for (size_t bytes = 1 << 20; bytes >= 16; bytes = bytes / 4 * 3) {
        (void)fill(&list, bytes, SIZE_MAX);
    }
    for (size_t i = 0; i < COUNT_OF(from); i++) {
        errno = 0;
        void *block = realloc(blocks[i], to[i]);
        CHECK(block != NULL && errno == 0 && pattern_holds(block, to[i], i));
    }
    list_clear(&list);
    check_heap();
    return 0;
}

/* Blocks that move as they grow, and blocks made of kept pieces: together they come near the limit. */
static int grow_near_the_limit(void) {
    free(malloc(20 * MIB));
    CHECK(malloc_trim(0) >= 0);
    size_t before_bytes = address_space_bytes();
    for (unsigned round = 0; round < 5; round++) {
        void *in_the_way = malloc(2 * MIB);
        unsigned char *block = malloc(20 * MIB);
        CHECK(in_the_way != NULL && block != NULL);
        pattern_fill(block, 20 * MIB, round);
        block = realloc(block, 45 * MIB);
        CHECK(block != NULL && pattern_holds(block, 20 * MIB, round));
        free(block);
        free(in_the_way);
        block = malloc((40 + round) * MIB);
        CHECK(block != NULL);
        free(block);
    }
    CHECK(malloc_trim(0) >= 0);
    CHECK(address_space_bytes() <= before_bytes + 2 * MIB);
    check_heap();
    return 0;
}

static void *wait_for_end(void *end) {
    (void)pthread_mutex_lock(end);
    (void)pthread_mutex_unlock(end);
    return NULL;
}

/* The same where hardly a mapping is left, and other threads may have what the kernel takes. */
static void grow_by_turns(unsigned rounds) {
    enum { BLOCKS = 12 };
    unsigned char *blocks[BLOCKS] = {NULL};
    struct rng rng = rng_seeded(7);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned i = (unsigned)rng_below(&rng, BLOCKS);
        size_t wanted_bytes = MIB + rng_below(&rng, 8 * MIB);
        unsigned char *block = rng_below(&rng, 3) == 0 ? NULL : realloc(blocks[i], wanted_bytes);
        if (block == NULL) {
            free(blocks[i]);
        } else if (blocks[i] == NULL) {
            pattern_fill(block, MIB, i);
        } else {
            CHECK(pattern_holds(block, MIB, i));
        }
        blocks[i] = block;
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        free(blocks[i]);
    }
}

static int grow_in_a_full_map_table(void) {
    pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    struct map_table table;
    (void)pthread_mutex_lock(&end);
    CHECK(pthread_create(&thread, NULL, wait_for_end, &end) == 0);
    grow_by_turns(100);
    CHECK(malloc_trim(0) >= 0);
    size_t before_bytes = address_space_bytes();
    if (!fill_map_table(&table)) {
        return CHILD_SKIP;
    }
    for (unsigned i = 0; i < 20; i++) {
        thin_map_table(&table, 4);
        grow_by_turns(100);
    }
    check_heap();
    empty_map_table(&table);
    CHECK(malloc_trim(0) >= 0);
    size_t after_bytes = address_space_bytes();
    printf("%zu KiB before, %zu KiB after\n", before_bytes / KIB, after_bytes / KIB);
    CHECK(after_bytes <= before_bytes + 12 * MIB);
    check_heap();
    (void)pthread_mutex_unlock(&end);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}

/* Threads cannot be promised under such limits; where they start, they and main share what there is. */
static void *fill_on_thread(void *limit) {
    struct link *list = NULL;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        (void)fill(&list, sizes[i], (size_t)limit / 16);
    }
    list_clear(&list);
    return NULL;
}

static int exhaust_on_threads(void) {
    pthread_t threads[4];
    size_t started = 0;
    while (started < COUNT_OF(threads) &&
           pthread_create(&threads[started], NULL, fill_on_thread, (void *)(512 * MIB)) == 0) {
        started++;
    }
    (void)fill_on_thread((void *)(512 * MIB));
    for (size_t i = 0; i < started; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    check_heap();
    return exhaust_again_and_again(SIZE_MAX);
}

static const struct {
    const char *name;
    int (*run)(void);
} modes[] = {
    {"exhaust", exhaust_everything},
    {"map-table", exhaust_the_map_table},
    {"threads", exhaust_on_threads},
    {"too-much", ask_for_too_much},
    {"shrink", shrink_while_full},
    {"grow", grow_near_the_limit},
    {"grow-map-table", grow_in_a_full_map_table},
};

/* ---- tests ---- */

static struct child child;

static int limit_address_space(void *bytes) {
    struct rlimit limit = {(rlim_t)(uintptr_t)bytes, (rlim_t)(uintptr_t)bytes};
    return setrlimit(RLIMIT_AS, &limit);
}

/* The limit holds from before the program starts: start-up must fit too. */
static void run_limited(const char *mode, size_t limit_bytes) {
    child = (struct child){.program = own_path(),
                           .arguments = {mode},
                           .prepare = limit_bytes != 0 ? limit_address_space : NULL,
                           .context = (void *)limit_bytes};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.err, "");
}

static void runs_under_ulimit_v_of_64_mib(void **state) {
    (void)state;
    run_limited("exhaust", 64 * MIB);
}

static void runs_under_ulimit_v_of_100_mib(void **state) {
    (void)state;
    run_limited("exhaust", 100 * MIB);
}

static void runs_under_ulimit_v_of_200_mib(void **state) {
    (void)state;
    run_limited("exhaust", 200 * MIB);
}

static void runs_under_ulimit_v_of_400_mib(void **state) {
    (void)state;
    run_limited("exhaust", 400 * MIB);
}

static void threads_run_under_ulimit_v(void **state) {
    (void)state;
    run_limited("threads", 200 * MIB);
}

static void a_realloc_that_fails_takes_no_address_space(void **state) {
    (void)state;
    run_limited("too-much", 0);
}

static void what_grows_near_the_limit_loses_no_address_space(void **state) {
    (void)state;
    run_limited("grow", 90 * MIB);
}

static void a_block_shrinks_without_memory(void **state) {
    (void)state;
    run_limited("shrink", 0);
}

static void a_full_map_table_is_survived(void **state) {
    (void)state;
    run_limited("map-table", 0);
}

static void what_grows_in_a_full_map_table_loses_no_address_space(void **state) {
    (void)state;
    run_limited("grow-map-table", 0);
}

#define OVERCOMMIT "/proc/sys/vm/overcommit_memory"

/* Until the process ends: the other flavour's test at the same time would take our mode for the one to put
 * back.
 */
static void wait_for_other_flavours(void) {
    int fd = open(own_path(), O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
}

static bool write_overcommit(char mode) {
    int fd = open(OVERCOMMIT, O_WRONLY);
    bool is_written = fd >= 0 && write(fd, &mode, 1) == 1;
    if (fd >= 0) {
        close(fd);
    }
    return is_written;
}

static void runs_under_strict_overcommit(void **state) {
    (void)state;
    const char *allowed = getenv("TEST_SYSTEM");
    if (allowed == NULL || strcmp(allowed, "1") != 0) {
        SKIP_BECAUSE("changes the system's setting: only with TEST_SYSTEM=1, as root");
    }
    wait_for_other_flavours();
    char old_mode = '0';
    int fd = open(OVERCOMMIT, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, &old_mode, 1), 1);
    close(fd);
    if (!write_overcommit('2')) {
        SKIP_BECAUSE("may not set " OVERCOMMIT);
    }
    child = (struct child){.program = own_path(),
                           .arguments = {"exhaust"},
                           .prepare = limit_address_space,
                           .context = (void *)(400 * MIB)};
    child_run(&child);
    assert_true(write_overcommit(old_mode));
    assert_child_succeeded(&child);
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < COUNT_OF(modes); i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            return modes[i].run();
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_under_ulimit_v_of_64_mib),
        cmocka_unit_test(runs_under_ulimit_v_of_100_mib),
        cmocka_unit_test(runs_under_ulimit_v_of_200_mib),
        cmocka_unit_test(runs_under_ulimit_v_of_400_mib),
        cmocka_unit_test(threads_run_under_ulimit_v),
        cmocka_unit_test(a_full_map_table_is_survived),
        cmocka_unit_test(what_grows_in_a_full_map_table_loses_no_address_space),
        cmocka_unit_test(runs_under_strict_overcommit),
        cmocka_unit_test(a_realloc_that_fails_takes_no_address_space),
        cmocka_unit_test(what_grows_near_the_limit_loses_no_address_space),
        cmocka_unit_test(a_block_shrinks_without_memory),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, heap_is_sound);
}
