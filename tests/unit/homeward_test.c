/*
 * homeward_test.c - blocks of other threads' slabs: they are counted in bulk, and small ones are not handed
 * out by the thread that freed them; and the tags of words, which tell them from a thread's own.
 *
 * suite: limit 60 s
 */
#include "conf/options.h"
#include "hakmem.h"
#include "header_kit.h"
#include "heap/heap.h"
#include "heap/homeward.h"
#include "heap/unified_cache.h"
#include "meta/classes.h"
#include "slab/purge.h"
#include "slab/slab_word.h"
#include "support/blocks.h"
#include "support/debt.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS         300u /* more than twice a batch */
#define BATCH          128u
#define BATCH_IN_DEBT  4u
#define HELD_BYTES_MAX ((size_t)64 * 1024)

static void *blocks[BLOCKS];

static void take_blocks(size_t bytes, unsigned count) {
    blocks_take(blocks, count, bytes);
}

static unsigned header_at(const void *block) {
    return header_value(header_of(block));
}

static unsigned count_headers(unsigned value) {
    unsigned count = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        count += header_at(blocks[i]) == value;
    }
    return count;
}

static int counted_in_slab_of(const void *block) {
    /* relaxed: nobody else counts */
    return hak_slab_word_count(hak_atomic_load_relaxed(&hak_slab_of_block(block)->word));
}

/* What the words of all slabs of the blocks say. */
static int counted_blocks(void) {
    const struct slab *seen = NULL;
    int sum = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        const struct slab *slab = hak_slab_of_block(blocks[i]);
        if (slab != seen) {
            sum += counted_in_slab_of(blocks[i]);
        }
        seen = slab;
    }
    return sum;
}

static void on_thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* ---- the batch ---- */

static void *free_some_and_look(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    int counted = counted_blocks();
    for (unsigned i = 0; i < BATCH - 1; i++) {
        hak_free(blocks[i]);
    }
    CHECK(heap->homeward.count == BATCH - 1);
    CHECK(count_headers(HAK_HEADER_FREE) == BATCH - 1);
    CHECK(counted_blocks() == counted);
    hak_free(blocks[BATCH - 1]);
    CHECK(heap->homeward.count == 0);
    CHECK(count_headers(HAK_HEADER_FREE) == BATCH);
    CHECK(counted_blocks() == counted + (int)BATCH);
    for (unsigned i = BATCH; i < BATCH + 5; i++) {
        hak_free(blocks[i]);
    }
    CHECK(heap->homeward.count == 5);
    return NULL;
}

static void look_at_a_batch(void) {
    take_blocks(48, BLOCKS);
    on_thread(free_some_and_look, NULL);
    assert_int_equal(count_headers(HAK_HEADER_FREE), BATCH + 5);
    for (unsigned i = BATCH + 5; i < BLOCKS; i++) {
        hak_free(blocks[i]);
    }
}

static void foreign_blocks_go_home_in_bulk_and_at_exit(void **state) {
    (void)state;
    look_at_a_batch();
}

/* ---- many threads ---- */

#define THREADS    100u
#define EACH_FREES 100u
#define OF_ALL     4096u /* blocks */

static pthread_barrier_t step;
static void *shared_out[THREADS][EACH_FREES];

static void *free_and_stay(void *mine) {
    struct heap *heap = hak_heap_attach();
    CHECK(heap != NULL);
    (void)pthread_barrier_wait(&step); /* all are there */
    for (unsigned i = 0; i < EACH_FREES; i++) {
        hak_free(((void **)mine)[i]);
    }
    (void)pthread_barrier_wait(&step);
    (void)pthread_barrier_wait(&step);
    return NULL;
}

/* What is put off may keep slabs, so it does not grow with the number of threads that sleep. */
static void many_threads_put_off_no_more_than_few(void **state) {
    (void)state;
    static pthread_t threads[THREADS];
    assert_int_equal(pthread_barrier_init(&step, NULL, THREADS + 1), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        blocks_take(shared_out[i], EACH_FREES, 64);
        assert_int_equal(pthread_create(&threads[i], NULL, free_and_stay, shared_out[i]), 0);
    }
    (void)pthread_barrier_wait(&step);
    (void)pthread_barrier_wait(&step);
    assert_in_range(hak_homeward_uncounted(), 1, OF_ALL);
    (void)pthread_barrier_wait(&step);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(hak_homeward_uncounted(), 0);
    look_at_a_batch(); /* whole again, now that they are gone */
}

static void *free_large_ones(void *bytes) {
    struct heap *heap = hak_heap_attach();
    size_t class_bytes = hak_class_block_bytes[hak_class_of(*(size_t *)bytes)];
    unsigned fit = (unsigned)((HELD_BYTES_MAX + class_bytes - 1) / class_bytes);
    for (unsigned i = 0; i < fit; i++) {
        CHECK(heap->homeward.count == i);
        hak_free(blocks[i]);
    }
    CHECK(heap->homeward.count == 0);
    CHECK(heap->homeward.bytes_left == (int64_t)HELD_BYTES_MAX);
    for (unsigned i = fit; i < 64; i++) {
        hak_free(blocks[i]);
    }
    return NULL;
}

static void a_batch_holds_few_bytes_back(void **state) {
    (void)state;
    size_t sizes[] = {3000, 9000, 32768};
    for (size_t i = 0; i < HAK_COUNT_OF(sizes); i++) {
        take_blocks(sizes[i], 64);
        on_thread(free_large_ones, &sizes[i]);
    }
}

/* The profiles' bounds: the options are read-only, but for this. */
static void a_profile_says_how_many_bytes(void **state) {
    (void)state;
    static const struct {
        uint32_t profile;
        int64_t bytes;
    } rows[] = {{HAK_PROFILE_CONSERVATIVE, 8 * 1024},
                {HAK_PROFILE_THROUGHPUT, 128 * 1024},
                {HAK_PROFILE_DEFAULT, HELD_BYTES_MAX}};
    assert_int_equal(mprotect(&hak_options, sizeof hak_options, PROT_READ | PROT_WRITE), 0);
    for (size_t i = 0; i < HAK_COUNT_OF(rows); i++) {
        hak_options.tiny_profile = rows[i].profile;
        hak_homeward_flush(hak_heap_attach());
        assert_int_equal(hak_heap_attach()->homeward.bytes_left, rows[i].bytes);
    }
    assert_int_equal(mprotect(&hak_options, sizeof hak_options, PROT_READ), 0);
}

static void *free_in_debt(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    debt_note();               /* be it that nobody has looked at it yet: these may be what it waits for */
    hak_homeward_forget(heap); /* the next batch begins in debt */
    for (unsigned i = 0; i < BATCH_IN_DEBT; i++) {
        CHECK(heap->homeward.count == i);
        hak_free(blocks[i]);
    }
    CHECK(heap->homeward.count == 0);
    CHECK(!hak_purge_is_owed()); /* nothing was */
    for (unsigned i = 0; i < BATCH - 1; i++) {
        hak_free(blocks[BATCH_IN_DEBT + i]);
    }
    CHECK(heap->homeward.count == BATCH - 1);
    return NULL;
}

static void few_are_put_off_while_memory_is_given_back(void **state) {
    (void)state;
    take_blocks(48, BLOCKS);
    on_thread(free_in_debt, NULL);
    for (unsigned i = BATCH_IN_DEBT + BATCH - 1; i < BLOCKS; i++) {
        hak_free(blocks[i]);
    }
}

/* Two blocks of two classes whose units share a slot of the tally. */
static struct shared_slot {
    void *first;
    void *second;
} shared;

static bool share_slot(const void *a, const void *b) {
    return (uintptr_t)a >> HAK_UNIT_SHIFT != (uintptr_t)b >> HAK_UNIT_SHIFT &&
           hak_tally_slot(a) == hak_tally_slot(b);
}

static void choose_shared(void *small) {
    for (unsigned i = 0; i < BLOCKS && shared.first == NULL; i++) {
        if (share_slot(small, blocks[i])) {
            shared = (struct shared_slot){small, blocks[i]};
        }
    }
}

static unsigned class_of(const void *block) {
    return hak_word_row(hak_registry_word(block))->class_idx;
}

static uint64_t remote_frees(const struct heap *heap, unsigned class_idx) {
    /* relaxed: this thread's */
    return hak_atomic_load_relaxed(&heap->classes[class_idx].counters.remote_frees);
}

static void *free_shared(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    unsigned first_class = class_of(shared.first), second_class = class_of(shared.second);
    uint64_t first = remote_frees(heap, first_class);
    uint64_t second = remote_frees(heap, second_class);
    int counted = counted_in_slab_of(shared.first);
    hak_free(shared.first);
    CHECK(remote_frees(heap, first_class) == first);
    CHECK(counted_in_slab_of(shared.first) == counted);
    hak_free(shared.second);
    CHECK(remote_frees(heap, first_class) == first + 1);
    CHECK(remote_frees(heap, second_class) == second);
    CHECK(counted_in_slab_of(shared.first) == counted + 1);
    hak_homeward_flush(heap);
    CHECK(remote_frees(heap, first_class) == first + 1);
    CHECK(remote_frees(heap, second_class) == second + 1);
    return NULL;
}

static void a_unit_that_needs_the_slot_of_another_counts_that(void **state) {
    (void)state;
    void *small = hak_malloc(48);
    take_blocks(16384, BLOCKS);
    choose_shared(small);
    assert_non_null(shared.first);
    on_thread(free_shared, NULL);
    for (unsigned i = 0; i < BLOCKS; i++) {
        if (blocks[i] != shared.second) {
            hak_free(blocks[i]);
        }
    }
}

/* As the child of a fork does, which counts all slabs anew: here two blocks are lost to their slab's count.
 */
static void *free_forget_and_free(void *slab) {
    struct heap *heap = hak_heap_attach();
    int counted = counted_in_slab_of(blocks[0]);
    hak_free(blocks[0]);
    hak_free(blocks[1]);
    hak_homeward_forget(heap);
    CHECK(heap->homeward.count == 0);
    hak_free(blocks[2]);
    hak_homeward_flush(heap);
    CHECK(counted_in_slab_of(blocks[0]) == counted + 1);
    CHECK(!hak_tally_count(blocks[0], 2, hak_slab_owner(slab), hak_heap_handle_event, heap));
    return NULL;
}

static void what_is_forgotten_is_not_counted_later(void **state) {
    (void)state;
    take_blocks(48, BLOCKS);
    on_thread(free_forget_and_free, hak_slab_of_block(blocks[0]));
    for (unsigned i = 3; i < BLOCKS; i++) {
        hak_free(blocks[i]);
    }
}

static void *take_one(void *block) {
    *(void **)block = hak_malloc(48);
    return NULL;
}

/* The main thread's heap is the first of all. */
static void what_any_heap_puts_off_is_known(void **state) {
    (void)state;
    void *block;
    assert_int_equal(hak_heap_attach()->id, 1);
    hak_homeward_flush(hak_heap_attach());
    assert_int_equal(hak_homeward_uncounted(), 0);
    on_thread(take_one, &block);
    hak_free(block);
    assert_int_equal(hak_homeward_uncounted(), 1);
    hak_homeward_flush(hak_heap_attach());
    assert_int_equal(hak_homeward_uncounted(), 0);
}

static void *free_a_few_and_trim(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < 7; i++) {
        hak_free(blocks[i]);
    }
    int counted = counted_blocks();
    CHECK(count_headers(HAK_HEADER_FREE) == 7);
    (void)hak_trim(0);
    CHECK(counted_blocks() == counted + 7);
    return NULL;
}

static void *free_some_and_hold(void *barrier) {
    for (unsigned i = 0; i < 9; i++) {
        hak_free(blocks[i]);
    }
    (void)pthread_barrier_wait(barrier);
    (void)pthread_barrier_wait(barrier);
    return NULL;
}

/* Another thread has freed nine and sleeps: the maps and the words differ by them, and that is in order. */
static void verify_knows_of_counts_that_are_put_off(void **state) {
    (void)state;
    char why[200];
    pthread_t thread;
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    take_blocks(80, BLOCKS);
    assert_int_equal(pthread_create(&thread, NULL, free_some_and_hold, &barrier), 0);
    (void)pthread_barrier_wait(&barrier);
    int result = hak_verify(why, sizeof why);
    assert_string_equal(why, "");
    assert_int_equal(result, 0);
    (void)pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&barrier), 0);
    for (unsigned i = 9; i < BLOCKS; i++) {
        hak_free(blocks[i]);
    }
}

static void a_trim_sends_a_batch_home(void **state) {
    (void)state;
    take_blocks(80, BLOCKS);
    on_thread(free_a_few_and_trim, NULL);
    for (unsigned i = 7; i < BLOCKS; i++) {
        hak_free(blocks[i]);
    }
}

/* ---- who gets a block ---- */

static void *free_one_and_allocate(void *foreign) {
    enum { OWN = 400 };
    static void *own[OWN];
    for (unsigned i = 0; i < OWN; i++) { /* makes the class hot here */
        own[i] = hak_malloc(96);
    }
    for (unsigned i = 0; i < OWN; i++) {
        hak_free(own[i]);
    }
    hak_free(foreign);
    for (unsigned i = 0; i < OWN; i++) {
        own[i] = hak_malloc(96);
        CHECK(own[i] != foreign);
    }
    for (unsigned i = 0; i < OWN; i++) {
        hak_free(own[i]);
    }
    return NULL;
}

/* Passive false sharing: what a stranger frees is not what it gets next. */
static void a_foreign_block_is_not_handed_out_where_it_was_freed(void **state) {
    (void)state;
    take_blocks(96, BLOCKS);
    on_thread(free_one_and_allocate, blocks[0]);
    for (unsigned i = 1; i < BLOCKS; i++) {
        hak_free(blocks[i]);
    }
}

/* The first class whose blocks may stay where they are freed. */
static unsigned first_larger_class(void) {
    return hak_class_of(HAK_GOES_HOME_MAX_BYTES) + 1;
}

/* Blocks of the first class above the bound if is_above, else of the last that goes home. */
static size_t bytes_at_bound(bool is_above) {
    return hak_class_block_bytes[first_larger_class() - !is_above];
}

/* As a thread does that replaces blocks one by one. */
static void allocate_and_free(void *foreign) {
    hak_free(hak_malloc(16));
    hak_free(foreign);
}

static void *free_one_and_see_it_go(void *foreign) {
    unsigned class_idx = class_of(foreign);
    CHECK(hak_cache_make_hot(hak_heap_attach(), class_idx, 0));
    allocate_and_free(foreign);
    CHECK(header_at(foreign) == HAK_HEADER_FREE);
    CHECK(hak_heap_attach()->homeward.count == 1);
    return NULL;
}

static void *free_one_and_get_it_again(void *foreign) {
    struct heap *heap = hak_heap_attach();
    unsigned class_idx = class_of(foreign);
    CHECK(hak_cache_make_hot(heap, class_idx, 0));
    allocate_and_free(foreign);
    CHECK(header_at(foreign) == HAK_HEADER_CACHED);
    CHECK(heap->homeward.count == 0);
    CHECK(hak_malloc(hak_class_block_bytes[class_idx]) == foreign);
    CHECK(hak_cache_count(heap, class_idx) == 0);
    hak_free(foreign);
    return NULL;
}

/* Of many cache lines only the header's is shared. The last block is in a further unit where slabs have some.
 */
static void a_block_of_many_lines_is_handed_out_where_it_was_freed(void **state) {
    (void)state;
    size_t sizes[] = {bytes_at_bound(true), 4000, HAK_MID_MAX_BYTES};
    for (size_t i = 0; i < HAK_COUNT_OF(sizes); i++) {
        take_blocks(sizes[i], BLOCKS);
        on_thread(free_one_and_get_it_again, blocks[0]);
        on_thread(free_one_and_get_it_again, blocks[BLOCKS - 1]);
        assert_int_equal(header_at(blocks[0]), HAK_HEADER_FREE); /* went home when the thread ended */
        blocks_free(&blocks[1], BLOCKS - 2);
    }
    take_blocks(bytes_at_bound(false), BLOCKS);
    on_thread(free_one_and_see_it_go, blocks[0]);
    blocks_free(&blocks[1], BLOCKS - 1);
}

/* As many as some refills ask for, and within a number of bytes. */
static unsigned room_for_foreign(const struct class_state *state, size_t block_bytes) {
    unsigned few = (unsigned)((HAK_STAYING_BYTES_MAX + block_bytes - 1) / block_bytes);
    unsigned some = state->refill_blocks * HAK_STAYING_REFILLS_MAX;
    return few < some ? few : some;
}

static void *free_more_than_refills(void *is_for_all_refills) {
    struct heap *heap = hak_heap_attach();
    unsigned class_idx = class_of(blocks[0]);
    const struct class_state *state = &heap->classes[class_idx];
    CHECK(hak_cache_make_hot(heap, class_idx, is_for_all_refills != NULL ? 1000 : 0));
    unsigned capacity = state->capacity_blocks;
    unsigned room = room_for_foreign(state, hak_class_block_bytes[class_idx]);
    CHECK(room < capacity && room < BLOCKS / 2);
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK(hak_cache_count(heap, class_idx) == (i < room ? i : room));
        allocate_and_free(blocks[i]);
    }
    CHECK(state->capacity_blocks == capacity);
    CHECK(state->counters.cache_spills == 0);
    for (unsigned i = 0; i < room; i++) {
        CHECK(header_at(blocks[i]) == HAK_HEADER_CACHED);
    }
    return NULL;
}

/* Else a thread that frees what others allocate would fill its cache and spill it, block by block. */
static void no_more_stay_than_three_refills_would_bring(void **state) {
    (void)state;
    take_blocks(1000, BLOCKS);
    on_thread(free_more_than_refills, NULL);
    take_blocks(1000, BLOCKS);
    on_thread(free_more_than_refills, &step); /* a large array, of which the bytes are the bound */
    take_blocks(16384, BLOCKS);
    on_thread(free_more_than_refills, NULL);
}

#define ROWS 3u

static void *free_in_rows(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    unsigned class_idx = class_of(blocks[0]);
    CHECK(hak_cache_make_hot(heap, class_idx, 0));
    CHECK(ROWS * HAK_STAYING_IN_ROW_MAX < room_for_foreign(&heap->classes[class_idx], 1000));
    for (unsigned row = 0; row < ROWS; row++) {
        hak_free(hak_malloc(16));
        for (unsigned i = row * (BLOCKS / ROWS); i < (row + 1) * (BLOCKS / ROWS); i++) {
            hak_free(blocks[i]);
        }
        CHECK(hak_cache_count(heap, class_idx) == (row + 1) * HAK_STAYING_IN_ROW_MAX);
        CHECK(header_at(blocks[row * (BLOCKS / ROWS)]) == HAK_HEADER_CACHED);
        CHECK(header_at(blocks[(row + 1) * (BLOCKS / ROWS) - 1]) == HAK_HEADER_FREE);
    }
    return NULL;
}

/* What is freed in a row was handed over by a thread that has it in its cache. */
static void of_a_row_the_first_two_stay(void **state) {
    (void)state;
    take_blocks(1000, BLOCKS);
    on_thread(free_in_rows, NULL);
    blocks_free(&blocks[ROWS * (BLOCKS / ROWS)], BLOCKS % ROWS);
}

static void *large_foreign;

static void *free_small_before_large(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    CHECK(hak_cache_make_hot(heap, class_of(blocks[0]), 0));
    CHECK(hak_cache_make_hot(heap, class_of(large_foreign), 0));
    allocate_and_free(blocks[0]);
    blocks_free(&blocks[1], BLOCKS - 1);
    hak_free(large_foreign);
    CHECK(header_at(large_foreign) == HAK_HEADER_CACHED);
    return NULL;
}

/* A message and the small blocks that it came with: those go home in any case. */
static void small_blocks_of_a_row_do_not_count(void **state) {
    (void)state;
    take_blocks(48, BLOCKS);
    large_foreign = hak_malloc(1000);
    on_thread(free_small_before_large, NULL);
}

#define LARGER_CLASSES HAK_CLASS_COUNT /* at most */
#define EACH_CLASS     60u
#define HOLDERS        30u

static void *hold_a_heap(void *barrier);
static void *of_classes[LARGER_CLASSES][EACH_CLASS];

/* What the caches of larger blocks may pin. */
static unsigned pinned_pages(struct heap *heap) {
    unsigned pages = 0;
    for (unsigned c = first_larger_class(); c < HAK_CLASS_COUNT; c++) {
        pages += hak_cache_count(heap, c) * (unsigned)hak_homeward_pinned_pages(hak_class_block_bytes[c]);
    }
    return pages;
}

static void *free_some_of_all_classes(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    unsigned share = hak_options.pinned_pages / hak_heap_attached_count();
    unsigned first = first_larger_class();
    for (unsigned c = first; c < HAK_CLASS_COUNT; c++) {
        CHECK(hak_cache_make_hot(heap, c, 1000));
    }
    for (unsigned i = 0; i < EACH_CLASS; i++) {
        for (unsigned c = first; c < HAK_CLASS_COUNT; c++) {
            allocate_and_free(of_classes[c - first][i]);
            CHECK(pinned_pages(heap) <= share);
        }
    }
    CHECK(pinned_pages(heap) == share);
    void *one = hak_malloc(hak_class_block_bytes[first]);
    CHECK(pinned_pages(heap) == share - 1);
    heap->homeward.refusals_left = 0;
    CHECK(!hak_homeward_widen(heap, first + 1)); /* or they would be counted for each block that follows */
    CHECK(heap->homeward.refusals_left != 0);
    hak_free(one);
    hak_trim(0); /* which empties the caches */
    CHECK(pinned_pages(heap) == 0);
    unsigned refused = 0;
    while (!hak_homeward_widen(heap, first)) {
        CHECK(++refused < 100);
    }
    return NULL;
}

/* Threads that seldom allocate keep what stays, of each class that they have ever used. */
static void all_classes_of_all_threads_together_keep_little(void **state) {
    (void)state;
    static pthread_t holders[HOLDERS];
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, HOLDERS + 1), 0);
    for (unsigned i = 0; i < HOLDERS; i++) {
        assert_int_equal(pthread_create(&holders[i], NULL, hold_a_heap, &barrier), 0);
    }
    (void)pthread_barrier_wait(&barrier);
    unsigned first = first_larger_class();
    for (unsigned c = first; c < HAK_CLASS_COUNT; c++) {
        blocks_take(of_classes[c - first], EACH_CLASS, hak_class_block_bytes[c]);
    }
    on_thread(free_some_of_all_classes, NULL);
    (void)pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < HOLDERS; i++) {
        assert_int_equal(pthread_join(holders[i], NULL), 0);
    }
}

static void *free_and_take_again(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    unsigned class_idx = class_of(blocks[0]);
    struct class_state *state = &heap->classes[class_idx];
    CHECK(hak_cache_make_hot(heap, class_idx, 0));
    state->staying_blocks = 0; /* whatever the heap's last thread has left */
    heap->homeward.pages_left = 100;
    allocate_and_free(blocks[0]);
    allocate_and_free(blocks[1]);
    CHECK(state->staying_blocks == 2);
    CHECK(heap->homeward.pages_left == 98);
    for (unsigned i = 0; i < 100000; i++) {
        CHECK(hak_malloc(1000) == blocks[1]);
        hak_free(blocks[1]);
    }
    CHECK(state->staying_blocks == 2);
    CHECK(heap->homeward.pages_left == 98);
    allocate_and_free(blocks[2]);
    CHECK(state->staying_blocks == 3);
    CHECK(heap->homeward.pages_left == 97);
    return NULL;
}

/* Counting what all caches have takes some 400 instructions. */
static void a_block_that_comes_and_goes_takes_of_the_share_once(void **state) {
    (void)state;
    take_blocks(1000, BLOCKS);
    on_thread(free_and_take_again, NULL);
    blocks_free(&blocks[3], BLOCKS - 3);
}

static void *free_and_stay_cold(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    unsigned class_idx = class_of(blocks[0]);
    blocks_free(blocks, BLOCKS - 1);
    CHECK(header_at(blocks[BLOCKS - 2]) == HAK_HEADER_FREE);
    CHECK(heap->classes[class_idx].array == NULL);
    CHECK(heap->homeward.count + remote_frees(heap, class_idx) >= BLOCKS - 1);
    return NULL;
}

static void none_stay_with_a_thread_that_allocates_none(void **state) {
    (void)state;
    take_blocks(1000, BLOCKS);
    on_thread(free_and_stay_cold, NULL);
    hak_free(blocks[BLOCKS - 1]);
}

static void *free_and_fork(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    CHECK(hak_cache_make_hot(heap, class_of(blocks[0]), 0));
    allocate_and_free(blocks[0]);
    CHECK(header_at(blocks[0]) == HAK_HEADER_CACHED);
    pid_t pid = fork();
    if (pid == 0) {
        hak_free(hak_malloc(24)); /* puts the heap right */
        char why[200];
        _exit(header_at(blocks[0]) == HAK_HEADER_FREE && hak_verify(why, sizeof why) == 0 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return NULL;
}

static void a_block_that_stays_is_free_in_a_child(void **state) {
    (void)state;
    take_blocks(1000, BLOCKS);
    on_thread(free_and_fork, NULL);
    blocks_free(&blocks[1], BLOCKS - 1);
}

static void *free_all_of_them(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    unsigned class_idx = class_of(blocks[0]); /* their slabs may be gone in the end */
    uint64_t before = remote_frees(heap, class_idx);
    for (unsigned i = 0; i < BLOCKS; i++) {
        hak_free(blocks[i]);
    }
    hak_homeward_flush(heap);
    CHECK(remote_frees(heap, class_idx) == before + BLOCKS);
    return NULL;
}

/* The same of any unit, by another thread. */
static void foreign_blocks_of_any_unit_go_home(void **state) {
    (void)state;
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        if (hak_class_units[c] > 1) {
            take_blocks(hak_class_block_bytes[c], BLOCKS);
            on_thread(free_all_of_them, NULL);
        }
    }
}

/* Classes whose slabs have several units: whatever unit a block is in, its own thread gets it back at once.
 */
static void own_blocks_of_any_unit_are_handed_out_again_at_once(void **state) {
    (void)state;
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        CHECK(hak_cache_make_hot(hak_heap_attach(), c, 0));
        size_t bytes = hak_class_block_bytes[c];
        take_blocks(bytes, 32);
        for (unsigned i = 0; i < 32; i++) {
            void *again[2];
            hak_free(blocks[i]);
            again[0] = hak_malloc(bytes);
            assert_ptr_equal(again[0], blocks[i]);
        }
        for (unsigned i = 0; i < 32; i++) {
            hak_free(blocks[i]);
        }
        hak_trim(0);
    }
}

/* ---- tags ---- */

static void *take_and_exit(void *unused) {
    (void)unused;
    take_blocks(1792, 10);
    return NULL;
}

static void *adopt_and_free(void *unused) {
    (void)unused;
    struct heap *heap = hak_heap_attach();
    void *mine = hak_malloc(1792);
    CHECK(hak_slab_of_block(mine) == hak_slab_of_block(blocks[0]));
    CHECK(hak_word_has_tag_of(hak_registry_word(mine), hak_word_low_of_heap(heap->id)));
    hak_free(mine);
    for (unsigned i = 0; i < 10; i++) { /* they were another thread's, their slab is this one's */
        hak_free(blocks[i]);
    }
    CHECK(heap->homeward.count == 0);
    return NULL;
}

static void *hold_a_heap(void *barrier) {
    (void)hak_heap_attach();
    (void)pthread_barrier_wait(barrier);
    (void)pthread_barrier_wait(barrier);
    return NULL;
}

/* The heap of the thread that exited is taken by one that only waits, so that the adopter has another. */
static void an_adopted_slab_is_tagged_anew(void **state) {
    (void)state;
    pthread_barrier_t barrier;
    pthread_t holder;
    on_thread(take_and_exit, NULL);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&holder, NULL, hold_a_heap, &barrier), 0);
    (void)pthread_barrier_wait(&barrier);
    on_thread(adopt_and_free, NULL);
    (void)pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(holder, NULL), 0);
}

/* Lower bits of a word, less a heap's: what the free gate looks at. */
static unsigned own_row(hak_word word, uint32_t heap_id) {
    return (uint16_t)word - hak_word_low_of_heap(heap_id);
}

static void first_units_of_a_heap_are_told_from_all_else(void **state) {
    (void)state;
    for (uint32_t heap_id = 1; heap_id < 1000; heap_id++) {
        for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
            hak_word word = hak_word_for_slab(c, 0, NULL, heap_id);
            assert_int_equal(own_row(word, heap_id), HAK_HEADER_LIVE + c);
            assert_true((uint16_t)word - HAK_LOW_OF_NO_HEAP > HAK_LAST_SLAB_ROW);
            assert_true(own_row(word, heap_id + 1) > HAK_LAST_SLAB_ROW);
            assert_true(own_row(hak_word_for_slab(c, 0, NULL, HAK_OWNER_NOBODY), heap_id) >
                        HAK_LAST_SLAB_ROW);
            for (unsigned unit = 1; unit < hak_class_units[c]; unit++) {
                word = hak_word_for_slab(c, unit, NULL, heap_id);
                assert_true(own_row(word, heap_id) > HAK_LAST_SLAB_ROW);
                assert_int_equal(hak_word_row(word)->class_idx, c);
            }
        }
        for (unsigned kind = HAK_KIND_NONE; kind <= HAK_KIND_GUARDED; kind++) {
            hak_word word = hak_word_for_number((enum hak_unit_kind)kind, 0);
            assert_true(own_row(word, heap_id) > HAK_LAST_SLAB_ROW);
        }
    }
}

#define TEST(name) cmocka_unit_test_teardown(name, heap_is_sound)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(foreign_blocks_go_home_in_bulk_and_at_exit),
        TEST(a_batch_holds_few_bytes_back),
        TEST(a_profile_says_how_many_bytes),
        TEST(few_are_put_off_while_memory_is_given_back),
        TEST(a_unit_that_needs_the_slot_of_another_counts_that),
        TEST(what_is_forgotten_is_not_counted_later),
        TEST(what_any_heap_puts_off_is_known),
        TEST(a_trim_sends_a_batch_home),
        TEST(verify_knows_of_counts_that_are_put_off),
        TEST(a_foreign_block_is_not_handed_out_where_it_was_freed),
        TEST(a_block_of_many_lines_is_handed_out_where_it_was_freed),
        TEST(no_more_stay_than_three_refills_would_bring),
        TEST(of_a_row_the_first_two_stay),
        TEST(small_blocks_of_a_row_do_not_count),
        TEST(none_stay_with_a_thread_that_allocates_none),
        TEST(a_block_that_stays_is_free_in_a_child),
        TEST(foreign_blocks_of_any_unit_go_home),
        TEST(own_blocks_of_any_unit_are_handed_out_again_at_once),
        TEST(an_adopted_slab_is_tagged_anew),
        TEST(first_units_of_a_heap_are_told_from_all_else),
        TEST(all_classes_of_all_threads_together_keep_little),
        TEST(a_block_that_comes_and_goes_takes_of_the_share_once),
        TEST(many_threads_put_off_no_more_than_few), /* the last: afterwards there are many heaps */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
