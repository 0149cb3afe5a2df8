/*
 * hardening_test.c - what makes a heap hard to exploit, seen from outside: freed memory holds nothing of the
 * allocator, no mapping is both writable and executable, what the loader bound is read-only; HAKMEM_RANDOMIZE
 * and HAKMEM_ZERO_ON_FREE. The claims are those of core/SECURITY.md.
 *
 * suite: limit 90 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/pattern.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 400u

/* Freed blocks up to this size can be read: their mapping stays. */
#define READABLE_BYTES_MAX (40 * KIB)

#define GROWN_STEP  ((size_t)64 * KIB)
#define GROWN_BYTES (16 * MIB)

static const struct load everything = {1, 3 * MIB, 32, 48, 16};
static const size_t sizes[] = {1, 16, 100, 1024, 5000, 32 * KIB, 40 * KIB, 200 * KIB, 900 * KIB, 3 * MIB};
static struct child child;
static unsigned char *blocks[BLOCKS];

/* ---- modes of the child ---- */

static int load(void) {
    slots_load_threads(&everything, 4000);
    check_heap();
    return 0;
}

/* The addresses of some blocks of one class, and of one of another: one line. */
static int print_addresses(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(64);
        dprintf(STDOUT_FILENO, "%zx ", (size_t)blocks[i]);
    }
    dprintf(STDOUT_FILENO, "%zx\n", (size_t)malloc(1024));
    return 0;
}

/* Of the steps from one block to the next in time: how many lead to its neighbour, and how many upwards. */
static int print_steps(void) {
    unsigned to_neighbour = 0;
    unsigned upwards = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(64);
        to_neighbour += i != 0 && (blocks[i] == blocks[i - 1] + 64 || blocks[i] == blocks[i - 1] - 64);
        upwards += i != 0 && blocks[i] > blocks[i - 1];
    }
    dprintf(STDOUT_FILENO, "%u %u\n", to_neighbour, upwards);
    return 0;
}

static void *free_all(void *count) {
    for (size_t i = 0; i < (size_t)count; i++) {
        free(blocks[i]);
    }
    return NULL;
}

/* Freed blocks of every size, by their own thread and by another, read back. */
static int read_freed(void) {
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        size_t count = sizes[s] < 64 * KIB ? 40 : 4;
        for (unsigned other = 0; other < 2; other++) {
            for (size_t i = 0; i < count; i++) {
                blocks[i] = malloc(sizes[s]);
                CHECK(blocks[i] != NULL);
                memset(blocks[i], 0xA5, sizes[s]);
            }
            pthread_t thread;
            if (other == 0) {
                (void)free_all((void *)count);
            } else {
                CHECK(pthread_create(&thread, NULL, free_all, (void *)count) == 0);
                CHECK(pthread_join(thread, NULL) == 0);
            }
            for (size_t i = 0; i < count && sizes[s] <= READABLE_BYTES_MAX; i++) {
                CHECK(bytes_are(launder(blocks[i]), sizes[s], 0));
            }
        }
    }
    return 0;
}

/* What realloc leaves behind: the old block after a move, the tail after a cut. */
static int read_behind_realloc(void) {
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        unsigned char *old = malloc(sizes[s]);
        CHECK(old != NULL);
        memset(old, 0xA5, sizes[s]);
        unsigned char *longer = realloc(old, sizes[s] * 3);
        CHECK(longer != NULL && bytes_are(longer, sizes[s], 0xA5));
        CHECK(longer == old || sizes[s] > READABLE_BYTES_MAX || bytes_are(launder(old), sizes[s], 0));
        memset(longer, 0x5A, sizes[s] * 3);
        unsigned char *shorter = realloc(longer, sizes[s]);
        CHECK(shorter != NULL && bytes_are(shorter, sizes[s], 0x5A));
        free(shorter);
    }
    /* Large blocks come from the kernel's zeros or from wiped ones: nothing old is ever seen again. */
    for (unsigned round = 0; round < 20; round++) {
        size_t bytes = (40 + 37 * round) * KIB;
        unsigned char *block = malloc(bytes);
        CHECK(block != NULL && bytes_are(block, bytes, 0));
        memset(block, 0xA5, bytes);
        block = realloc(block, bytes / 2);
        CHECK(block != NULL);
        free(block);
    }
    return 0;
}

static int grow_by_small_steps(void) {
    struct rusage before, after;
    char *block = NULL;
    CHECK(getrusage(RUSAGE_SELF, &before) == 0);
    for (size_t bytes = GROWN_STEP; bytes <= GROWN_BYTES; bytes += GROWN_STEP) {
        block = realloc(block, bytes);
        CHECK(block != NULL);
        memset(block + bytes - GROWN_STEP, 1, GROWN_STEP);
    }
    CHECK(bytes_are(block, GROWN_BYTES, 1));
    CHECK(getrusage(RUSAGE_SELF, &after) == 0);
    CHECK(after.ru_minflt - before.ru_minflt < (long)(4 * GROWN_BYTES / 4096));
    return 0;
}

/* A long block is wiped by giving its pages back, which costs less than zeros. */
static int free_a_long_block(void) {
    enum { PAGES = 128 };
    unsigned char is_resident[PAGES];
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    char *block = malloc(PAGES * page_bytes);
    CHECK(block != NULL);
    memset(block, 0xA5, PAGES * page_bytes);
    free(block);
    if (mincore((char *)launder(block), PAGES * page_bytes, is_resident) != 0) {
        return 0; /* all of it is gone */
    }
    for (unsigned i = 0; i < PAGES; i++) {
        CHECK((is_resident[i] & 1) == 0);
    }
    return 0;
}

/* Each frees so few that its frees are not counted yet, and stays. */
#define WAITING_THREADS 100u
#define FREED_UNCOUNTED 127u
#define HANGING_S       60u

static void *blocks_of_others[FREED_UNCOUNTED];
static sem_t has_freed, may_end;

static void *free_some_and_wait(void *unused) {
    for (unsigned i = 0; i < FREED_UNCOUNTED; i++) {
        free(blocks_of_others[i]);
    }
    (void)sem_post(&has_freed);
    (void)sem_wait(&may_end);
    return unused;
}

/* Blocks of the same slabs come again and again, while their frees are counted in no slab. */
static int free_without_counting(void) {
    static pthread_t threads[WAITING_THREADS];
    (void)alarm(HANGING_S);
    CHECK(sem_init(&has_freed, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
    for (unsigned t = 0; t < WAITING_THREADS; t++) {
        for (unsigned i = 0; i < FREED_UNCOUNTED; i++) {
            blocks_of_others[i] = malloc(16);
            CHECK(blocks_of_others[i] != NULL);
        }
        CHECK(pthread_create(&threads[t], NULL, free_some_and_wait, NULL) == 0);
        CHECK(sem_wait(&has_freed) == 0);
    }
    for (unsigned t = 0; t < WAITING_THREADS; t++) {
        CHECK(sem_post(&may_end) == 0);
    }
    for (unsigned t = 0; t < WAITING_THREADS; t++) {
        CHECK(pthread_join(threads[t], NULL) == 0);
    }
    check_heap();
    return 0;
}

/* A block is of another kind than one of its new size would be, and its tail goes page by page all the same.
 */
static int read_behind_a_cut_run(void) {
    size_t kept_bytes = 300 * KIB;
    unsigned char *block = malloc(900 * KIB);
    CHECK(block != NULL && mallopt(M_MMAP_THRESHOLD, 256 * 1024) == 1);
    memset(block, 0xA5, 900 * KIB);
    CHECK(realloc(block, kept_bytes) == block);
    CHECK(bytes_are(block, kept_bytes, 0xA5));
    CHECK(bytes_are(launder(block + kept_bytes), 600 * KIB, 0));
    return 0;
}

static const struct part modes[] = {
    {"load", load},
    {"free-without-counting", free_without_counting},
    {"addresses", print_addresses},
    {"steps", print_steps},
    {"read-freed", read_freed},
    {"free-a-long-block", free_a_long_block},
    {"read-behind-realloc", read_behind_realloc},
    {"read-behind-a-cut-run", read_behind_a_cut_run},
    {"grow", grow_by_small_steps},
};

static int no_aslr(void *context) {
    (void)context;
    return personality(ADDR_NO_RANDOMIZE) == -1;
}

static void run(const char *mode, const char *option) {
    child = (struct child){
        .program = own_path(), .arguments = {mode}, .environment = {option, NULL}, .prepare = no_aslr};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.err, "");
}

/* ---- the tests ---- */

static void freed_memory_holds_what_the_program_left_there(void **state) {
    (void)state;
    REQUIRE_HAK();
    if (library_is_debug()) {
        SKIP_BECAUSE("the debug flavour may fill freed blocks");
    }
    for (size_t s = 0; s < COUNT_OF(sizes) && sizes[s] <= READABLE_BYTES_MAX; s++) {
        for (unsigned i = 0; i < 40; i++) {
            blocks[i] = malloc(sizes[s]);
            assert_non_null(blocks[i]);
            memset(blocks[i], 0xA5, malloc_usable_size(blocks[i]));
        }
        size_t usable_bytes = malloc_usable_size(blocks[0]);
        for (unsigned i = 0; i < 40; i++) {
            free(blocks[i]);
        }
        for (unsigned i = 0; i < 40; i++) {
            const unsigned char *bytes = launder(blocks[i]);
            for (size_t k = 0; k < usable_bytes; k++) {
                assert_true(bytes[k] == 0xA5 || bytes[k] == 0); /* 0: given back to the system */
            }
        }
    }
}

static void no_mapping_is_writable_and_executable(void **state) {
    (void)state;
    (void)load();
    char line[512];
    unsigned lines = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        char access[5];
        assert_int_equal(sscanf(line, "%*x-%*x %4s", access), 1);
        assert_false(access[1] == 'w' && access[2] == 'x');
        lines++;
    }
    fclose(file);
    assert_true(lines > 5);
}

static void randomized_addresses_differ_from_run_to_run(void **state) {
    (void)state;
    REQUIRE_HAK();
    static char first[sizeof child.out];
    run("addresses", "HAKMEM_RANDOMIZE=0");
    strcpy(first, child.out);
    run("addresses", "HAKMEM_RANDOMIZE=0");
    if (strcmp(first, child.out) != 0) {
        SKIP_BECAUSE("the kernel does not lay two processes out alike here");
    }
    run("addresses", "HAKMEM_RANDOMIZE=1");
    strcpy(first, child.out);
    run("addresses", "HAKMEM_RANDOMIZE=1");
    assert_string_not_equal(first, child.out);
    /* The slabs differ, not only the blocks in them: of 16 runs not all begin in the same 64 KiB. */
    bool is_elsewhere = false;
    for (unsigned i = 0; i < 16; i++) {
        run("addresses", "HAKMEM_RANDOMIZE=1");
        is_elsewhere |= strtoul(first, NULL, 16) >> 16 != strtoul(child.out, NULL, 16) >> 16;
    }
    assert_true(is_elsewhere);
}

static void randomized_blocks_come_in_no_order(void **state) {
    (void)state;
    REQUIRE_HAK();
    char *rest;
    run("steps", "HAKMEM_RANDOMIZE=0");
    assert_in_range(strtoul(child.out, NULL, 10), BLOCKS / 2, BLOCKS);
    run("steps", "HAKMEM_RANDOMIZE=1");
    assert_in_range(strtoul(child.out, &rest, 10), 0, BLOCKS / 8);
    /* Half of them, within seven standard deviations. */
    assert_in_range(strtoul(rest, NULL, 10), BLOCKS * 2 / 5, BLOCKS * 3 / 5);
}

static void a_randomized_heap_is_sound_under_load(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("load", "HAKMEM_RANDOMIZE=1");
    run("free-without-counting", "HAKMEM_RANDOMIZE=1");
}

static void zero_on_free_leaves_nothing_in_freed_blocks(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("read-freed", "HAKMEM_ZERO_ON_FREE=1");
    run("load", "HAKMEM_ZERO_ON_FREE=1");
}

static void zero_on_free_leaves_nothing_behind_realloc(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("read-behind-realloc", "HAKMEM_ZERO_ON_FREE=1");
    run("read-behind-a-cut-run", "HAKMEM_ZERO_ON_FREE=1");
}

/* Its pages move: copying it each time would fault them all each time. */
static void zero_on_free_lets_a_block_grow_by_moving_its_pages(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("grow", "HAKMEM_ZERO_ON_FREE=1");
}

static void zero_on_free_gives_the_pages_of_long_blocks_back(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("free-a-long-block", "HAKMEM_ZERO_ON_FREE=1");
}

/* In a pipe of packets each write is one. */
static void a_fault_is_told_in_one_write(void **state) {
    (void)state;
    REQUIRE_HAK();
    static const char beginning[] = "hakmem: free(): double free of 0x";
    char packet[512];
    int ends[2], status;
    assert_int_equal(pipe2(ends, O_DIRECT | O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        void *block = malloc(64);
        (void)dup2(ends[1], STDERR_FILENO);
        free(block);
        free(block);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    ssize_t bytes = read(ends[0], packet, sizeof packet);
    assert_true(bytes > (ssize_t)sizeof beginning && packet[bytes - 1] == '\n');
    assert_memory_equal(packet, beginning, sizeof beginning - 1);
    assert_int_equal(read(ends[0], packet, sizeof packet), 0);
    close(ends[0]);
}

int main(int argc, char **argv) {
    const struct part *mode = part_asked_for(modes, COUNT_OF(modes), argc, argv);
    if (mode != NULL) {
        return mode->run();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(freed_memory_holds_what_the_program_left_there),
        cmocka_unit_test(a_fault_is_told_in_one_write),
        cmocka_unit_test(no_mapping_is_writable_and_executable),
        cmocka_unit_test(randomized_addresses_differ_from_run_to_run),
        cmocka_unit_test(randomized_blocks_come_in_no_order),
        cmocka_unit_test(a_randomized_heap_is_sound_under_load),
        cmocka_unit_test(zero_on_free_leaves_nothing_in_freed_blocks),
        cmocka_unit_test(zero_on_free_gives_the_pages_of_long_blocks_back),
        cmocka_unit_test(zero_on_free_leaves_nothing_behind_realloc),
        cmocka_unit_test(zero_on_free_lets_a_block_grow_by_moving_its_pages),
    };
    return cmocka_run_group_tests_name("hardening", tests, NULL, heap_is_sound);
}
