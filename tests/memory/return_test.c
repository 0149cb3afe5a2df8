/*
 * return_test.c - what a program frees goes back to the system by itself, whatever the program does then and
 * whoever freed it.
 *
 * suite: limit 200 s
 * Each scenario runs in a process of its own: fills memory, frees it, and does nothing more or goes on with
 * little. Within the time that the scenario allows (it need not be used: most is back at once) the resident
 * size must be at or below the scenario's bound.
 */
#include "memory/rss_kit.h"
#include "support/child.h"
#include "support/target.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>

#define MB           ((size_t)1000 * 1000)
#define TOTAL_BYTES  (100 * MB)
#define BOUND_BYTES  (12 * MB)
#define THREADS_MAX  16u
#define STRANGERS    300u
#define HANDFUL      10u
#define WARM         16u  /* strangers that have allocated before */
#define WARM_SIZES   10u  /* of them, from WARM_BYTES on, that many bytes apart, */
#define WARM_BYTES   640u /* above which freed blocks may stay where they are freed */
#define WARM_STEP    128u
#define WARM_BLOCKS  100u       /* of each size: what it takes until a thread caches it, and some */
#define RETAIN_BYTES (64 * MIB) /* HAKMEM_RETAIN_MB, for what has come and gone again and again */
#define WITHIN_MS    2000u
#define POLL_MS      20u

/*
 * Beside what live blocks force: 1 MiB of free memory that may always stay, for slabs and for large blocks
 * each, and what a thread has: its stack, its heap, and the pages below some 30 cached blocks.
 */
#define SLACK_BYTES        (2 * MIB)
#define SLACK_THREAD_BYTES (512 * KIB)
#define STRANGER_BYTES     (128 * KIB) /* half of it rss_kit.h's thread-local data */

/* Who frees: each thread its own blocks, or the main thread those of a thread that sleeps or has ended, or
 * many threads, each of which sleeps then, those of one that sleeps; or fewer that have allocated such blocks
 * themselves, which others freed. */
enum freeing { OWNER_FREES, OWNER_SLEEPS, OWNER_HAS_ENDED, STRANGERS_FREE, WARM_STRANGERS_FREE };

/* What every thread does after the last free. */
enum resting { SLEEPS, WORKS, WAITS_IN_EPOLL };

struct scenario {
    const char *name;
    size_t block_bytes; /* on average, where it is not the size of each */
    size_t most_bytes;  /* 0: all are of one size; else sizes from 16 to this, evenly */
    size_t total_bytes;
    size_t bound_bytes; /* 0: what pages with live blocks force, a tenth more, and SLACK_BYTES */
    unsigned within_ms;
    unsigned threads;
    enum freeing freeing;
    enum resting resting;
    unsigned swings;     /* times that all of it comes and goes before */
    unsigned keep_every; /* 0: nothing stays live */
    bool is_in_order;
    bool is_kept; /* M_TRIM_THRESHOLD -1: nothing goes back, until malloc_trim(0) after the last free */
};

#define DEFAULTS                                                                                             \
    .block_bytes = 500, .total_bytes = TOTAL_BYTES, .bound_bytes = BOUND_BYTES, .within_ms = WITHIN_MS,      \
    .threads = 1

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
static const struct scenario scenarios[] = {
    {DEFAULTS, .name = "one thread sleeps", .resting = SLEEPS},
    {DEFAULTS, .name = "one thread works on", .resting = WORKS},
    {DEFAULTS, .name = "one thread waits in epoll", .resting = WAITS_IN_EPOLL},
    {DEFAULTS, .name = "one thread frees in order and sleeps", .resting = SLEEPS, .is_in_order = true},
    {DEFAULTS, .name = "eight threads sleep", .threads = 8, .resting = SLEEPS},
    {DEFAULTS, .name = "eight threads work on", .threads = 8, .resting = WORKS},
    {DEFAULTS, .name = "eight threads wait in epoll", .threads = 8, .resting = WAITS_IN_EPOLL},
    {DEFAULTS, .name = "another thread frees, the owner sleeps", .freeing = OWNER_SLEEPS},
    {DEFAULTS, .name = "another thread frees for eight that sleep", .threads = 8, .freeing = OWNER_SLEEPS},
    {DEFAULTS, .name = "300 threads free and sleep", .freeing = STRANGERS_FREE,
     .bound_bytes = BOUND_BYTES + STRANGERS * STRANGER_BYTES},
    {DEFAULTS, .name = "16 threads that have allocated before free and sleep", .freeing = WARM_STRANGERS_FREE,
     .block_bytes = 904, .most_bytes = 1792, .bound_bytes = BOUND_BYTES + WARM * STRANGER_BYTES},
    {DEFAULTS, .name = "the owner has ended", .freeing = OWNER_HAS_ENDED},
    {DEFAULTS, .name = "eight owners have ended", .threads = 8, .freeing = OWNER_HAS_ENDED},
    {DEFAULTS, .name = "1 % stays live, scattered", .keep_every = 100, .bound_bytes = 0},
    {DEFAULTS, .name = "1 % stays live, eight threads", .keep_every = 100, .bound_bytes = 0, .threads = 8},
    {DEFAULTS, .name = "1 % stays live, the owner has ended", .keep_every = 100, .bound_bytes = 0,
     .freeing = OWNER_HAS_ENDED},
    {DEFAULTS, .name = "1 % stays live, another thread frees", .keep_every = 100, .bound_bytes = 0,
     .freeing = OWNER_SLEEPS},
    /* Too many for slabs to be given back as soon as they are so thin: by and by, as the process works on. */
    {DEFAULTS, .name = "10 % stays live, one thread works on", .block_bytes = 2000, .keep_every = 10,
     .total_bytes = TOTAL_BYTES / 2, .bound_bytes = 16 * MB, .resting = WORKS, .within_ms = 30000},
    {DEFAULTS, .name = "64 KiB blocks", .block_bytes = 64 * KIB},
    {DEFAULTS, .name = "64 KiB blocks, eight threads", .block_bytes = 64 * KIB, .threads = 8},
    {DEFAULTS, .name = "64 KiB blocks, another thread frees", .block_bytes = 64 * KIB,
     .freeing = OWNER_SLEEPS},
    {DEFAULTS, .name = "64 KiB blocks, 1 % stays live", .block_bytes = 64 * KIB, .keep_every = 100,
     .bound_bytes = 0},
    {DEFAULTS, .name = "1 MiB blocks", .block_bytes = MIB},
    {DEFAULTS, .name = "1 MiB blocks, another thread frees", .block_bytes = MIB, .freeing = OWNER_SLEEPS},
    {DEFAULTS, .name = "1 MiB blocks, 1 % stays live", .block_bytes = MIB, .keep_every = 100,
     .bound_bytes = 0},
    /* Each free lowers what may stay, and so has more to give back than its own. */
    {DEFAULTS, .name = "16 MiB blocks", .block_bytes = 16 * MIB, .total_bytes = GIB},
    {DEFAULTS, .name = "64 MiB blocks", .block_bytes = 64 * MIB, .total_bytes = GIB},
    {DEFAULTS, .name = "64 MiB blocks, four threads", .block_bytes = 64 * MIB, .total_bytes = GIB,
     .threads = 4},
    {DEFAULTS, .name = "one block of 100 MB", .block_bytes = TOTAL_BYTES},
    {DEFAULTS, .name = "one block of 1 GiB", .block_bytes = GIB, .total_bytes = GIB},
    /* Each class ends in a cache with some of its blocks, scattered over all of its pages. */
    {DEFAULTS, .name = "200 sizes", .block_bytes = 108, .most_bytes = 200},
    {DEFAULTS, .name = "1000 sizes", .block_bytes = 516, .most_bytes = 1016},
    {DEFAULTS, .name = "4000 sizes", .block_bytes = 2008, .most_bytes = 4000},
    {DEFAULTS, .name = "1000 sizes, eight threads sleep", .block_bytes = 516, .most_bytes = 1016,
     .threads = 8, .bound_bytes = 3 * BOUND_BYTES},
    /* Of no class enough that its own frees tell of an end. */
    {DEFAULTS, .name = "32 000 sizes, four threads sleep", .block_bytes = 16008, .most_bytes = 32000,
     .threads = 4},
    {DEFAULTS, .name = "32 000 sizes, 16 threads sleep", .block_bytes = 16008, .most_bytes = 32000,
     .threads = 16, .bound_bytes = 2 * BOUND_BYTES},
    {DEFAULTS, .name = "200 sizes for the fifth time, eight threads sleep", .block_bytes = 108,
     .most_bytes = 200, .total_bytes = 400 * MB, .threads = 8, .swings = 4,
     .bound_bytes = RETAIN_BYTES + 4 * BOUND_BYTES},
    {DEFAULTS, .name = "malloc_trim", .is_kept = true},
    {DEFAULTS, .name = "malloc_trim, eight threads sleep", .is_kept = true, .threads = 8},
    {DEFAULTS, .name = "malloc_trim, 1 % stays live, eight threads sleep", .is_kept = true, .threads = 8,
     .keep_every = 100, .bound_bytes = 0},
    {DEFAULTS, .name = "malloc_trim, 64 KiB blocks", .is_kept = true, .block_bytes = 64 * KIB},
    {DEFAULTS, .name = "1 GiB of 500-byte blocks in random order", .total_bytes = GIB,
     .bound_bytes = GIB / 20, .within_ms = 5000},
    {DEFAULTS, .name = "1 GiB of 64 KiB blocks in random order", .block_bytes = 64 * KIB, .total_bytes = GIB,
     .bound_bytes = GIB / 20, .within_ms = 5000},
};
#pragma GCC diagnostic pop

/* ---- the child ---- */

struct share {
    const struct scenario *scenario;
    void **blocks;
    size_t count;
    size_t kept;
    unsigned number;
};

static struct share shares[THREADS_MAX];
static pthread_barrier_t filled, measured, freed;
static atomic_bool is_over;

static void fill_share(struct share *share) {
    if (share->scenario->most_bytes != 0) {
        fill_blocks_mixed(share->blocks, share->count, share->scenario->most_bytes, share->number);
    } else {
        fill_blocks(share->blocks, share->count, share->scenario->block_bytes);
    }
    if (!share->scenario->is_in_order) {
        shuffle(share->blocks, share->count, 42 + share->number);
    }
}

static void free_share(struct share *share) {
    share->kept = free_blocks(share->blocks, share->count, share->scenario->keep_every);
}

/* What a program does that has little to do: some kilobytes come and go. */
static void work_a_little(void) {
    void *few[64];
    for (size_t i = 0; i < COUNT_OF(few); i++) {
        few[i] = malloc(16 * (i + 1));
    }
    for (size_t i = 0; i < COUNT_OF(few); i++) {
        free(few[i]);
    }
}

static void rest(enum resting resting) {
    struct epoll_event event;
    int fd = resting == WAITS_IN_EPOLL ? epoll_create1(EPOLL_CLOEXEC) : -1;
    while (!atomic_load(&is_over)) {
        if (resting == WAITS_IN_EPOLL) {
            (void)epoll_wait(fd, &event, 1, POLL_MS);
        } else {
            usleep(POLL_MS * 1000);
        }
        if (resting == WORKS) {
            work_a_little();
        }
    }
}

static void *run_share(void *context) {
    struct share *share = context;
    const struct scenario *scenario = share->scenario;
    for (unsigned i = 0; i < scenario->swings; i++) {
        fill_share(share);
        free_share(share);
    }
    fill_share(share);
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&measured);
    if (scenario->freeing == OWNER_HAS_ENDED) {
        return NULL;
    }
    if (scenario->freeing == OWNER_FREES) {
        free_share(share);
        pthread_barrier_wait(&freed);
    }
    rest(scenario->resting);
    return NULL;
}

static void *warm_blocks[WARM][WARM_SIZES * WARM_BLOCKS];

static void warm_up(void **blocks) {
    for (unsigned i = 0; i < WARM_SIZES * WARM_BLOCKS; i++) {
        blocks[i] = launder(malloc(WARM_BYTES + i / WARM_BLOCKS * WARM_STEP));
    }
}

static void cool_down(void) {
    for (unsigned i = 0; i < WARM; i++) {
        for (unsigned k = 0; k < WARM_SIZES * WARM_BLOCKS; k++) {
            free(warm_blocks[i][k]);
        }
    }
}

/* Takes a handful of the blocks at a time, so that all have some of every slab. */
static void *free_as_stranger(void *warm) {
    static atomic_size_t next;
    size_t i;
    free(launder(malloc(1)));
    if (warm != NULL) {
        warm_up(warm);
    }
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&freed);
    while ((i = atomic_fetch_add(&next, HANDFUL)) < shares[0].count) {
        for (size_t k = i; k < i + HANDFUL && k < shares[0].count; k++) {
            free(shares[0].blocks[k]);
        }
        sched_yield();
    }
    pthread_barrier_wait(&freed);
    rest(SLEEPS);
    return NULL;
}

static unsigned strangers_of(const struct scenario *scenario) {
    static const unsigned counts[] = {[STRANGERS_FREE] = STRANGERS, [WARM_STRANGERS_FREE] = WARM};
    return counts[scenario->freeing];
}

static void free_by_strangers(const struct scenario *scenario, pthread_t *strangers) {
    bool are_warm = scenario->freeing == WARM_STRANGERS_FREE;
    for (unsigned i = 0; i < strangers_of(scenario); i++) {
        void *warm = are_warm ? warm_blocks[i] : NULL;
        CHECK(pthread_create(&strangers[i], NULL, free_as_stranger, warm) == 0);
    }
    pthread_barrier_wait(&freed); /* all are there */
    cool_down();
    pthread_barrier_wait(&freed);
    pthread_barrier_wait(&freed);
}

static size_t forced_by(const struct scenario *scenario, void **blocks) {
    size_t kept = 0;
    for (unsigned i = 0; i < scenario->threads; i++) {
        memmove(blocks + kept, shares[i].blocks, shares[i].kept * sizeof *blocks);
        kept += shares[i].kept;
    }
    return forced_bytes(blocks, kept, scenario->block_bytes);
}

/* Waits until the resident size is within the bound, or for as long as the scenario allows. */
static size_t wait_for(const struct scenario *scenario, size_t bound_bytes, uint64_t *took_ms) {
    uint64_t start_ms = clock_now_ms();
    size_t now_bytes;
    while ((now_bytes = rss_bytes()) > bound_bytes && clock_now_ms() - start_ms < scenario->within_ms) {
        usleep(POLL_MS * 1000);
        if (scenario->resting == WORKS) {
            work_a_little();
        }
    }
    *took_ms = clock_now_ms() - start_ms;
    return now_bytes;
}

static pthread_t strangers[STRANGERS];

/* Returns when everything is free. */
static void free_for_others(const struct scenario *scenario) {
    if (scenario->freeing == OWNER_FREES) {
        pthread_barrier_wait(&freed);
    } else if (strangers_of(scenario) != 0) {
        free_by_strangers(scenario, strangers);
    } else {
        for (unsigned i = 0; i < scenario->threads; i++) {
            free_share(&shares[i]);
        }
    }
}

static int run_scenario(const struct scenario *scenario) {
    pthread_t threads[THREADS_MAX];
    size_t count = scenario->total_bytes / scenario->block_bytes;
    size_t array_bytes = count * sizeof(void *);
    void **blocks = map_own(array_bytes);
    uint64_t took_ms;
    free(launder(malloc(1)));
    if (scenario->is_kept) {
        CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1);
    }
    size_t before_bytes = rss_bytes();
    pthread_barrier_init(&filled, NULL, scenario->threads + 1);
    pthread_barrier_init(&measured, NULL, scenario->threads + 1);
    unsigned stranger_count = strangers_of(scenario);
    pthread_barrier_init(&freed, NULL, (stranger_count != 0 ? stranger_count : scenario->threads) + 1);
    for (unsigned i = 0; i < scenario->threads; i++) {
        size_t from = count * i / scenario->threads;
        size_t to = count * (i + 1) / scenario->threads;
        shares[i] =
            (struct share){.scenario = scenario, .blocks = blocks + from, .count = to - from, .number = i};
        CHECK(pthread_create(&threads[i], NULL, run_share, &shares[i]) == 0);
    }
    pthread_barrier_wait(&filled);
    size_t full_bytes = rss_bytes();
    pthread_barrier_wait(&measured);
    for (unsigned i = 0; scenario->freeing == OWNER_HAS_ENDED && i < scenario->threads; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    free_for_others(scenario);
    size_t bound_bytes = scenario->bound_bytes;
    if (bound_bytes == 0) {
        bound_bytes = before_bytes + forced_by(scenario, blocks) / 10 * 11 + SLACK_BYTES +
                      scenario->threads * SLACK_THREAD_BYTES;
    }
    if (scenario->is_kept) {
        CHECK(rss_bytes() > full_bytes / 100 * 95); /* or trimming would show nothing */
        CHECK(malloc_trim(0) == 1);
    }
    (void)munmap(blocks, array_bytes);
    size_t now_bytes = wait_for(scenario, bound_bytes, &took_ms);
    printf("%zu KiB before, %zu full, %zu after %u ms, %zu allowed\n", before_bytes / KIB, full_bytes / KIB,
           now_bytes / KIB, (unsigned)took_ms, bound_bytes / KIB);
    atomic_store(&is_over, true);
    for (unsigned i = 0; scenario->freeing != OWNER_HAS_ENDED && i < scenario->threads; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    for (unsigned i = 0; i < stranger_count; i++) {
        CHECK(pthread_join(strangers[i], NULL) == 0);
    }
    CHECK(full_bytes > before_bytes + scenario->total_bytes / 100 * 95); /* what is freed had been there */
    check_heap();
    return now_bytes <= bound_bytes ? 0 : 1;
}

/* ---- the suite ---- */

static void goes_back(void **state) {
    const struct scenario *scenario = *state;
    static struct child child;
    char number[8];
    REQUIRE_HAK();
    snprintf(number, sizeof number, "%zu", (size_t)(scenario - scenarios));
    child = (struct child){.program = own_path(), .arguments = {number}};
    child_run(&child);
    print_message("%s: %s", scenario->name, child.out);
    assert_child_succeeded(&child);
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[COUNT_OF(scenarios)];
    if (argc > 1) {
        return run_scenario(&scenarios[strtoul(argv[1], NULL, 10)]);
    }
    for (size_t i = 0; i < COUNT_OF(scenarios); i++) {
        tests[i] = (struct CMUnitTest){.name = scenarios[i].name,
                                       .test_func = goes_back,
                                       .initial_state = (void *)(uintptr_t)&scenarios[i]};
    }
    return _cmocka_run_group_tests("return", tests, COUNT_OF(tests), NULL, heap_is_sound);
}
