/*
 * reclaim_test.c - before an allocation fails, everything that is kept goes back, and it is tried once more.
 *
 * suite: limit 60 s
 * Children keep free memory of each kind, then may not have more address space (RLIMIT_AS), then ask for what
 * only fits in place of what they keep. When they are refused at last, nothing that could go back is left.
 */
#include "memory/rss_kit.h"
#include "support/child.h"
#include "support/limits.h"
#include "support/target.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT_BYTES  ((size_t)64 * MIB)
#define ROOM_BYTES  MIB
#define ASKED_BYTES ((size_t)48 * MIB)
#define GROWN_BYTES ((size_t)40 * MIB)
#define AHEAD_BYTES ((size_t)8192)
#define SMALL_BYTES ((size_t)500)

#define AHEAD_SLAB_BLOCKS 8u

/*
 * Fills and frees so much in blocks of one size; all of it is kept, since the floor is that high. Scattered,
 * the last ones, which the thread's cache holds, lie in every SuperSlab.
 */
static void keep(size_t block_bytes, bool is_scattered) {
    size_t count = KEPT_BYTES / block_bytes;
    void **blocks = map_own(count * sizeof *blocks);
    fill_blocks(blocks, count, block_bytes);
    if (is_scattered) {
        shuffle(blocks, count, 42);
    }
    (void)free_blocks(blocks, count, 0);
    (void)munmap(blocks, count * sizeof *blocks);
}

static pthread_barrier_t kept, over;

static void sleep_on(void) {
    pthread_barrier_wait(&kept);
    pthread_barrier_wait(&over);
}

/* Another thread runs the function, which sleeps at its end. */
static void run_until_asleep(void *(*function)(void *context), void *context) {
    pthread_t thread;
    pthread_barrier_init(&kept, NULL, 2);
    pthread_barrier_init(&over, NULL, 2);
    CHECK(pthread_create(&thread, NULL, function, context) == 0);
    pthread_barrier_wait(&kept);
}

static void *keep_and_sleep(void *block_bytes) {
    keep((size_t)(uintptr_t)block_bytes, false); /* what another thread caches stays there */
    sleep_on();
    return NULL;
}

/* One block, or blocks of a size, in as much memory as was kept. */
static bool can_have(size_t block_bytes) {
    size_t count = ASKED_BYTES / block_bytes;
    void *previous = NULL;
    for (size_t i = 0; i < count; i++) {
        void **block = malloc(block_bytes);
        if (block == NULL) {
            return false;
        }
        *block = previous;
        previous = block;
    }
    return true;
}

struct request {
    size_t kept_block_bytes, asked_block_bytes;
    bool is_kept_by_other;
};

static struct hak_stats stats_now(void) {
    struct hak_stats stats = {.version = HAK_STATS_VERSION, .struct_bytes = sizeof stats};
    CHECK(hak_stats_get(&stats) == 0);
    return stats;
}

/* The limit is there; and when it is reached, caches are empty and no SuperSlab is kept for nothing. */
static void is_refused(bool has_other_thread) {
    CHECK(launder(malloc(2 * KEPT_BYTES)) == NULL && errno == ENOMEM);
    struct hak_stats stats = stats_now();
    CHECK(has_other_thread || stats.cached_bytes == 0);
    CHECK(stats.superslabs_empty == 0);
}

static int ask(void *context) {
    const struct request *request = context;
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1);
    if (request->is_kept_by_other) {
        run_until_asleep(keep_and_sleep, (void *)(uintptr_t)request->kept_block_bytes);
    } else {
        keep(request->kept_block_bytes, true);
    }
    CHECK(address_space_bytes() >= KEPT_BYTES);
    limit_room(ROOM_BYTES);
    CHECK(can_have(request->asked_block_bytes));
    is_refused(request->is_kept_by_other);
    check_heap();
    return 0;
}

static void is_given(size_t kept_block_bytes, size_t asked_block_bytes, bool is_kept_by_other) {
    static struct child child;
    static struct request request;
    REQUIRE_HAK();
    request = (struct request){kept_block_bytes, asked_block_bytes, is_kept_by_other};
    child = (struct child){.function = ask, .context = &request};
    child_run(&child);
    assert_child_succeeded(&child);
}

static void slabs_give_way_to_a_large_block(void **state) {
    (void)state;
    is_given(SMALL_BYTES, ASKED_BYTES, false);
}

static void slabs_give_way_to_page_runs(void **state) {
    (void)state;
    is_given(SMALL_BYTES, 100 * KIB, false);
}

static void page_runs_give_way_to_small_blocks(void **state) {
    (void)state;
    is_given(100 * KIB, SMALL_BYTES, false);
}

static void large_blocks_give_way_to_small_blocks(void **state) {
    (void)state;
    is_given(4 * MIB, SMALL_BYTES, false);
}

static void large_blocks_give_way_to_a_larger_one(void **state) {
    (void)state;
    is_given(4 * MIB, ASKED_BYTES, false);
}

/* A block of which next to nothing was written to grows, and cannot do so where it lies. */
static int grow_sparse(void *unused) {
    (void)unused;
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1);
    char *block = malloc(GROWN_BYTES);
    void *large = launder(malloc(KEPT_BYTES));
    CHECK(block != NULL && large != NULL);
    block[0] = 1;
    block[GROWN_BYTES - 1] = 2;
    memset(large, 1, KEPT_BYTES);
    (void)mmap(block + malloc_usable_size(block), 1, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    free(large);
    CHECK(rss_bytes() > KEPT_BYTES);
    limit_room(ROOM_BYTES);
    block = realloc(block, ASKED_BYTES);
    CHECK(block != NULL && block[0] == 1 && block[GROWN_BYTES - 1] == 2);
    CHECK(rss_bytes() < KEPT_BYTES / 4);
    is_refused(false);
    check_heap();
    return 0;
}

static void large_blocks_give_way_to_one_that_grows(void **state) {
    static struct child child;
    (void)state;
    REQUIRE_HAK();
    child = (struct child){.function = grow_sparse};
    child_run(&child);
    assert_child_succeeded(&child);
}

static void what_a_sleeping_thread_freed_gives_way(void **state) {
    (void)state;
    is_given(SMALL_BYTES, ASKED_BYTES, true);
}

static void what_a_sleeping_thread_freed_gives_way_to_small_blocks(void **state) {
    (void)state;
    is_given(100 * KIB, SMALL_BYTES, true);
}

#define STAYS 8u /* one block in so many stays */

static void *fill_and_sleep(void *blocks) {
    fill_blocks(blocks, KEPT_BYTES / SMALL_BYTES, SMALL_BYTES);
    sleep_on();
    return NULL;
}

/* Its slabs wait for the sleeper, since others freed most of what is in them. */
static int ask_for_what_waits(void *unused) {
    (void)unused;
    size_t count = KEPT_BYTES / SMALL_BYTES;
    void **blocks = map_own(count * sizeof *blocks);
    run_until_asleep(fill_and_sleep, blocks);
    (void)free_blocks(blocks, count, STAYS);
    limit_room(ROOM_BYTES);
    CHECK(can_have(SMALL_BYTES));
    check_heap();
    return 0;
}

static void what_others_freed_in_a_sleepers_slabs_is_given(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(ask_for_what_waits);
}

/*
 * A class that misses four times in a row has three slabs fetched for it ahead of need. A thread stops right
 * after that: they are wholly free, and nobody's but its own.
 */
static void *have_slabs_fetched_ahead(void *unused) {
    for (unsigned i = 0; i < 3 * AHEAD_SLAB_BLOCKS + 1; i++) {
        CHECK(launder(malloc(AHEAD_BYTES)) != NULL);
    }
    sleep_on();
    return unused;
}

/* Asking for the figures gives wholly free slabs back as well, but counts them first: so once, at the end. */
static int count_beside_slabs_fetched_ahead(void *is_asking) {
    run_until_asleep(have_slabs_fetched_ahead, NULL);
    if (is_asking != NULL) {
        limit_room(ROOM_BYTES);
        CHECK(launder(malloc(2 * KEPT_BYTES)) == NULL && errno == ENOMEM);
    }
    struct hak_stats stats = stats_now();
    const struct hak_class_stats *found = stats.classes;
    while (found->block_bytes != AHEAD_BYTES) {
        found++;
    }
    CHECK((found->free_blocks >= 2 * AHEAD_SLAB_BLOCKS) == (is_asking == NULL));
    check_heap();
    return 0;
}

static void slabs_that_a_sleeping_thread_fetched_ahead_give_way(void **state) {
    static struct child child;
    static bool is_asking = true;
    bool *const contexts[] = {NULL, &is_asking}; /* they are there, and then they are not */
    (void)state;
    REQUIRE_HAK();
    for (unsigned i = 0; i < COUNT_OF(contexts); i++) {
        child = (struct child){.function = count_beside_slabs_fetched_ahead, .context = contexts[i]};
        child_run(&child);
        assert_child_succeeded(&child);
    }
}

static void *keep_scattered_and_sleep(void *unused) {
    keep(SMALL_BYTES, true);
    sleep_on();
    return unused;
}

static void *grow(void *block) {
    return realloc(block, ASKED_BYTES);
}

static void *ask_for_aligned(void *unused) {
    (void)unused;
    return memalign(4096, ASKED_BYTES);
}

/* Of what the thread had cached each SuperSlab holds a block: they are free in the child, where it is not. */
static int ask_in_the_child_of_a_fork(void *(*request)(void *block)) {
    void *block = malloc(2 * MIB);
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1);
    run_until_asleep(keep_scattered_and_sleep, NULL);
    pid_t child = fork();
    if (child == 0) {
        limit_room(ROOM_BYTES);
        CHECK(launder(request(block)) != NULL);
        check_heap();
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static int grow_in_the_child(void *unused) {
    (void)unused;
    return ask_in_the_child_of_a_fork(grow);
}

static int ask_for_aligned_in_the_child(void *unused) {
    (void)unused;
    return ask_in_the_child_of_a_fork(ask_for_aligned);
}

static void what_a_lost_thread_had_cached_gives_way(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(grow_in_the_child);
    assert_function_succeeds(ask_for_aligned_in_the_child);
}

/* More than there are addresses: nothing that is kept would help. */
static int ask_for_the_impossible(void *unused) {
    (void)unused;
    void *block = malloc(64);
    keep(64, false);
    size_t cached_bytes = stats_now().cached_bytes;
    CHECK(block != NULL && cached_bytes != 0);
    for (unsigned bits = 48; bits < 64; bits++) {
        size_t bytes = ((size_t)1 << bits) + 1;
        CHECK(launder(malloc(bytes)) == NULL && errno == ENOMEM);
        CHECK(launder(calloc(2, bytes / 2 + 1)) == NULL && errno == ENOMEM);
        CHECK(launder(realloc(block, bytes)) == NULL && errno == ENOMEM);
        CHECK(launder(memalign(4096, bytes)) == NULL && errno == ENOMEM);
    }
    CHECK(stats_now().cached_bytes == cached_bytes);
    return 0;
}

static void what_cannot_be_had_costs_no_cache(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(ask_for_the_impossible);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slabs_give_way_to_a_large_block),
        cmocka_unit_test(slabs_give_way_to_page_runs),
        cmocka_unit_test(page_runs_give_way_to_small_blocks),
        cmocka_unit_test(large_blocks_give_way_to_small_blocks),
        cmocka_unit_test(large_blocks_give_way_to_a_larger_one),
        cmocka_unit_test(large_blocks_give_way_to_one_that_grows),
        cmocka_unit_test(what_a_sleeping_thread_freed_gives_way),
        cmocka_unit_test(what_a_sleeping_thread_freed_gives_way_to_small_blocks),
        cmocka_unit_test(slabs_that_a_sleeping_thread_fetched_ahead_give_way),
        cmocka_unit_test(what_others_freed_in_a_sleepers_slabs_is_given),
        cmocka_unit_test(what_a_lost_thread_had_cached_gives_way),
        cmocka_unit_test(what_cannot_be_had_costs_no_cache),
    };
    return cmocka_run_group_tests_name("reclaim", tests, NULL, heap_is_sound);
}
