/*
 * sampled_faults.c - faults on blocks that guard sampling has put between guard pages, here every one.
 *
 * As checked_faults.c: cases segv_... end by that signal, sound_... well, after what is stated on stdout.
 */
#include "segv.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define SIZES  5
#define BLOCKS 2000u

static const size_t sizes[SIZES] = {1, 40, 4000, 30000, 300000};

static void write_past_the_end(void) {
    char *block = must(malloc(4000));
    expect_segv("write 0 bytes past the end of", block, 4000);
    say("...  allocated by thread 1\n...    #0 \n");
    write_at(block + 4000);
}

static void read_past_the_end_of_calloc(void) {
    char *block = must(calloc(10, 48));
    expect_segv("read 3 bytes past the end of", block, 480);
    (void)*(volatile char *)launder(block + 483);
}

static void write_after_free(void) {
    char *block = must(malloc(64));
    free(launder(block));
    expect_segv("write 8 bytes into freed", block, 64);
    say("...  allocated by thread 1\n...  freed by thread 1\n...    #0 \n");
    write_at(block + 8);
}

static void read_after_free_of_realloc(void) {
    char *block = must(realloc(must(malloc(10)), 64));
    (void)!realloc(launder(block), 200);
    expect_segv("read 0 bytes into freed", block, 64);
    (void)*(volatile char *)launder(block);
}

static void *thread_frees(void *block) {
    free(block);
    return NULL;
}

static void write_after_free_by_another_thread(void) {
    char *block = must(malloc(64));
    on_thread(thread_frees, block);
    expect_segv("write 8 bytes into freed", block, 64);
    say("...  freed by thread 2\n");
    write_at(block + 8);
}

/* Behind the block lie pages without access as far as the next one's. */
static void write_far_past_the_end(void) {
    char *block = must(malloc(30000));
    expect_segv("write 5000 bytes past the end of", block, 30000);
    write_at(block + 35000);
}

/* Its pages serve no other block for a long while. */
static void write_after_free_and_900_others(void) {
    char *block = must(malloc(64));
    free(launder(block));
    for (unsigned i = 0; i < 900; i++) {
        free(must(malloc(64)));
    }
    expect_segv("write 8 bytes into freed", block, 64);
    write_at(block + 8);
}

static void read_in_a_child_of_what_was_freed_before(void) {
    char *block = must(malloc(64));
    int status = 0;
    free(launder(block));
    expect_segv("read 8 bytes into freed", block, 64);
    pid_t child = fork();
    if (child == 0) {
        (void)*(volatile char *)launder(block + 8);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) {
        _exit(7);
    }
    raise(WTERMSIG(status));
}

static void double_free(void) {
    char *block = must(malloc(64));
    free(launder(block));
    expect("free", "double free of", block, 64);
    free(launder(block));
}

static void interior(void) {
    char *block = must(malloc(64));
    expect("free", "invalid pointer", block + 16, 64);
    free(launder(block + 16));
}

/* Not in the 64 KiB that the block begins in. */
static void far_interior(void) {
    char *block = must(malloc(300000));
    expect("free", "invalid pointer", block + 200000, 300000);
    free(launder(block + 200000));
}

static void far_interior_of_usable_size(void) {
    char *block = must(malloc(300000));
    expect("malloc_usable_size", "invalid pointer", block + 70000, 300000);
    (void)!malloc_usable_size(launder(block + 70000));
}

static void free_in_the_guard_page(void) {
    char *block = must(malloc(64));
    expect("free", "invalid pointer", block + 4096, 0);
    free(launder(block + 4096));
}

static void realloc_in_the_guard_page(void) {
    char *block = must(malloc(64));
    expect("realloc", "invalid pointer", block + 4096, 0);
    (void)!realloc(launder(block + 4096), 10);
}

static void realloc_of_freed(void) {
    char *block = must(malloc(64));
    free(launder(block));
    expect("realloc", "use of freed block", block, 64);
    (void)!realloc(launder(block), 10);
}

static void underflow(void) {
    char *block = must(malloc(64));
    write_at(block - 1);
    expect("free", "write before the start of", block, 64);
    free(block);
}

/* ---- no fault ---- */

static void every_form_works(void) {
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < SIZES; i++) {
            size_t bytes = sizes[i];
            char *block = must(malloc(bytes));
            must_be(malloc_usable_size(block) >= bytes);
            memset(block, 7, bytes);
            block = must(realloc(block, bytes * 3));
            must_be(block[0] == 7 && block[bytes - 1] == 7);
            block = must(realloc(block, bytes));
            must_be(block[0] == 7 && block[bytes - 1] == 7);
            free(block);
            char *zeroed = must(calloc(1, bytes));
            for (size_t k = 0; k < bytes; k++) {
                must_be(zeroed[k] == 0);
            }
            free(zeroed);
            for (size_t align = 16; align <= 65536; align *= 2) {
                void *aligned = must(memalign(align, bytes));
                must_be((uintptr_t)aligned % align == 0);
                free(aligned);
            }
        }
    }
    say("sound\n");
    exit(0);
}

static void *churn(void *seed) {
    void *kept[50] = {NULL};
    uintptr_t random = (uintptr_t)seed;
    for (unsigned i = 0; i < 3000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        unsigned slot = (unsigned)(random >> 33) % 50;
        free(kept[slot]);
        kept[slot] = must(malloc((random >> 40) % 5000));
    }
    for (unsigned i = 0; i < 50; i++) {
        free(kept[i]);
    }
    return NULL;
}

static void threads_and_forks_work(void) {
    pthread_t threads[4];
    char *inherited = must(malloc(100));
    strcpy(inherited, "inherited");
    for (uintptr_t i = 0; i < 4; i++) {
        must_be(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    }
    for (unsigned i = 0; i < 10; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            must_be(strcmp(inherited, "inherited") == 0);
            free(inherited);
            (void)churn((void *)9);
            _exit(0);
        }
        must_be(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    free(inherited);
    say("sound\n");
    exit(0);
}

/* One of one: no chance is left, and each ends where its page does. */
static void every_block_is_sampled(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        char *block = must(malloc(64));
        if (((uintptr_t)block + 64) % (size_t)sysconf(_SC_PAGESIZE) != 0) {
            say("one was not sampled\n");
        }
        if (i % 2 == 0) {
            free(block);
        }
    }
    say("sound\n");
    exit(0);
}

static unsigned lines_in(const char *path) {
    FILE *file = must(fopen(path, "r"));
    unsigned lines = 0;
    for (int c; (c = getc(file)) != EOF;) {
        lines += c == '\n';
    }
    fclose(file);
    return lines;
}

static size_t resident_bytes(void) {
    FILE *file = must(fopen("/proc/self/statm", "r"));
    size_t pages = 0;
    must_be(fscanf(file, "%*u %zu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Blocks of several sizes, all of their pages touched, more than wait for their next use. */
static void freed_blocks_hold_no_memory(void) {
    enum { COUNT = 3000 };
    static char *blocks[COUNT];
    size_t before = 0;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            size_t bytes = i % 8 == 0 ? 30000 : 4000;
            blocks[i] = must(calloc(1, bytes));
            for (size_t k = 0; k < bytes; k++) {
                must_be(blocks[i][k] == 0);
            }
            memset(blocks[i], 7, bytes);
        }
        must_be(round == 0 || resident_bytes() > before + COUNT * (size_t)4000);
        for (unsigned i = 0; i < COUNT; i++) {
            free(blocks[i]);
        }
        must_be(round == 0 || resident_bytes() < before + (4 << 20));
        before = resident_bytes();
    }
    say("sound\n");
    exit(0);
}

/* Locked pages keep their contents through what otherwise takes them away. */
static void freed_blocks_are_gone_from_locked_memory_too(void) {
    char *early = must(malloc(64));
    if (mlockall(MCL_CURRENT | MCL_FUTURE) == 0) {
        free(early);
        freed_blocks_hold_no_memory();
    }
    say("sound\n"); /* not allowed here */
    exit(0);
}

/* More live blocks than can have guard pages. */
static void many_live_blocks_work(void) {
    enum { COUNT = 20000 };
    static char *blocks[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        blocks[i] = must(malloc(i % 100));
    }
    must_be(lines_in("/proc/self/maps") < 20000); /* of 65 530 that a process may have */
    for (unsigned i = 0; i < COUNT; i++) {
        free(blocks[i]);
    }
    say("sound\n");
    exit(0);
}

static const struct fault_case cases[] = {
    {"segv_write_past_the_end", write_past_the_end},
    {"segv_read_past_the_end_of_calloc", read_past_the_end_of_calloc},
    {"segv_write_after_free", write_after_free},
    {"segv_read_after_free_of_realloc", read_after_free_of_realloc},
    {"segv_write_after_free_by_another_thread", write_after_free_by_another_thread},
    {"segv_write_far_past_the_end", write_far_past_the_end},
    {"segv_write_after_free_and_900_others", write_after_free_and_900_others},
    {"segv_read_in_a_child_of_what_was_freed_before", read_in_a_child_of_what_was_freed_before},
    {"double_free", double_free},
    {"interior", interior},
    {"far_interior", far_interior},
    {"far_interior_of_usable_size", far_interior_of_usable_size},
    {"free_in_the_guard_page", free_in_the_guard_page},
    {"realloc_in_the_guard_page", realloc_in_the_guard_page},
    {"realloc_of_freed", realloc_of_freed},
    {"underflow", underflow},
    {"sound_every_form_works", every_form_works},
    {"sound_threads_and_forks_work", threads_and_forks_work},
    {"sound_every_block_is_sampled", every_block_is_sampled},
    {"sound_freed_blocks_hold_no_memory", freed_blocks_hold_no_memory},
    {"sound_freed_blocks_are_gone_from_locked_memory_too", freed_blocks_are_gone_from_locked_memory_too},
    {"sound_many_live_blocks_work", many_live_blocks_work},
};

int main(int argc, char **argv) {
    return segv_main(argc, argv, cases, COUNT_OF(cases));
}
