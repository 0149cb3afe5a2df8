/*
 * cache_test.c - a class's cache from cold to its bound, what it spills and in which order it hands out; the
 * warm pool; slabs of threads that are gone and slabs that others free into.
 *
 * Each test has classes of its own, so that it meets them cold.
 *
 * suite: limit 60 s
 */
#include "hakmem.h"
#include "heap/heap.h"
#include "heap/supply.h"
#include "heap/unified_cache.h"
#include "meta/classes.h"
#include "slab/orphans.h"
#include "slab/purge.h"
#include "slab/slab_word.h"
#include "slab/superslab.h"
#include "support/blocks.h"
#include "support/classes.h"
#include "support/debt.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>

/*
 * Each test has classes of its own, which it meets cold. A cache of blocks of 64 bytes has 2046 at most, of
 * 1024 bytes 128 KiB, of 8 and 16 KiB 16 and 8, of 32 KiB as few as there can be; slabs hold 16 of 4 KiB, 9
 * of 7 KiB.
 */

#define HEAT        32u
#define FIRST       30u
#define BLOCKS_MAX  4096u
#define WARM_SLABS  24u
#define WARM_BLOCKS 16u

static void *blocks[BLOCKS_MAX];

static void take_blocks(unsigned class_idx, unsigned count) {
    CHECK(count <= BLOCKS_MAX);
    blocks_take(blocks, count, hak_class_block_bytes[class_idx]);
}

static void free_blocks(unsigned from, unsigned to) {
    blocks_free(&blocks[from], to - from);
}

/* At least `count` blocks and as many more as make the cache empty. */
static unsigned take_until_empty(struct heap *heap, unsigned class_idx, unsigned count) {
    unsigned have = 0;
    while (have < count || hak_cache_count(heap, class_idx) != 0) {
        CHECK(have < BLOCKS_MAX);
        blocks[have++] = hak_malloc(hak_class_block_bytes[class_idx]);
    }
    return have;
}

static void a_class_is_cold_until_its_heat_is_reached(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_768;
    struct heap *heap = hak_heap_attach();
    const struct class_state *class_state = &heap->classes[c];
    for (unsigned i = 0; i < HEAT / 2; i++) {
        take_blocks(c, 1);
        free_blocks(0, 1);
        assert_null(class_state->array);
        assert_int_equal(class_state->capacity_blocks, 0);
        assert_ptr_equal(hak_tls.top[c], HAK_NO_CACHE_TOP);
    }
    take_blocks(c, 1);
    assert_non_null(class_state->array);
    assert_int_equal(class_state->capacity_blocks, FIRST);
    free_blocks(0, 1);
    assert_ptr_equal((hak_tls.top[c] - 1)->block, blocks[0]);
}

/* Allocates and frees half as much again as the capacity: one ping-pong, and no deep swing. */
static unsigned capacity_after_ping_pong(struct heap *heap, unsigned class_idx) {
    const struct class_state *class_state = &heap->classes[class_idx];
    unsigned count = take_until_empty(heap, class_idx, class_state->capacity_blocks * 3u / 2);
    free_blocks(0, count);
    return class_state->capacity_blocks;
}

static void a_cache_that_ping_pongs_doubles_up_to_its_bound(void **state) {
    (void)state;
    struct heap *heap = hak_heap_attach();
    assert_true(hak_cache_make_hot(heap, CLASS_OF_64, 0));
    assert_int_equal(heap->classes[CLASS_OF_64].capacity_blocks, FIRST);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_64), 62);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_64), 126);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_64), 254);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_64), 510);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_64), 1022);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_64), 2046);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_64), 2046);
    assert_true(hak_cache_make_hot(heap, CLASS_OF_1024, 0));
    assert_int_equal(heap->classes[CLASS_OF_1024].capacity_blocks, FIRST);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_1024), 62);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_1024), 126);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_1024), 128);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_1024), 128);
    assert_true(hak_cache_make_hot(heap, CLASS_OF_32768, 0));
    assert_int_equal(heap->classes[CLASS_OF_32768].capacity_blocks, 4);
    assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_32768), 4);
}

/* Few large blocks: chance alone moves as many to and fro, so the bound in bytes doubles, once, on proof. */
static void cache_of_few_blocks_grows_over_its_bound_on_proof(void **state) {
    (void)state;
    struct heap *heap = hak_heap_attach();
    assert_true(hak_cache_make_hot(heap, CLASS_OF_32768, 0));
    assert_true(hak_cache_make_hot(heap, CLASS_OF_1024, 0));
    (void)capacity_after_ping_pong(heap, CLASS_OF_32768);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_32768), 4);
    }
    for (unsigned i = 0; i < 20; i++) {
        (void)capacity_after_ping_pong(heap, CLASS_OF_32768);
    }
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(capacity_after_ping_pong(heap, CLASS_OF_32768), 8);
        if (i < 16) { /* then it counts as a swing, see width.h */
            assert_in_range(capacity_after_ping_pong(heap, CLASS_OF_1024), FIRST, 128);
        }
    }
    /* What waits in it may pin memory that is to go back: then the bound is as before the proof. */
    unsigned count = take_until_empty(heap, CLASS_OF_32768, 9);
    free_blocks(0, 8);
    assert_int_equal(heap->classes[CLASS_OF_32768].capacity_blocks, 8);
    debt_outlast_a_step();
    free_blocks(8, count);
    assert_int_equal(heap->classes[CLASS_OF_32768].capacity_blocks, 4);
}

static void a_full_cache_spills_the_oldest_half(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_8192;
    const unsigned capacity = 16;
    struct heap *heap = hak_heap_attach();
    struct class_state *class_state = &heap->classes[c];
    assert_true(hak_cache_make_hot(heap, c, 0));
    assert_int_equal(class_state->capacity_blocks, capacity);
    unsigned count = take_until_empty(heap, c, capacity + 1);
    hak_header *oldest = (hak_header *)&hak_slab_of_block(blocks[0])
                             ->map[((uintptr_t)blocks[0] - hak_slab_of_block(blocks[0])->base) / 8192];
    free_blocks(0, capacity);
    uint64_t spills = hak_atomic_load_relaxed(&class_state->counters.cache_spills);
    assert_int_equal(hak_cache_count(heap, c), capacity);
    assert_int_equal(hak_atomic_load_relaxed(oldest), HAK_HEADER_CACHED);
    free_blocks(capacity, capacity + 1);
    assert_int_equal(class_state->capacity_blocks, capacity);
    assert_int_equal(hak_atomic_load_relaxed(&class_state->counters.cache_spills), spills + 1);
    assert_int_equal(hak_atomic_load_relaxed(oldest), HAK_HEADER_FREE);
    assert_int_equal(hak_cache_count(heap, c), capacity / 2 + 1);
    for (unsigned i = 0; i <= capacity / 2; i++) {
        assert_ptr_equal(class_state->array[1 + i].block, blocks[capacity / 2 + i]);
    }
    free_blocks(capacity + 1, count);
}

/* How many blocks a spill leaves of a full cache of 16. */
static unsigned left_by_a_spill(void (*debt)(void)) {
    const unsigned c = CLASS_OF_8192, capacity = 16;
    struct heap *heap = hak_heap_attach();
    unsigned count = take_until_empty(heap, c, capacity + 1);
    free_blocks(0, capacity);
    CHECK(hak_cache_count(heap, c) == capacity);
    debt();
    free_blocks(capacity, capacity + 1);
    unsigned left = hak_cache_count(heap, c) - 1;
    CHECK(!hak_purge_is_owed()); /* nothing was */
    free_blocks(capacity + 1, count);
    return left;
}

/* Another thread gives units back all the time, and looks a moment later whether anything is owed for it. */
static void a_debt_that_has_outlasted_no_step_is_no_reason_to_spill_few(void **state) {
    (void)state;
    assert_int_equal(left_by_a_spill(debt_note), 8);
    assert_int_equal(left_by_a_spill(debt_note), 8);
    assert_int_equal(left_by_a_spill(debt_outlast_a_step), 6); /* and the cache has become narrower */
    assert_int_equal(hak_heap_attach()->classes[CLASS_OF_8192].capacity_blocks, 7);
}

static void the_block_freed_last_comes_first(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_896;
    void *freed[FIRST];
    struct heap *heap = hak_heap_attach();
    assert_true(hak_cache_make_hot(heap, c, 0));
    unsigned count = take_until_empty(heap, c, FIRST);
    for (unsigned i = 0; i < FIRST; i++) {
        freed[i] = blocks[(i * 7) % FIRST];
        hak_free(freed[i]);
    }
    for (unsigned i = FIRST; i != 0; i--) {
        assert_ptr_equal(hak_malloc(hak_class_block_bytes[c]), freed[i - 1]);
    }
    free_blocks(0, count);
}

/* The blocks of one refill, each above the one before. */
static unsigned assert_refill_rises(struct heap *heap, unsigned class_idx, unsigned from) {
    unsigned count = hak_cache_refill(heap, class_idx);
    assert_true(count > 1);
    for (unsigned i = from; i < from + count; i++) {
        blocks[i] = hak_malloc(hak_class_block_bytes[class_idx]);
        assert_true(i == from || (uintptr_t)blocks[i] > (uintptr_t)blocks[i - 1]);
    }
    assert_int_equal(hak_cache_count(heap, class_idx), 0);
    return count;
}

static void a_refill_hands_out_rising_addresses(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_1280;
    struct heap *heap = hak_heap_attach();
    assert_true(hak_cache_make_hot(heap, c, 0));
    unsigned count = assert_refill_rises(heap, c, 0); /* never used ones */
    count += assert_refill_rises(heap, c, count);
    assert_true(count >= 9);
    /* Freed ones, whatever the order: every second of them, from the end. */
    unsigned freed = 0;
    for (unsigned i = count; i > 1; i -= 2, freed++) {
        hak_free(blocks[i - 1]);
        blocks[i - 1] = NULL;
    }
    hak_cache_flush(heap, c, true);
    unsigned again = assert_refill_rises(heap, c, count);
    unsigned reused = 0;
    for (unsigned i = 0; i < again; i++) {
        reused += (uintptr_t)blocks[count + i] < (uintptr_t)blocks[0] + count * 1280;
    }
    assert_int_equal(reused, freed < again ? freed : again);
    free_blocks(0, count + again);
}

static bool has_no_orphans(unsigned class_idx) {
    return blocks_orphaned_slabs(hak_class_block_bytes[class_idx]) == 0;
}

static void the_warm_pool_has_a_bound(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_4096;
    static struct block_ref refs[WARM_SLABS * WARM_BLOCKS], kept[WARM_SLABS];
    struct heap *heap = hak_heap_attach();
    struct class_state *class_state = &heap->classes[c];
    unsigned kept_count = 0;
    blocks_take_refs(heap, c, refs, COUNT_OF(refs));
    hak_supply_flush(heap, c); /* the slabs fetched ahead of need */
    for (unsigned i = 0; i < COUNT_OF(refs); i++) {
        if ((uintptr_t)refs[i].block == hak_slab_of_block(refs[i].block)->base) {
            assert_true(kept_count < WARM_SLABS);
            kept[kept_count++] = refs[i];
        } else {
            (void)hak_blocks_return(&refs[i], 1, heap->id, hak_heap_handle_event, heap);
        }
        assert_true(class_state->warm_count <= HAK_WARM_SLABS_MAX);
    }
    assert_int_equal(kept_count, WARM_SLABS);
    assert_int_equal(class_state->warm_count, HAK_WARM_SLABS_MAX);
    assert_false(has_no_orphans(c));
    (void)hak_blocks_return(kept, kept_count, heap->id, hak_heap_handle_event, heap);
    assert_true(has_no_orphans(c));
}

/* More slabs than it holds, each of which is retired before the next one gets a free block. */
static void hints_of_slabs_that_are_gone_leave_the_warm_pool(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_4096;
    static struct block_ref refs[WARM_SLABS * WARM_BLOCKS];
    struct heap *heap = hak_heap_attach();
    blocks_take_refs(heap, c, refs, COUNT_OF(refs));
    hak_supply_flush(heap, c); /* the slabs fetched ahead of need */
    size_t before = blocks_orphaned_slabs(4096);
    assert_true(before < WARM_SLABS - HAK_WARM_SLABS_MAX);
    for (unsigned i = 0; i < COUNT_OF(refs); i++) {
        (void)hak_blocks_return(&refs[i], 1, heap->id, hak_heap_handle_event, heap);
        assert_true(blocks_orphaned_slabs(4096) <= before);
    }
    assert_true(heap->classes[c].warm_count <= HAK_WARM_SLABS_MAX);
}

/* How many slabs are fetched ahead of need while `slabs` of them are filled. */
static unsigned prefills_of(unsigned class_idx, unsigned slabs) {
    static struct block_ref refs[WARM_SLABS * WARM_BLOCKS];
    struct heap *heap = hak_heap_attach();
    struct front_counts before, after;
    unsigned want = slabs * hak_class_capacity(class_idx);
    CHECK(want <= COUNT_OF(refs));
    hak_heap_sum_counters(class_idx, &before);
    blocks_take_refs(heap, class_idx, refs, want);
    hak_heap_sum_counters(class_idx, &after);
    (void)hak_blocks_return(refs, want, heap->id, hak_heap_handle_event, heap);
    return (unsigned)(after.warm_prefills - before.warm_prefills);
}

static void a_class_that_keeps_missing_fetches_slabs_ahead(void **state) {
    (void)state;
    (void)hak_superslab_trim(0);
    assert_int_equal(prefills_of(CLASS_OF_5120, 4), 3);  /* with the fourth */
    assert_int_equal(prefills_of(CLASS_OF_6144, 4), 0);  /* the first one's units are dirty */
    assert_int_equal(prefills_of(CLASS_OF_16384, 4), 0); /* of two units: they are not easily had */
}

static void *allocate_and_exit(void *unused) {
    (void)unused;
    take_blocks(CLASS_OF_1536, 10);
    return NULL;
}

static void slabs_of_a_thread_that_exited_are_adopted(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_1536;
    struct front_counts before, after;
    pthread_t thread;
    (void)hak_heap_attach();
    assert_true(has_no_orphans(c));
    assert_int_equal(pthread_create(&thread, NULL, allocate_and_exit, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(has_no_orphans(c));
    hak_heap_sum_counters(c, &before);
    assert_int_equal(before.new_slabs, 1);
    void *block = hak_malloc(1536);
    hak_heap_sum_counters(c, &after);
    assert_ptr_equal(hak_slab_of_block(block), hak_slab_of_block(blocks[0]));
    assert_int_equal(after.pool_adoptions, before.pool_adoptions + 1);
    assert_int_equal(after.new_slabs, before.new_slabs);
    assert_true(has_no_orphans(c));
    hak_free(block);
    free_blocks(0, 10);
}

static void *free_eight(void *unused) {
    (void)unused;
    free_blocks(1, 9);
    return NULL;
}

static void remote_frees_of_a_full_slab_come_back_to_the_owner(void **state) {
    (void)state;
    const unsigned c = CLASS_OF_7168;
    struct heap *heap = hak_heap_attach();
    struct front_counts before, after;
    pthread_t thread;
    void *others[9];
    take_blocks(c, 10); /* the tenth is in a second slab */
    struct slab *slab = hak_slab_of_block(blocks[0]);
    assert_ptr_equal(hak_slab_of_block(blocks[8]), slab);
    assert_ptr_not_equal(hak_slab_of_block(blocks[9]), slab);
    assert_int_equal(hak_slab_word_place(hak_atomic_load_relaxed(&slab->word)), HAK_PLACE_NOWHERE);
    assert_int_equal(pthread_create(&thread, NULL, free_eight, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(hak_slab_word_place(hak_atomic_load_relaxed(&slab->word)), HAK_PLACE_LISTED);
    assert_ptr_equal(hak_atomic_load_relaxed(&slab->list), &heap->remote);
    assert_int_equal(hak_slab_word_owner(hak_atomic_load_relaxed(&slab->word)), heap->id);
    hak_heap_sum_counters(c, &before);
    assert_int_equal(before.remote_frees, 8);
    for (unsigned i = 0; i < 9; i++) { /* eight are left in the second slab */
        others[i] = hak_malloc(7168);
        assert_true((hak_slab_of_block(others[i]) == slab) == (i == 8));
    }
    hak_heap_sum_counters(c, &after);
    assert_int_equal(after.new_slabs, before.new_slabs);
    assert_null(hak_atomic_load_relaxed(&slab->list));
    for (unsigned i = 0; i < 9; i++) {
        hak_free(others[i]);
    }
    hak_free(blocks[0]);
    hak_free(blocks[9]);
}

#define TEST(name) cmocka_unit_test_teardown(name, heap_is_sound)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_class_is_cold_until_its_heat_is_reached),
        TEST(a_cache_that_ping_pongs_doubles_up_to_its_bound),
        TEST(cache_of_few_blocks_grows_over_its_bound_on_proof),
        TEST(a_full_cache_spills_the_oldest_half),
        TEST(a_debt_that_has_outlasted_no_step_is_no_reason_to_spill_few),
        TEST(the_block_freed_last_comes_first),
        TEST(a_refill_hands_out_rising_addresses),
        TEST(the_warm_pool_has_a_bound),
        TEST(hints_of_slabs_that_are_gone_leave_the_warm_pool),
        TEST(a_class_that_keeps_missing_fetches_slabs_ahead),
        TEST(slabs_of_a_thread_that_exited_are_adopted),
        TEST(remote_frees_of_a_full_slab_come_back_to_the_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
