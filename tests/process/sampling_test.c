/*
 * sampling_test.c - how often guard sampling takes a block: one of N allocations of whatever kind, however
 * the program goes on with it, and seldom enough to cost little. Neither do faults that are no block's.
 */
#include "support/child.h"
#include "support/limits.h"
#include "support/pattern.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ALLOCATIONS 100000u

/* A sampled block is as large as was asked for, to the byte; a class has no such size. */
#define SMALL_BYTES 50u
#define LARGE_BYTES 100001u

static bool is_sampled(const void *block, size_t bytes) {
    CHECK(block != NULL);
    return malloc_usable_size((void *)(uintptr_t)block) == bytes;
}

/* One block at a time: a cache hands the same one out again and again. */
static unsigned allocate_and_free(unsigned allocations, void *(*allocate)(size_t bytes), size_t bytes) {
    unsigned sampled = 0;
    for (unsigned i = 0; i < allocations; i++) {
        void *block = launder(allocate(bytes));
        sampled += is_sampled(block, bytes);
        free(block);
    }
    return sampled;
}

static unsigned malloc_and_free(unsigned allocations) {
    return allocate_and_free(allocations, malloc, SMALL_BYTES);
}

static void *calloc_one(size_t bytes) {
    return calloc(1, bytes);
}

static unsigned calloc_and_free(unsigned allocations) {
    return allocate_and_free(allocations, calloc_one, SMALL_BYTES);
}

static unsigned large_and_free(unsigned allocations) {
    return allocate_and_free(allocations, malloc, LARGE_BYTES);
}

/* Sizes that no cache has room for beside ones that it has: what may not be sampled leaves its turn to the
 * next. */
static unsigned huge_and_small(unsigned allocations) {
    unsigned sampled = 0;
    for (unsigned i = 0; i < allocations; i += 2) {
        void *huge = launder(malloc(2 * MIB));
        CHECK(huge != NULL);
        free(huge);
        void *block = launder(malloc(SMALL_BYTES));
        sampled += is_sampled(block, SMALL_BYTES);
        free(block);
    }
    return sampled;
}

/* Every block newly taken. */
static unsigned keep(unsigned allocations) {
    unsigned sampled = 0;
    for (unsigned i = 0; i < allocations; i++) {
        sampled += is_sampled(launder(malloc(SMALL_BYTES)), SMALL_BYTES);
    }
    return sampled;
}

static unsigned allocations_of_thread;

static void *allocate_some(void *sampled) {
    *(unsigned *)sampled += malloc_and_free(allocations_of_thread);
    return NULL;
}

static unsigned allocate_on_threads(unsigned allocations, unsigned of_each) {
    unsigned sampled = 0;
    allocations_of_thread = of_each;
    for (unsigned i = 0; i < allocations / of_each; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, allocate_some, &sampled) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    return sampled;
}

/* Few of them allocate as much as an interval of 100. */
static unsigned short_threads(unsigned allocations) {
    return allocate_on_threads(allocations, 40);
}

/* A thread's first allocation counts too. */
static unsigned shortest_threads(unsigned allocations) {
    return allocate_on_threads(allocations, 1);
}

static const struct kind {
    const char *name;
    unsigned (*run)(unsigned allocations);
    unsigned allocations;
    unsigned most_percent; /* of what is expected; the least is 80 */
} kinds[] = {
    {"malloc_and_free", malloc_and_free, ALLOCATIONS, 120},
    {"calloc_and_free", calloc_and_free, ALLOCATIONS, 120},
    {"large_and_free", large_and_free, ALLOCATIONS, 120},
    {"huge_and_small", huge_and_small, ALLOCATIONS / 10, 120},
    {"keep", keep, ALLOCATIONS, 120},
    /* A thread's first stack allocates as well. */
    {"short_threads", short_threads, ALLOCATIONS / 4, 130},
    {"shortest_threads", shortest_threads, ALLOCATIONS / 10, 150},
};

static int run_kind(const char *name) {
    unsigned every = (unsigned)atoi(getenv("HAKMEM_GUARD_SAMPLE"));
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            unsigned expected = kinds[i].allocations / every;
            unsigned sampled = kinds[i].run(kinds[i].allocations);
            fprintf(stderr, "%s: %u of %u\n", name, sampled, expected);
            CHECK(sampled * 100 >= expected * 80 && sampled * 100 <= expected * kinds[i].most_percent);
            return 0;
        }
    }
    return 1;
}

/* Intervals are from half to one and a half times N: of 250 the mean is within 2 % of N as a rule. */
static void one_of_n_allocations_is_sampled(void **state) {
    (void)state;
    REQUIRE_HAK();
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        assert_part_succeeds(kinds[i].name, "HAKMEM_GUARD_SAMPLE=20");
        assert_part_succeeds(kinds[i].name, "HAKMEM_GUARD_SAMPLE=100");
    }
    /* From 1000 on time goes by between two. */
    assert_part_succeeds("malloc_and_free", "HAKMEM_GUARD_SAMPLE=999");
}

static uint64_t now_ns(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#define SPACING_NS     UINT64_C(500000) /* of HAKMEM_GUARD_SAMPLE=1000 */
#define SPACED_THREADS 2u
#define MOMENTS_MAX    10000u

/* Of each sampled block, a moment before it was taken and one after. */
struct moments {
    unsigned count;
    struct {
        uint64_t before_ns, after_ns;
    } at[MOMENTS_MAX];
};

static struct moments moments_of[SPACED_THREADS];

static void *note_moments(void *context) {
    struct moments *moments = context;
    for (unsigned i = 0; i < 20 * ALLOCATIONS && moments->count < MOMENTS_MAX; i++) {
        uint64_t before_ns = now_ns();
        void *block = launder(malloc(SMALL_BYTES));
        uint64_t after_ns = now_ns();
        if (is_sampled(block, SMALL_BYTES)) {
            moments->at[moments->count].before_ns = before_ns;
            moments->at[moments->count++].after_ns = after_ns;
        }
        free(block);
    }
    return NULL;
}

/* Of two samples one was taken so long after the other, whichever was first. */
static void check_apart(const struct moments *a, unsigned i, const struct moments *b, unsigned j) {
    uint64_t first_ns = a->at[i].before_ns < b->at[j].before_ns ? a->at[i].before_ns : b->at[j].before_ns;
    uint64_t last_ns = a->at[i].after_ns > b->at[j].after_ns ? a->at[i].after_ns : b->at[j].after_ns;
    CHECK(last_ns - first_ns >= SPACING_NS);
}

/* Not as many as N asks for, on whichever threads: what is measured around two is at least what lay between.
 */
static int look_at_spaces(void) {
    pthread_t threads[SPACED_THREADS];
    for (unsigned t = 0; t < SPACED_THREADS; t++) {
        CHECK(pthread_create(&threads[t], NULL, note_moments, &moments_of[t]) == 0);
    }
    for (unsigned t = 0; t < SPACED_THREADS; t++) {
        CHECK(pthread_join(threads[t], NULL) == 0);
    }
    const struct moments *a = &moments_of[0], *b = &moments_of[1];
    CHECK(a->count + b->count >= 2);
    for (unsigned i = 0; i < a->count; i++) {
        for (unsigned j = 0; j < b->count; j++) {
            check_apart(a, i, b, j);
        }
    }
    for (unsigned t = 0; t < SPACED_THREADS; t++) {
        for (unsigned i = 1; i < moments_of[t].count; i++) {
            check_apart(&moments_of[t], i - 1, &moments_of[t], i);
        }
    }
    return 0;
}

static void samples_have_time_between_them(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("spaced", "HAKMEM_GUARD_SAMPLE=1000");
}

#define LIVE_MAX 8192u /* README, "Guard sampling" */

static int keep_many(void) {
    unsigned sampled = keep(LIVE_MAX + 1000);
    CHECK(sampled > LIVE_MAX - 100 && sampled <= LIVE_MAX);
    return 0;
}

static void so_many_live_at_a_time_and_no_more(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("many", "HAKMEM_GUARD_SAMPLE=1");
}

/* No thread starts where its turn is. */
static void few_allocations_are_not_sampled(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("few", "HAKMEM_GUARD_SAMPLE=1000000");
}

/* Freed ones above what slots hold wait with their address space; before malloc fails for that, it goes. */
static int take_and_give_with_little_room(void) {
    enum { WAITING = 200 };
    limit_room(WAITING * MIB);
    for (unsigned i = 0; i < 2 * WAITING; i++) {
        void *block = launder(malloc(900 * KIB));
        CHECK(is_sampled(block, 900 * KIB));
        free(block);
    }
    void *block = launder(malloc(WAITING / 2 * MIB));
    CHECK(block != NULL);
    free(block);
    return 0;
}

/* In a slot, and in a mapping of its own. */
/* Slots stay, and have address space: little of it where the process has little. */
static int fill_little_space(void) {
    enum { BLOCKS = 150 * 1024 * 1024 / 5000 };
    unsigned sampled = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        sampled += is_sampled(launder(malloc(5000)), 5000);
    }
    CHECK(sampled > 100); /* in chunks of 64 slots of 64 KiB: eight */
    return 0;
}

static int start_with_little_space(const char *part) {
    rlim_t limit = 300 * MIB;
    CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){limit, limit}) == 0);
    execl(own_path(), "sampling", part, (char *)NULL);
    return 1;
}

static int start_to_fill(void) {
    return start_with_little_space("fill-little-space");
}

static int start_to_map(void) {
    return start_with_little_space("map-beside");
}

static int shrink_without_memory(void) {
    static const size_t sizes[] = {5000, 900 * KIB};
    char *blocks[COUNT_OF(sizes)];
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        blocks[i] = memset(launder(malloc(sizes[i])), 1, sizes[i]);
        CHECK(is_sampled(blocks[i], sizes[i]));
    }
    limit_room(64 * MIB);
    for (size_t bytes = 8 * MIB; bytes >= 16; bytes /= 2) {
        while (launder(malloc(bytes)) != NULL) {
        }
    }
    while (launder(malloc(SMALL_BYTES)) != NULL) {
    }
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        errno = 0;
        CHECK(realloc(launder(blocks[i]), SMALL_BYTES) == blocks[i] && errno == 0);
        CHECK(bytes_are(blocks[i], sizes[i], 1) && malloc_usable_size(blocks[i]) == sizes[i]);
        CHECK(realloc(launder(blocks[i]), sizes[i] + 1) == NULL && errno == ENOMEM);
        free(blocks[i]);
    }
    return 0;
}

#define SLOT_BLOCKS 1000u
#define OWN_BLOCKS  50u

/* Blocks in slots and in mappings of their own; what was freed has no memory. */
static int ask_what_is_resident(void) {
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    size_t live_bytes = 0;
    CHECK(hak_stats_get(&stats) == 0);
    size_t before_bytes = stats.resident_bytes;
    for (unsigned i = 0; i < SLOT_BLOCKS + OWN_BLOCKS; i++) {
        size_t bytes = (i < SLOT_BLOCKS ? 1 : 200) * (size_t)sysconf(_SC_PAGESIZE);
        char *block = launder(malloc(bytes));
        CHECK(is_sampled(block, bytes));
        memset(block, 1, bytes);
        if (i % 2 == 0) {
            live_bytes += bytes;
        } else {
            free(block);
        }
    }
    CHECK(hak_stats_get(&stats) == 0);
    size_t more_bytes = stats.resident_bytes - before_bytes;
    CHECK(more_bytes >= live_bytes && more_bytes <= live_bytes + MIB);
    return 0;
}

static void what_sampled_blocks_have_is_resident(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("resident", "HAKMEM_GUARD_SAMPLE=1");
}

/* A collector of garbage has the kernel stop writes to old pages, and lets them go on from its handler. */
#define BARRIER_FAULTS 500u
#define BARRIER_ROUNDS 20u

static char *old_page;

static void open_old_page(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    CHECK(info->si_addr == old_page);
    CHECK(mprotect(old_page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE) == 0);
}

static uint64_t own_time_ns(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The least that so many writes to an old page have cost. */
static uint64_t barriers_ns(void) {
    uint64_t least_ns = UINT64_MAX;
    for (unsigned round = 0; round < BARRIER_ROUNDS; round++) {
        uint64_t start_ns = own_time_ns();
        for (unsigned i = 0; i < BARRIER_FAULTS; i++) {
            CHECK(mprotect(old_page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ) == 0);
            *(volatile char *)old_page = 1;
        }
        uint64_t spent_ns = own_time_ns() - start_ns;
        least_ns = spent_ns < least_ns ? spent_ns : least_ns;
    }
    return least_ns;
}

/* In the midst of some thousand sampled blocks, whose handler stands in front of the program's or does not.
 */
static int pass_barriers(void) {
    struct sigaction now, action = {.sa_sigaction = open_old_page, .sa_flags = SA_SIGINFO};
    CHECK(keep(LIVE_MAX / 4) != 0 && is_sampled(launder(malloc(300 * KIB)), 300 * KIB));
    old_page = mmap(NULL, 4 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(old_page != MAP_FAILED);
    old_page += 2 * MIB;
    CHECK(keep(LIVE_MAX / 4) != 0 && is_sampled(launder(malloc(300 * KIB)), 300 * KIB));
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    uint64_t alone_ns = barriers_ns();
    CHECK(keep(2 * 64) != 0 && sigaction(SIGSEGV, NULL, &now) == 0);
    CHECK(now.sa_sigaction != open_old_page);
    uint64_t behind_ns = barriers_ns();
    fprintf(stderr, "%llu ns a fault, %llu alone\n", (unsigned long long)behind_ns / BARRIER_FAULTS,
            (unsigned long long)alone_ns / BARRIER_FAULTS);
    CHECK(behind_ns < 2 * alone_ns);
    return 0;
}

static void faults_elsewhere_cost_hardly_more(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("barriers", "HAKMEM_GUARD_SAMPLE=1");
}

static void what_waits_gives_way_when_memory_is_short(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("short-of-memory", "HAKMEM_GUARD_SAMPLE=1");
}

static void where_address_space_is_little_slots_take_little(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("little-space", "HAKMEM_GUARD_SAMPLE=1");
}

static void a_block_that_is_to_be_smaller_stays_when_there_is_no_memory(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("shrink", "HAKMEM_GUARD_SAMPLE=1");
}

/* What waits keeps address space from stacks and files of the program. */
static int map_beside_what_waits(void) {
    for (unsigned i = 0; i < 500; i++) {
        free(launder(malloc(900 * KIB)));
        CHECK(i % 20 != 0 || has_room(150 * MIB));
    }
    return 0;
}

static void what_waits_leaves_room_to_the_program(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_part_succeeds("map-little-space", "HAKMEM_GUARD_SAMPLE=1");
}

static int allocate_few(void) {
    return allocate_on_threads(1000, 10) != 0 || keep(1000) != 0;
}

static const struct part parts[] = {
    {"few", allocate_few},
    {"many", keep_many},
    {"short-of-memory", take_and_give_with_little_room},
    {"little-space", start_to_fill},
    {"fill-little-space", fill_little_space},
    {"shrink", shrink_without_memory},
    {"map-little-space", start_to_map},
    {"map-beside", map_beside_what_waits},
    {"resident", ask_what_is_resident},
    {"barriers", pass_barriers},
    {"spaced", look_at_spaces},
};

int main(int argc, char **argv) {
    const struct part *part = part_asked_for(parts, COUNT_OF(parts), argc, argv);
    if (argc == 2) {
        return part != NULL ? part->run() : run_kind(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_n_allocations_is_sampled),
        cmocka_unit_test(few_allocations_are_not_sampled),
        cmocka_unit_test(so_many_live_at_a_time_and_no_more),
        cmocka_unit_test(samples_have_time_between_them),
        cmocka_unit_test(faults_elsewhere_cost_hardly_more),
        cmocka_unit_test(what_waits_gives_way_when_memory_is_short),
        cmocka_unit_test(what_waits_leaves_room_to_the_program),
        cmocka_unit_test(where_address_space_is_little_slots_take_little),
        cmocka_unit_test(a_block_that_is_to_be_smaller_stays_when_there_is_no_memory),
        cmocka_unit_test(what_sampled_blocks_have_is_resident),
    };
    return cmocka_run_group_tests_name("sampling", tests, NULL, heap_is_sound);
}
