/*
 * checked_mode_test.c - checked mode towards programs that ask the heap: sizes, walks, statistics,
 * verification.
 *
 * suite: flavours checked
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_getattr_np */
#endif
#include "support/child.h"
#include "support/fresh_path.h"
#include "support/limits.h"
#include "support/pattern.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONG_BLOCKS  18000u
#define LONG_BYTES   33000u
#define MAPPINGS_MAX 34000u

static const size_t sizes[] = {0, 1, 24, 1000, 32752, 32753, 100001, (size_t)5 << 20};

static void the_usable_size_is_what_was_asked_for(void **state) {
    (void)state;
    REQUIRE_HAK();
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *block = malloc(sizes[i]);
        assert_non_null(block);
        assert_int_equal(malloc_usable_size(block), sizes[i]);
        assert_int_equal(hak_good_size(sizes[i]), sizes[i]);
        assert_true(hak_owns(block));
        free(block);
        assert_false(hak_owns(block));
    }
    assert_int_equal(malloc_usable_size(NULL), 0);
}

struct sought {
    const void *blocks[COUNT_OF(sizes)];
    unsigned found;
};

static int seek(void *block, size_t usable_bytes, void *context) {
    struct sought *sought = context;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        sought->found += block == sought->blocks[i] && usable_bytes == sizes[i];
    }
    return 0;
}

static void a_walk_visits_each_block_with_its_size(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct sought sought = {.found = 0};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        sought.blocks[i] = malloc(sizes[i]);
    }
    assert_int_equal(hak_heap_walk(seek, &sought), 0);
    assert_int_equal(sought.found, COUNT_OF(sizes));
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        free((void *)(uintptr_t)sought.blocks[i]);
    }
    sought.found = 0;
    assert_int_equal(hak_heap_walk(seek, &sought), 0);
    assert_int_equal(sought.found, 0);
}

static void statistics_count_what_lies_between_guard_pages(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct hak_stats before = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof before};
    struct hak_stats after = before;
    assert_int_equal(hak_stats_get(&before), 0);
    void *block = malloc(100000);
    assert_int_equal(hak_stats_get(&after), 0);
    assert_int_equal(after.large_live_bytes - before.large_live_bytes, 100000);
    assert_int_equal(after.live_blocks - before.live_blocks, 1);
    free(block);
    assert_int_equal(hak_stats_get(&after), 0);
    assert_int_equal(after.large_live_bytes, before.large_live_bytes);
}

/* Between guard pages, in slabs, and the records of both. */
static void what_is_resident_is_counted(void **state) {
    enum { LARGE_BLOCKS = 100, SMALL_BLOCKS = 20000, RECORD_BYTES = 40 };
    static void *blocks[LARGE_BLOCKS + SMALL_BLOCKS];
    (void)state;
    REQUIRE_HAK();
    struct hak_stats before = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof before};
    struct hak_stats after = before;
    assert_int_equal(hak_stats_get(&before), 0);
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = malloc(i < LARGE_BLOCKS ? MIB : 16);
        assert_non_null(blocks[i]);
    }
    assert_int_equal(hak_stats_get(&after), 0);
    size_t more_bytes = after.resident_bytes - before.resident_bytes;
    assert_true(more_bytes >= LARGE_BLOCKS * MIB + SMALL_BLOCKS * (32 + RECORD_BYTES));
    assert_true(more_bytes <= after.mapped_bytes - before.mapped_bytes + MIB);
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        free(blocks[i]);
    }
    assert_int_equal(hak_stats_get(&after), 0);
    assert_true(after.resident_bytes < before.resident_bytes + 10 * MIB);
}

/* What is freed is filled with a byte that is looked at later: no other can be asked for. */
static void no_other_fill_can_be_asked_for(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_int_equal(mallopt(M_PERTURB, 0x5A), 0);
    unsigned char *block = malloc(100);
    assert_true(bytes_are(block, 100, 0xCD));
    free(block);
}

static struct child child;

/* The damage is put right again, so that the exit finds nothing. */
static int verify_damage(void *context) {
    char why[200];
    size_t offset = *(const size_t *)context;
    char *block = malloc(40);
    char *volatile at = block + offset;
    char was = *at;
    *at = 1;
    CHECK(hak_verify(why, sizeof why) == -1);
    CHECK(strcmp(why, "checked mode: a block was written to outside its bounds or after it was freed") == 0);
    *at = was;
    CHECK(hak_verify(why, sizeof why) == 0);
    free(block);
    *at = 1;
    CHECK(hak_verify(why, sizeof why) == -1);
    *at = (char)0xDF;
    CHECK(hak_verify(why, sizeof why) == 0);
    return 0;
}

static void verification_finds_damage_of_live_and_freed_blocks(void **state) {
    (void)state;
    REQUIRE_HAK();
    size_t offset = 40;
    child = (struct child){.function = verify_damage, .context = &offset};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_non_null(strstr(child.err, "hakmem: hak_verify(): write past the end of 0x"));
    assert_non_null(strstr(child.err, "hakmem: hak_verify(): write after free to 0x"));
}

__attribute__((noinline)) static void leave_blocks(size_t bytes, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        CHECK(malloc(bytes) != NULL);
    }
}

static int leave_some(void *unused) {
    (void)unused;
    leave_blocks(10000, 7);
    leave_blocks(30, 1);
    free(malloc(200000));
    exit(0);
}

/* The child of a fork inherits blocks; only what it leaves is as large. */
static void what_is_left_is_listed_at_exit(void **state) {
    (void)state;
    REQUIRE_HAK();
    child = (struct child){
        .program = own_path(), .arguments = {"leave"}, .environment = {"HAKMEM_CHECK_LEAKS=1"}};
    child_run(&child);
    assert_int_equal(child_exit_status(&child), 0);
    const char *first = strstr(child.err, "hakmem: exit: ");
    assert_non_null(first);
    assert_non_null(strstr(first, " blocks still allocated\n"));
    const char *site = strstr(first, "  70000 bytes in 7 blocks allocated\n    #0 ");
    assert_non_null(site);
    assert_non_null(strstr(site, "checked_mode_test+0x"));
    assert_null(strstr(strchr(site, '\n'), " allocated\n"));
    child.environment[0] = NULL;
    child_run(&child);
    assert_string_equal(child.err, "");
}

/* As programs do whose last handler closes stderr, or that close all descriptors and open files of their own.
 */
static int damage_and_close(const char *own_file) {
    char *block = malloc(40);
    *((char *)launder(block) + 40) = 1;
    for (int fd = STDERR_FILENO; fd < (own_file != NULL ? 1024 : STDERR_FILENO + 1); fd++) {
        close(fd);
    }
    for (int fd = STDERR_FILENO; own_file != NULL && fd < 200; fd++) {
        CHECK(open(own_file, O_RDWR | O_CREAT | O_APPEND, 0600) == fd);
    }
    return 0;
}

static void what_is_found_at_exit_reaches_stderr_though_the_program_closed_it(void **state) {
    (void)state;
    REQUIRE_HAK();
    child = (struct child){.program = own_path(), .arguments = {"damage"}};
    child_run(&child);
    assert_int_equal(child_signal(&child), SIGABRT);
    assert_non_null(strstr(child.err, "hakmem: exit(): write past the end of 0x"));
    assert_non_null(strstr(child.err, "  1 byte is not as left, the first 0 bytes past the end: 0x"));
    assert_non_null(strstr(child.err, "\n  noticed here\n    #0 "));
}

/* As a daemon that was forked and has a log for stderr. */
static int damage_and_log(const char *log) {
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        int fd = open(log, O_WRONLY | O_CREAT, 0600);
        CHECK(fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
        *((char *)launder(malloc(40)) + 40) = 1;
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    return 0;
}

/* A part of this program that is given a file; in checked mode, or in the mode of the setting. */
static void run_with_file(const char *part, const char *path, const char *setting) {
    child.program = own_path();
    child.arguments[0] = part;
    child.arguments[1] = path;
    child.environment[0] = setting;
    child.environment[1] = setting != NULL ? "HAKMEM_CHECK=0" : NULL;
    child_run(&child);
}

static void check_log(const char *setting) {
    const char *path = fresh_path("log");
    char line[64] = "";
    child = (struct child){.program = NULL};
    run_with_file("log", path, setting);
    assert_child_succeeded(&child);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && read(fd, line, sizeof line - 1) > 0);
    close(fd);
    assert_non_null(strstr(line, "hakmem: exit(): write past the end of 0x"));
}

static void what_is_found_at_exit_reaches_the_log_of_a_daemon(void **state) {
    (void)state;
    REQUIRE_HAK();
    check_log(NULL);
    check_log("HAKMEM_GUARD_SAMPLE=1");
}

static int close_stderr(void *unused) {
    (void)unused;
    return close(STDERR_FILENO);
}

static void check_own_file(const char *setting, int (*prepare)(void *context)) {
    const char *path = fresh_path("own-file");
    struct stat status;
    child = (struct child){.prepare = prepare};
    run_with_file("damage", path, setting);
    assert_int_equal(child_signal(&child), SIGABRT);
    assert_string_equal(child.err, "");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, 0);
}

static void what_is_found_at_exit_reaches_no_file_of_the_program(void **state) {
    (void)state;
    REQUIRE_HAK();
    check_own_file(NULL, NULL);
    check_own_file(NULL, close_stderr);
    check_own_file("HAKMEM_GUARD_SAMPLE=1", NULL);
}

static unsigned open_descriptors(void) {
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) != -1;
    }
    return count;
}

/* Whoever waits until nobody has stderr any more does not wait for a daemon. */
static int fork_and_count(void) {
    int status;
    unsigned before = open_descriptors();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        _exit(open_descriptors() + 1 != before);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(open_descriptors() == before);
    return 0;
}

static void the_child_of_a_fork_keeps_no_other_stderr(void **state) {
    (void)state;
    REQUIRE_HAK();
    child = (struct child){.program = own_path(), .arguments = {"count"}};
    child_run(&child);
    assert_child_succeeded(&child);
}

/* Its first allocation is made inside of pthreads, which hold the thread's own lock then. */
static void *ask_where_the_stack_is(void *unused) {
    pthread_attr_t attributes;
    (void)unused;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    void *block = launder(malloc(100));
    CHECK(block != NULL);
    free(block);
    return NULL;
}

static int ask_on_a_thread(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, ask_where_the_stack_is, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}

static void a_thread_may_ask_first_where_its_stack_is(void **state) {
    static const char *const options[] = {"HAKMEM_CHECK=1", "HAKMEM_GUARD_SAMPLE=1"};
    (void)state;
    for (unsigned i = 0; i < COUNT_OF(options); i++) {
        child = (struct child){.program = own_path(),
                               .timeout_s = 20,
                               .arguments = {"ask"},
                               .environment = {"HAKMEM_CHECK=0", options[i]}};
        child_run(&child);
        assert_child_succeeded(&child);
    }
}

/* The kernel allows a process 65 530 of them, and a block between guard pages is two. */
static void many_long_blocks_leave_mappings_to_the_program(void **state) {
    (void)state;
    static void *blocks[LONG_BLOCKS];
    unsigned mappings = 0;
    REQUIRE_HAK();
    for (unsigned i = 0; i < LONG_BLOCKS; i++) {
        blocks[i] = malloc(LONG_BYTES);
        assert_non_null(blocks[i]);
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    for (int c = getc(maps); c != EOF; c = getc(maps)) {
        mappings += c == '\n';
    }
    fclose(maps);
    assert_in_range(mappings, 1, MAPPINGS_MAX);
    for (unsigned i = 0; i < LONG_BLOCKS; i++) {
        free(blocks[i]);
    }
    (void)malloc_trim(0);
}

/* More address space than there is, once what waits in the quarantine has gone. */
static void memory_that_is_short_is_an_error_as_ever(void **state) {
    (void)state;
    assert_null(malloc((size_t)1 << 62));
    assert_null(malloc(SIZE_MAX));
    assert_null(calloc(SIZE_MAX / 2, 3));
    void *block = malloc(10);
    assert_null(realloc(launder(block), SIZE_MAX - 100));
    free(block);
}

/* So much that the kernel refuses it to whoever asks; calloc alone, since what malloc gives is filled. */
static void more_than_the_machine_has_is_refused_before_it_is_filled(void **state) {
    (void)state;
    char mode = '0';
    struct sysinfo machine;
    FILE *overcommit = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (overcommit != NULL) {
        assert_int_equal(fread(&mode, 1, 1, overcommit), 1);
        fclose(overcommit);
    }
    if (mode == '1') {
        SKIP_BECAUSE("the kernel refuses no size: vm.overcommit_memory is 1");
    }
    assert_int_equal(sysinfo(&machine), 0);
    size_t bytes = (machine.totalram + machine.totalswap) * (size_t)machine.mem_unit * 2;
    errno = 0;
    assert_null(calloc(1, bytes));
    assert_int_equal(errno, ENOMEM);
}

/* What waits in the quarantine takes address space; before malloc fails for that, it goes. */
static int take_and_give_with_little_room(void *unused) {
    (void)unused;
    limit_room(24 * MIB);
    for (unsigned i = 0; i < 10; i++) {
        void *block = launder(malloc(8 * MIB));
        CHECK(block != NULL);
        free(block);
    }
    return 0;
}

static void the_quarantine_gives_way_when_memory_is_short(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(take_and_give_with_little_room);
}

/* What waits there is not to leave too little for the mappings that the program makes itself: stacks, files.
 */
static int map_beside_the_quarantine(void) {
    for (unsigned i = 0; i < 4000; i++) {
        free(launder(malloc(40 * KIB)));
        CHECK(i % 50 != 0 || has_room(150 * MIB));
    }
    return 0;
}

/* Nor are small blocks to leave for large ones, which do not make room by that. */
static int free_large_after_small(void) {
    char *block = malloc(100);
    char *volatile at = block;
    free(block);
    for (unsigned i = 0; i < 10; i++) {
        free(launder(malloc(30 * MIB)));
        free(launder(malloc(60 * MIB)));
    }
    *at = 1;
    CHECK(hak_verify(NULL, 0) == -1);
    *at = (char)0xDF;
    return 0;
}

static int limit_space(void *unused) {
    (void)unused;
    return setrlimit(RLIMIT_AS, &(struct rlimit){300 * MIB, 300 * MIB});
}

static void the_quarantine_leaves_room_to_the_program(void **state) {
    (void)state;
    REQUIRE_HAK();
    child = (struct child){.program = own_path(), .arguments = {"map"}, .prepare = limit_space};
    child_run(&child);
    assert_child_succeeded(&child);
    child.arguments[0] = "large";
    child_run(&child);
    assert_child_succeeded(&child);
}

/* As in any mode what is free goes before a long block is refused: caches, and SuperSlabs that they kept. */
static int ask_for_more_than_there_is(void *unused) {
    enum { KEPT = 64 * 1024 };
    static void *blocks[KEPT];
    (void)unused;
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1);
    for (unsigned i = 0; i < KEPT; i++) {
        blocks[i] = malloc(500);
        CHECK(blocks[i] != NULL);
    }
    for (unsigned i = 0; i < KEPT; i++) {
        free(blocks[i]);
    }
    limit_room(MIB);
    CHECK(launder(malloc(100 * MIB)) == NULL && errno == ENOMEM);
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0 && stats.cached_bytes == 0 && stats.superslabs_empty == 0);
    return 0;
}

static void nothing_is_kept_when_a_long_block_is_refused(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(ask_for_more_than_there_is);
}

static pthread_barrier_t barrier;

static void *hold_a_heap(void *unused) {
    free(launder(malloc(64)));
    pthread_barrier_wait(&barrier);
    pause();
    return unused;
}

/* The blocks that wait in the quarantine are free again in the child: they are used, and nobody looks at them
 * later. */
static int use_what_waited_in_a_child(void) {
    enum { WAITING = 100, USED = 1000 };
    static void *blocks[USED];
    pthread_t thread;
    int status = -1;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, hold_a_heap, NULL) == 0);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < WAITING; i++) {
        blocks[i] = malloc(64);
    }
    for (unsigned i = 0; i < WAITING; i++) {
        free(blocks[i]);
    }
    pid_t pid = fork();
    if (pid == 0) {
        for (unsigned i = 0; i < USED; i++) {
            blocks[i] = malloc(64);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], 1, 64);
        }
        for (unsigned i = 0; i < 3 * USED; i++) {
            free(launder(malloc(1000))); /* the quarantine takes one MB */
        }
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
    return 0;
}

static void a_child_forgets_what_waits_in_the_quarantine(void **state) {
    (void)state;
    REQUIRE_HAK();
    child = (struct child){
        .program = own_path(), .arguments = {"fork"}, .environment = {"HAKMEM_CHECK_QUARANTINE_MB=1", NULL}};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.err, "");
}

/* The registry would have a word for each unit of a guard as long as that. */
static void an_alignment_of_terabytes_takes_no_memory(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    long before_kib = usage.ru_maxrss;
    for (unsigned shift = 30; shift < 47; shift++) {
        free(memalign((size_t)1 << shift, 100)); /* there may be none */
    }
    getrusage(RUSAGE_SELF, &usage);
    assert_in_range(usage.ru_maxrss - before_kib, 0, 8 * 1024);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "leave") == 0) {
        return leave_some(NULL);
    }
    if (argc == 2 && strcmp(argv[1], "ask") == 0) {
        return ask_on_a_thread();
    }
    if (argc == 2 && strcmp(argv[1], "fork") == 0) {
        return use_what_waited_in_a_child();
    }
    if (argc >= 2 && strcmp(argv[1], "damage") == 0) {
        return damage_and_close(argv[2]);
    }
    if (argc == 3 && strcmp(argv[1], "log") == 0) {
        return damage_and_log(argv[2]);
    }
    if (argc == 2 && strcmp(argv[1], "large") == 0) {
        return free_large_after_small();
    }
    if (argc == 2 && strcmp(argv[1], "count") == 0) {
        return fork_and_count();
    }
    if (argc == 2 && strcmp(argv[1], "map") == 0) {
        return map_beside_the_quarantine();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_alignment_of_terabytes_takes_no_memory), /* first: it looks at the peak */
        cmocka_unit_test(the_usable_size_is_what_was_asked_for),
        cmocka_unit_test(a_walk_visits_each_block_with_its_size),
        cmocka_unit_test(statistics_count_what_lies_between_guard_pages),
        cmocka_unit_test(what_is_resident_is_counted),
        cmocka_unit_test(no_other_fill_can_be_asked_for),
        cmocka_unit_test(verification_finds_damage_of_live_and_freed_blocks),
        cmocka_unit_test(what_is_left_is_listed_at_exit),
        cmocka_unit_test(what_is_found_at_exit_reaches_stderr_though_the_program_closed_it),
        cmocka_unit_test(what_is_found_at_exit_reaches_no_file_of_the_program),
        cmocka_unit_test(what_is_found_at_exit_reaches_the_log_of_a_daemon),
        cmocka_unit_test(the_child_of_a_fork_keeps_no_other_stderr),
        cmocka_unit_test(a_thread_may_ask_first_where_its_stack_is),
        cmocka_unit_test(a_child_forgets_what_waits_in_the_quarantine),
        cmocka_unit_test(the_quarantine_gives_way_when_memory_is_short),
        cmocka_unit_test(the_quarantine_leaves_room_to_the_program),
        cmocka_unit_test(nothing_is_kept_when_a_long_block_is_refused),
        cmocka_unit_test(many_long_blocks_leave_mappings_to_the_program),
        cmocka_unit_test(memory_that_is_short_is_an_error_as_ever),
        cmocka_unit_test(more_than_the_machine_has_is_refused_before_it_is_filled),
    };
    return cmocka_run_group_tests_name("checked_mode", tests, NULL, heap_is_sound);
}
