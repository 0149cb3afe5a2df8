/*
 * background_test.c - the helper thread of HAKMEM_BACKGROUND=1: there with the option alone, out of the
 * program's way, and it gives back in an idle process what a raised floor keeps otherwise, what lies between
 * survivors, and what was freed at once, for which the frees need not pay then.
 *
 * suite: limit 120 s
 */
#include "memory/rss_kit.h"
#include "support/child.h"
#include "support/target.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

#define CYCLE_BLOCKS      65536u /* of 500 bytes: 32 MiB */
#define CYCLES            12u
#define IDLE_BYTES        (8 * MIB)
#define RAISED_BYTES      (16 * MIB)
#define WITHIN_MS         20000u
#define SCATTERED_BLOCKS  32768u /* 64 MiB */
#define SCATTERED_BYTES   2000u
#define SLACK_BYTES       (4 * MIB) /* the process itself, and free memory that may always stay */
#define UNASKED_MS        3000u
#define BURST_BYTES       (64 * MIB)
#define BURST_BLOCK_BYTES 2000u
#define BURST_LARGE_BYTES 100000u
#define BURST_MS_MAX      40u /* of its frees: before it has waited for the helper for a tenth of a second */
#define BURSTS_MAX        20u /* until one is so short, on a busy machine */

/* SIGKILL and SIGSTOP cannot be blocked; 32 and 33 are the C library's own. */
#define BLOCKED_SIGNALS (~(UINT64_C(1) << 8 | UINT64_C(1) << 18 | UINT64_C(3) << 31))

/* ---- what the children do ---- */

/* The other threads of this process; the id of the last one in *id. */
static unsigned other_threads(int *id) {
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
        int task = atoi(entry->d_name);
        if (task != 0 && task != (int)getpid()) {
            count++;
            *id = task;
        }
    }
    closedir(tasks);
    return count;
}

static int print_threads(void) {
    int id = 0;
    unsigned count = other_threads(&id);
    printf("%u", count);
    if (count != 0) {
        char path[64], name[32] = "", line[256];
        unsigned long long blocked = 0;
        snprintf(path, sizeof path, "/proc/self/task/%d/status", id);
        FILE *status = fopen(path, "r");
        CHECK(status != NULL);
        while (fgets(line, sizeof line, status) != NULL) {
            (void)sscanf(line, "Name: %31s", name);
            (void)sscanf(line, "SigBlk: %llx", &blocked);
        }
        fclose(status);
        printf(" %s %d", name, (blocked & BLOCKED_SIGNALS) == BLOCKED_SIGNALS);
    }
    printf("\n");
    return 0;
}

static int run_in_child(int (*run)(void)) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        free(launder(malloc(100)));
        check_heap();
        (void)run();
        fflush(stdout);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}

/* Raises the floor by ping-pong, then sleeps; prints the resident size before and after. */
static int rest_after_cycles(unsigned within_ms) {
    void **blocks = map_own(CYCLE_BLOCKS * sizeof *blocks);
    for (unsigned i = 0; i < CYCLES; i++) {
        fill_blocks(blocks, CYCLE_BLOCKS, 500);
        (void)free_blocks(blocks, CYCLE_BLOCKS, 0);
    }
    (void)munmap(blocks, CYCLE_BLOCKS * sizeof *blocks);
    size_t raised_bytes = rss_bytes();
    uint64_t start_ms = clock_now_ms();
    while (rss_bytes() > IDLE_BYTES && clock_now_ms() - start_ms < within_ms) {
        usleep(50000);
    }
    printf("%zu %zu\n", raised_bytes, rss_bytes());
    return 0;
}

/* Frees all but a tenth, scattered, then sleeps; prints the resident size right after and what it came to. */
static int rest_after_shrinking(void) {
    void **blocks = map_own(SCATTERED_BLOCKS * sizeof *blocks);
    fill_blocks(blocks, SCATTERED_BLOCKS, SCATTERED_BYTES);
    shuffle(blocks, SCATTERED_BLOCKS, 7);
    size_t kept = free_blocks(blocks, SCATTERED_BLOCKS, 10);
    size_t bound_bytes = forced_bytes(blocks, kept, SCATTERED_BYTES) / 10 * 11 + SLACK_BYTES;
    size_t before_bytes = rss_bytes();
    uint64_t start_ms = clock_now_ms();
    while (rss_bytes() > bound_bytes && clock_now_ms() - start_ms < WITHIN_MS) {
        usleep(50000);
    }
    printf("%zu %zu %zu\n", before_bytes, rss_bytes(), bound_bytes);
    return 0;
}

/* Frees all at once, then sleeps; prints what was in memory when the frees were over, whether this was soon
 * after they had begun, and what it came to. */
static int rest_after_burst(size_t block_bytes) {
    size_t count = BURST_BYTES / block_bytes;
    void **blocks = map_own(count * sizeof *blocks);
    fill_blocks(blocks, count, block_bytes);
    shuffle(blocks, count, 7);
    uint64_t start_ms = clock_now_ms();
    (void)free_blocks(blocks, count, 0);
    size_t freed_bytes = rss_bytes();
    bool is_soon = clock_now_ms() - start_ms <= BURST_MS_MAX;
    (void)munmap(blocks, count * sizeof *blocks);
    start_ms = clock_now_ms();
    while (rss_bytes() > IDLE_BYTES && clock_now_ms() - start_ms < WITHIN_MS) {
        usleep(20000);
    }
    check_heap();
    printf("%zu %d %zu\n", freed_bytes, is_soon, rss_bytes());
    return 0;
}

static int rest_after_small_burst(void) {
    return rest_after_burst(BURST_BLOCK_BYTES);
}

static void *end_last(void *unused) {
    usleep(50000);
    printf("the last thread\n");
    fflush(stdout);
    return unused;
}

static int end_main_first(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, end_last, NULL) == 0);
    CHECK(pthread_detach(thread) == 0);
    pthread_exit(NULL);
}

static pthread_key_t late_key;

/* A heap that a thread gets in the second round of its destructors it may keep for good. */
static void allocate_late(void *round) {
    if (round == &late_key) {
        CHECK(pthread_setspecific(late_key, &late_key + 1) == 0);
        return;
    }
    free(malloc(10));
    CHECK(write(STDOUT_FILENO, "the heir\n", 9) == 9);
}

static void *inherit(void *unused) {
    usleep(30000); /* the helper looks every 100 ms */
    CHECK(pthread_setspecific(late_key, &late_key) == 0);
    return unused;
}

static int leave_the_heap_to_an_heir(void) {
    pthread_t thread;
    CHECK(pthread_key_create(&late_key, allocate_late) == 0);
    CHECK(pthread_create(&thread, NULL, inherit, NULL) == 0 && pthread_detach(thread) == 0);
    pthread_exit(NULL);
}

static int run_mode(const char *mode) {
    switch (mode[0]) {
    case 'i':
        return leave_the_heap_to_an_heir();
    case 't':
        return print_threads();
    case 'f':
        return run_in_child(print_threads);
    case 'm':
        return end_main_first();
    case 's':
        return rest_after_shrinking();
    case 'b':
        return rest_after_small_burst();
    case 'l':
        return rest_after_burst(BURST_LARGE_BYTES);
    case 'c':
        return run_in_child(rest_after_small_burst);
    case 'h':
        return rest_after_cycles(WITHIN_MS);
    default:
        return rest_after_cycles(UNASKED_MS);
    }
}

/* ---- the suite ---- */

static struct child child;

static const char *output_of(const char *mode, const char *option) {
    child = (struct child){.program = own_path(), .arguments = {mode}, .environment = {option, NULL}};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.err, "");
    return child.out;
}

static void there_is_no_thread_by_default(void **state) {
    (void)state;
    assert_string_equal(output_of("threads", NULL), "0\n");
}

static void the_thread_has_a_name_and_takes_no_signal(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_string_equal(output_of("threads", "HAKMEM_BACKGROUND=1"), "1 hakmem 1\n");
}

static void the_child_of_a_fork_has_none(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_string_equal(output_of("fork", "HAKMEM_BACKGROUND=1"), "0\n");
}

/* The process ends with the last of the program's own threads. */
static void it_does_not_keep_the_process(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_string_equal(output_of("main-ends", "HAKMEM_BACKGROUND=1"), "the last thread\n");
}

static void nor_does_a_thread_that_keeps_mains_heap(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_string_equal(output_of("inherited", "HAKMEM_BACKGROUND=1"), "the heir\n");
}

static void it_lets_the_raised_floor_of_an_idle_process_fall(void **state) {
    (void)state;
    size_t raised_bytes, left_bytes;
    REQUIRE_HAK();
    assert_int_equal(
        sscanf(output_of("helped", "HAKMEM_BACKGROUND=1"), "%zu %zu", &raised_bytes, &left_bytes), 2);
    print_message("raised: %zu KiB, then %zu KiB\n", raised_bytes / KIB, left_bytes / KIB);
    assert_true(raised_bytes > RAISED_BYTES);
    assert_true(left_bytes <= IDLE_BYTES);
}

/* A process that works gets there by itself. */
static void it_gives_back_pages_between_survivors(void **state) {
    (void)state;
    size_t before_bytes, left_bytes, bound_bytes;
    REQUIRE_HAK();
    assert_int_equal(sscanf(output_of("shrunk", "HAKMEM_BACKGROUND=1"), "%zu %zu %zu", &before_bytes,
                            &left_bytes, &bound_bytes),
                     3);
    print_message("%zu KiB, then %zu KiB, %zu allowed\n", before_bytes / KIB, left_bytes / KIB,
                  bound_bytes / KIB);
    assert_true(before_bytes > bound_bytes + 8 * MIB);
    assert_true(left_bytes <= bound_bytes);
}

/* What is in memory when the frees are over, and what is left then of itself. */
static size_t bytes_after_burst(const char *mode, size_t *left_bytes) {
    size_t freed_bytes = 0;
    int is_soon = 0;
    for (unsigned i = 0; i < BURSTS_MAX && !is_soon; i++) {
        const char *out = output_of(mode, "HAKMEM_BACKGROUND=1");
        assert_int_equal(sscanf(out, "%zu %d %zu", &freed_bytes, &is_soon, left_bytes), 3);
    }
    assert_true(is_soon);
    print_message("%s: %zu KiB, then %zu KiB\n", mode, freed_bytes / KIB, *left_bytes / KIB);
    return freed_bytes;
}

static void what_is_freed_at_once_waits_for_it(void **state) {
    (void)state;
    static const char *const modes[] = {"burst", "large-burst"};
    size_t left_bytes;
    REQUIRE_HAK();
    for (unsigned i = 0; i < COUNT_OF(modes); i++) {
        assert_true(bytes_after_burst(modes[i], &left_bytes) > BURST_BYTES / 10 * 9);
        assert_true(left_bytes <= IDLE_BYTES);
    }
}

static void nothing_waits_where_nothing_may_stay(void **state) {
    (void)state;
    size_t freed_bytes;
    REQUIRE_HAK();
    child = (struct child){.program = own_path(),
                           .arguments = {"burst"},
                           .environment = {"HAKMEM_BACKGROUND=1", "HAKMEM_RETAIN_MB=0", NULL}};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_int_equal(sscanf(child.out, "%zu", &freed_bytes), 1);
    assert_true(freed_bytes <= IDLE_BYTES);
}

static void in_the_child_of_a_fork_nothing_waits(void **state) {
    (void)state;
    size_t freed_bytes;
    REQUIRE_HAK();
    assert_int_equal(sscanf(output_of("child-burst", "HAKMEM_BACKGROUND=1"), "%zu", &freed_bytes), 1);
    assert_true(freed_bytes <= IDLE_BYTES);
}

/* Which is what the thread is for; and at most HAKMEM_RETAIN_MB stay. */
static void without_it_a_proved_heap_keeps_what_it_needed(void **state) {
    (void)state;
    size_t raised_bytes, left_bytes;
    REQUIRE_HAK();
    assert_int_equal(sscanf(output_of("unasked", NULL), "%zu %zu", &raised_bytes, &left_bytes), 2);
    assert_true(left_bytes > RAISED_BYTES);
    assert_true(left_bytes < 64 * MIB + IDLE_BYTES);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_no_thread_by_default),
        cmocka_unit_test(the_thread_has_a_name_and_takes_no_signal),
        cmocka_unit_test(the_child_of_a_fork_has_none),
        cmocka_unit_test(it_does_not_keep_the_process),
        cmocka_unit_test(nor_does_a_thread_that_keeps_mains_heap),
        cmocka_unit_test(it_lets_the_raised_floor_of_an_idle_process_fall),
        cmocka_unit_test(it_gives_back_pages_between_survivors),
        cmocka_unit_test(what_is_freed_at_once_waits_for_it),
        cmocka_unit_test(nothing_waits_where_nothing_may_stay),
        cmocka_unit_test(in_the_child_of_a_fork_nothing_waits),
        cmocka_unit_test(without_it_a_proved_heap_keeps_what_it_needed),
    };
    if (argc > 1) {
        return run_mode(argv[1]);
    }
    return cmocka_run_group_tests_name("background", tests, NULL, heap_is_sound);
}
