/*
 * width_test.c - a class that swings, many blocks allocated in a row and then as many freed, comes to be
 * served by its cache alone; what moves by chance or a little does not; what is wide has bounds, and ends
 * with the swings, with memory that is to go back, with the thread and with the process that a fork left.
 *
 * Each test has classes of its own, so that it meets them cold.
 *
 * suite: limit 60 s
 */
#include "conf/options.h"
#include "hakmem.h"
#include "heap/heap.h"
#include "heap/unified_cache.h"
#include "heap/upkeep.h"
#include "heap/width.h"
#include "meta/classes.h"
#include "slab/purge.h"
#include "slab/retention.h"
#include "slab/superslab_pool.h"
#include "support/blocks.h"
#include "support/child.h"
#include "support/debt.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"
#include "width_kit.h"

#include <malloc.h>
#include <pthread.h>

#define WIDE_CLASSES 10u       /* from that of 1536 bytes on: for the test of what all may have */
#define ALL_WIDER    (4 * MIB) /* than plain, all classes of a thread */
#define SWINGS       20u       /* more than it takes */
#define PROOFS       6u
#define HALF_PROOFS  20u /* eight of them until they count */
#define LOOKS        8u
#define BLOCKS_MAX   8192u

static void *blocks[BLOCKS_MAX];

static void swing(unsigned class_idx, unsigned count) {
    CHECK(count <= BLOCKS_MAX);
    blocks_take(blocks, count, hak_class_block_bytes[class_idx]);
    blocks_free(blocks, count);
}

static void swing_often(unsigned class_idx, unsigned count) {
    for (unsigned i = 0; i < SWINGS; i++) {
        swing(class_idx, count);
    }
}

/* Refills and spills of the class, so far. */
static uint64_t slow_operations(unsigned class_idx) {
    struct front_counts counts;
    hak_heap_sum_counters(class_idx, &counts);
    return counts.cache_misses + counts.cache_spills;
}

static void a_class_that_swings_is_served_by_its_cache(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_512, count = 1300;
    swing_often(c, count);
    assert_int_equal(capacity(c), wide_capacity(c, 3));
    swing(c, count);
    uint64_t before = slow_operations(c);
    swing_often(c, count);
    assert_int_equal(slow_operations(c), before);
}

/* Small ones have a bound in blocks. */
static void more_small_blocks_are_cached(void **state) {
    (void)state;
    swing_often(CLASS_OF_64, 8000);
    assert_int_equal(capacity(CLASS_OF_64), 2 * 2046 + 2);
}

static void the_bound_widens_as_far_as_swings_go(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_1024;
    swing_often(c, 128 * 5 / 2); /* more than one doubling holds */
    assert_int_equal(capacity(c), 512);
    swing_often(c, 128 * 16);
    assert_int_equal(capacity(c), 1024); /* at most three */
}

/* The smallest of the swings in a row counts, and one that is not deep begins the row anew. */
static void each_of_the_swings_has_to_be_deep(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_448;
    const unsigned plain = plain_capacity(c);
    swing_often(c, plain + plain / 4); /* grown to its bound */
    assert_int_equal(capacity(c), plain);
    for (unsigned i = 0; i < SWINGS; i++) {
        for (unsigned deep = 0; deep < PROOFS; deep++) { /* of the last one the refills are missing */
            swing(c, plain * 4);
        }
        swing(c, plain + plain / 4);
    }
    assert_int_equal(capacity(c), plain);
    for (unsigned deep = 0; deep <= PROOFS; deep++) {
        swing(c, deep == 2 ? plain * 5 / 2 : plain * 8);
    }
    swing(c, plain * 8);
    assert_int_equal(capacity(c), wide_capacity(c, 2));
}

static void what_swings_a_little_stays_plain(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_768;
    const unsigned plain = plain_capacity(c);
    for (unsigned i = 0; i < 10; i++) {
        swing_often(c, plain + plain / 16);
    }
    assert_int_equal(capacity(c), plain);
}

static void what_swings_half_as_deep_has_to_do_so_longer(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_320;
    const unsigned plain = plain_capacity(c), deeper = plain * 4 / 3;
    swing_often(c, plain); /* grown to its bound */
    for (unsigned times = 0; times < 2; times++) {
        swing(c, plain * 4);
        for (unsigned i = 0; i + 2 < HALF_PROOFS; i++) {
            swing(c, deeper);
        }
        assert_int_equal(capacity(c), plain);
    }
    swing(c, plain * 4);
    for (unsigned i = 0; i <= HALF_PROOFS + 1; i++) {
        swing(c, deeper);
    }
    assert_int_equal(capacity(c), wide_capacity(c, 1));
    uint64_t before = slow_operations(c);
    swing_often(c, deeper);
    assert_in_range(slow_operations(c) - before, 0, 2);
}

/* A quarter less than the capacity: the first spill takes less than what the refills bring. */
static void what_swings_within_the_capacity_comes_to_rest(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_32, count = 1600;
    swing_often(c, count);
    uint64_t before = slow_operations(c);
    swing_often(c, count);
    assert_in_range(slow_operations(c) - before, 0, 2);
}

/* What swung by little in many blocks may have come down to few, of which a part is none. */
static void a_spill_makes_room_in_a_cache_of_few_blocks(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_32768;
    struct heap *heap = hak_heap_attach();
    assert_true(hak_cache_make_hot(heap, c, 0));
    heap->classes[c].width.shallow = 8;
    assert_true(hak_width_spill(heap, c, 64) < 64); /* in parts */
    const unsigned count = capacity(c) + 1;
    blocks_take(blocks, count, hak_class_block_bytes[c]);
    hak_cache_flush(heap, c, true);
    heap->classes[c].refills_in_row = 0; /* a row of frees goes on */
    blocks_free(blocks, count);
    assert_in_range(hak_cache_count(heap, c), 1, capacity(c));
}

static void what_moves_by_chance_stays_plain(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_896;
    struct rng rng = rng_seeded(5);
    memset(blocks, 0, sizeof blocks);
    uint64_t before = slow_operations(c);
    for (unsigned i = 0; i < 1000000; i++) {
        void **slot = &blocks[rng_below(&rng, 4096)];
        if (*slot != NULL) {
            hak_free(*slot);
            *slot = NULL;
        } else {
            *slot = hak_malloc(896);
        }
    }
    assert_true(slow_operations(c) > before + 50); /* it does go over the bound */
    assert_int_equal(capacity(c), plain_capacity(c));
    blocks_free(blocks, BLOCKS_MAX);
}

/* Fills its cache with what swings. Then whoever frees while memory is to go back takes it down again. */
static void memory_that_is_to_go_back_ends_it_step_by_step(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_640;
    const unsigned plain = plain_capacity(c);
    swing_often(c, plain * 8);
    unsigned before = capacity(c);
    assert_int_equal(before, wide_capacity(c, 3));
    blocks_take(blocks, BLOCKS_MAX, 640);
    unsigned freed = 0;
    for (unsigned step = 1; step <= 3; step++) {
        while (freed < BLOCKS_MAX && capacity(c) == before) {
            debt_outlast_a_step();
            hak_free(blocks[freed++]);
        }
        assert_int_equal(capacity(c), (before - 2) / 2); /* an array is of whole cache lines */
        before = capacity(c);
    }
    assert_int_equal(hak_heap_attach()->wide & UINT64_C(1) << c, 0);
    blocks_free(&blocks[freed], BLOCKS_MAX - freed);
}

/* Allocations of another class that its cache serves. */
static void work_elsewhere(unsigned allocations) {
    for (unsigned i = 0; i < allocations; i++) {
        hak_free(hak_malloc(16));
    }
}

static void a_class_that_has_stopped_swinging_is_narrowed(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_384;
    const unsigned plain = plain_capacity(c);
    struct heap *heap = hak_heap_attach();
    swing_often(c, plain * 8);
    assert_int_equal(capacity(c), wide_capacity(c, 3));
    assert_true(hak_cache_count(heap, c) > plain * 4);
    /* As long as it swings it stays. */
    for (unsigned i = 0; i < 2 * LOOKS; i++) {
        for (unsigned swings = 0; swings * plain * 8 < HAK_UPKEEP_ALLOCATIONS; swings++) {
            swing(c, plain * 8);
            assert_int_equal(capacity(c), wide_capacity(c, 3));
            work_elsewhere(777); /* or else each look might come at the same point of the swing */
        }
    }
    work_elsewhere(LOOKS * 4 * HAK_UPKEEP_ALLOCATIONS);
    assert_int_equal(capacity(c), plain);
    assert_in_range(hak_cache_count(heap, c), 1, plain);
    assert_int_equal(heap->wide & UINT64_C(1) << c, 0);
}

/* Guard sampling sets for itself when the next allocation is slow. */
static void it_is_narrowed_in_a_process_that_samples_too(void **state) {
    (void)state;
    swing_often(CLASS_OF_160, 1500);
    assert_true(capacity(CLASS_OF_160) > plain_capacity(CLASS_OF_160));
    for (unsigned i = 0; i < 4 * LOOKS; i++) {
        hak_tls.until_slow = HAK_UPKEEP_ALLOCATIONS;
        hak_upkeep(hak_heap_attach(), HAK_NEVER_SLOW);
    }
    hak_tls.until_slow = 0;
    assert_int_equal(capacity(CLASS_OF_160), plain_capacity(CLASS_OF_160));
}

static void swing_in_many_classes(void) {
    for (unsigned c = CLASS_OF_1536; c < CLASS_OF_1536 + WIDE_CLASSES; c++) {
        swing_often(c, plain_capacity(c) * 9);
    }
}

/* By how much those classes may cache more than without proof. */
static size_t wider_bytes(unsigned *wide_classes) {
    size_t bytes = 0;
    *wide_classes = 0;
    for (unsigned c = CLASS_OF_1536; c < CLASS_OF_1536 + WIDE_CLASSES; c++) {
        unsigned plain = plain_capacity(c);
        unsigned more = capacity(c) > plain ? capacity(c) - plain : 0;
        bytes += (size_t)more * hak_class_block_bytes[c];
        *wide_classes += more > plain; /* once doubled is what chance may prove for few blocks */
    }
    return bytes;
}

static void *be_wide_alone(void *unused) {
    unsigned wide_classes;
    swing_in_many_classes();
    CHECK(wider_bytes(&wide_classes) <= ALL_WIDER + WIDE_CLASSES * PLAIN_BYTES);
    CHECK(wide_classes >= 4 && wide_classes < WIDE_CLASSES);
    CHECK(hak_heap_attach()->wide != 0);
    return unused;
}

#define THREADS 24u /* which could have 4 MiB each */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all_wide;

static void *be_wide_with_others(void *unused) {
    pthread_mutex_lock(&turn); /* two that look at what is left at the same moment may both take it */
    swing_in_many_classes();
    pthread_mutex_unlock(&turn);
    pthread_barrier_wait(&all_wide);
    pthread_barrier_wait(&all_wide);
    return unused;
}

/* What caches keep on proof is within HAKMEM_RETAIN_MB, together with what floors are raised by. */
static void all_threads_together_have_a_bound(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    size_t raised_bytes = 0;
    (void)malloc_trim(0); /* what this thread's own caches keep */
    assert_int_equal(hak_retention_raised_bytes(HAK_RETAINER_CACHES), 0); /* those that were are gone */
    assert_int_equal(pthread_barrier_init(&all_wide, NULL, THREADS + 1), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, be_wide_with_others, NULL), 0);
    }
    pthread_barrier_wait(&all_wide);
    size_t wider_bytes = hak_retention_raised_bytes(HAK_RETAINER_CACHES);
    for (unsigned who = 0; who < HAK_RETAINERS; who++) {
        raised_bytes += hak_retention_raised_bytes(who);
    }
    pthread_barrier_wait(&all_wide);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    print_message("%zu KiB wider, %zu KiB with what floors are raised by\n", wider_bytes / KIB,
                  raised_bytes / KIB);
    assert_true(wider_bytes > 2 * ALL_WIDER);
    assert_in_range(raised_bytes, wider_bytes, hak_options.retain_mb * MIB);
    assert_int_equal(hak_retention_raised_bytes(HAK_RETAINER_CACHES), 0);
}

static void *note_heap(void *heap) {
    *(struct heap **)heap = hak_heap_attach();
    return NULL;
}

static void all_classes_of_a_thread_have_a_bound_that_ends_with_it(void **state) {
    (void)state;
    pthread_t thread;
    struct heap *heap = NULL;
    assert_int_equal(hak_options.base_floor_kib, ALL_WIDER / 4 / KIB);
    assert_int_equal(pthread_create(&thread, NULL, be_wide_alone, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, note_heap, &heap), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(heap->wide, 0);
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        assert_int_equal(heap->classes[c].width.doublings, 0);
    }
}

static pthread_barrier_t barrier;
static struct heap *others_heap;

static void *swing_and_stay(void *unused) {
    swing_often(CLASS_OF_1280, 1000);
    CHECK(capacity(CLASS_OF_1280) >= 400);
    others_heap = hak_heap_attach();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

static int check_that_it_ended(void *unused) {
    (void)unused;
    hak_free(hak_malloc(32768)); /* a slow operation: after it others' heaps are free */
    CHECK(others_heap->wide == 0 && others_heap->classes[CLASS_OF_1280].width.doublings == 0);
    CHECK(hak_retention_raised_bytes(HAK_RETAINER_CACHES) == 0);
    return 0;
}

static void it_ends_in_the_child_of_a_fork(void **state) {
    (void)state;
    pthread_t thread;
    struct child child = {.function = check_that_it_ended};
    /* Nothing that is spilled has to go back, and all may be kept, whatever earlier tests have proved, or are
     * about to: what they freed a moment ago is taken again here. */
    hak_purge_set_floor(GIB);
    hak_superslab_pool.retention.raised_bytes = 0;
    hak_superslab_pool.retention.proofs = 0;
    hak_retention_note_raised(HAK_RETAINER_SLABS, 0);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, swing_and_stay, NULL), 0);
    pthread_barrier_wait(&barrier);
    hak_retention_note_wider(-(ptrdiff_t)MIB); /* as if it were about to narrow by so much */
    child_run(&child);
    hak_retention_note_wider((ptrdiff_t)MIB);
    pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_child_succeeded(&child);
}

#define TEST(name) cmocka_unit_test_teardown(name, heap_is_sound)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_class_that_swings_is_served_by_its_cache),
        TEST(more_small_blocks_are_cached),
        TEST(the_bound_widens_as_far_as_swings_go),
        TEST(each_of_the_swings_has_to_be_deep),
        TEST(what_swings_a_little_stays_plain),
        TEST(what_swings_half_as_deep_has_to_do_so_longer),
        TEST(what_swings_within_the_capacity_comes_to_rest),
        TEST(a_spill_makes_room_in_a_cache_of_few_blocks),
        TEST(what_moves_by_chance_stays_plain),
        TEST(memory_that_is_to_go_back_ends_it_step_by_step),
        TEST(a_class_that_has_stopped_swinging_is_narrowed),
        TEST(it_is_narrowed_in_a_process_that_samples_too),
        TEST(all_classes_of_a_thread_have_a_bound_that_ends_with_it),
        TEST(all_threads_together_have_a_bound),
        TEST(it_ends_in_the_child_of_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
