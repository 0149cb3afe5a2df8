/*
 * race.c - one block freed by two threads at the same moment, again and again: how often is it caught?
 *
 * `race PAIR BYTES ROUNDS`. PAIR `owner`: the thread that allocated the block and another one; `others`: two
 * threads of which neither did. The two leave a spinning barrier together. Each round is a process of its
 * own, which is to end by SIGABRT with the line of a double free (caught), or goes on and exits (passed).
 * Anything else, such as a crash or another text, is reported and exits 1. Prints `N rounds, N caught, N
 * passed`; peers' lines and signals count as caught with a fourth argument `any`.
 */
#include "fault.h"

#include <stdatomic.h>
#include <sys/wait.h>

#define DELAY_MAX 400u

static size_t block_bytes;
static bool is_owner_in;
static bool is_any_death_right;
static void *block;
static atomic_uint waiting;
static bool is_warm;   /* in every second round */
static unsigned delay; /* of this round, in turns of an empty loop */

#define WARMING_PAIRS 200u

/* So that the thread has a heap, and caches the size: its free is then the short one. */
static void warm_up(void) {
    void *kept[WARMING_PAIRS];
    for (unsigned i = 0; i < WARMING_PAIRS; i++) {
        kept[i] = must(malloc(block_bytes < 10000 ? block_bytes : 10000));
    }
    for (unsigned i = 0; i < WARMING_PAIRS; i++) {
        free(kept[i]);
    }
}

/* The last to come hears of it first: it waits a while more, another while in each round. */
static void *free_together(void *unused) {
    if (is_warm) {
        warm_up();
    }
    bool is_late = atomic_fetch_sub(&waiting, 1) == 1;
    while (atomic_load(&waiting) != 0) {
    }
    for (unsigned i = 0; i < (is_late ? delay : 0); i++) {
        __asm__ volatile("" : : "r"(i) : "memory");
    }
    free(launder(block));
    return unused;
}

static void race(void) {
    pthread_t threads[2];
    unsigned started = is_owner_in ? 1 : 2;
    fault_limit_time();
    if (is_warm) {
        warm_up();
    }
    block = must(malloc(block_bytes));
    atomic_store(&waiting, 2);
    for (unsigned i = 0; i < started; i++) {
        if (pthread_create(&threads[i], NULL, free_together, NULL) != 0) {
            _exit(5);
        }
    }
    if (is_owner_in) {
        (void)free_together(NULL);
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    _exit(0);
}

enum outcome { CAUGHT, PASSED, OTHER };

/* True when the text is the line, for whatever block; the report of checked mode may follow, in lines that
 * are indented.
 */
static bool is_the_line(const char *text) {
    char sizes[32];
    unsigned long long pointer = 0;
    int end = 0;
    return sscanf(text, "hakmem: free(): double free of 0x%llx, %31[0-9]-byte block%n", &pointer, sizes,
                  &end) == 2 &&
           end != 0 && text[end] == '\n' && (text[end + 1] == '\0' || text[end + 1] == ' ');
}

static enum outcome run_round(void) {
    int lines[2];
    if (pipe(lines) != 0) {
        return OTHER;
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(lines[1], STDERR_FILENO);
        race();
    }
    close(lines[1]);
    char text[512];
    size_t used = 0;
    for (ssize_t got;
         used < sizeof text - 1 && (got = read(lines[0], text + used, sizeof text - 1 - used)) > 0;) {
        used += (size_t)got;
    }
    text[used] = '\0';
    close(lines[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && used == 0) {
        return PASSED;
    }
    if (WIFSIGNALED(status) && (is_any_death_right || (WTERMSIG(status) == SIGABRT && is_the_line(text)))) {
        return CAUGHT;
    }
    printf("status %x, stderr: %s\n", (unsigned)status, text);
    return OTHER;
}

int main(int argc, char **argv) {
    fault_setup();
    alarm(0); /* each round has its own */
    if (argc < 4) {
        return 2;
    }
    is_owner_in = strcmp(argv[1], "owner") == 0;
    is_any_death_right = argc > 4;
    block_bytes = strtoul(argv[2], NULL, 10);
    unsigned long rounds = strtoul(argv[3], NULL, 10);
    unsigned long counts[3] = {0};
    for (unsigned long i = 0; i < rounds; i++) {
        delay = (unsigned)(i * 7 % DELAY_MAX);
        is_warm = i % 2 == 1;
        counts[run_round()]++;
    }
    printf("%lu rounds, %lu caught, %lu passed\n", rounds, counts[CAUGHT], counts[PASSED]);
    return counts[OTHER] == 0 ? 0 : 1;
}
