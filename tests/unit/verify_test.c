/*
 * verify_test.c - hak_verify() names each invariant that is broken: a record is damaged, looked at, and
 * mended again.
 *
 * suite: limit 60 s
 */
#include "hakmem.h"
#include "heap/heap.h"
#include "large/extent.h"
#include "large/mapping.h"
#include "large/retain.h"
#include "large/run_index.h"
#include "meta/classes.h"
#include "os/os.h"
#include "slab/slab.h"
#include "slab/superslab.h"
#include "support/child.h"
#include "support/classes.h"
#include "support/target.h"
#include "support/test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define FRIENDS 100u /* blocks of the class before, so that it is hot and cached */

static char why[200];

/* What hak_verify says while `place` holds `damaged`. */
#define EXPECT(place, damaged, sentence)                                                                     \
    do {                                                                                                     \
        __typeof__(place) saved_ = (place);                                                                  \
        (place) = (damaged);                                                                                 \
        int result_ = hak_verify(why, sizeof why);                                                           \
        (place) = saved_;                                                                                    \
        assert_int_equal(result_, -1);                                                                       \
        assert_string_equal(why, sentence);                                                                  \
        assert_int_equal(hak_verify(NULL, 0), 0);                                                            \
    } while (0)

#define EXPECT_WORD(address, damaged, sentence)                                                              \
    do {                                                                                                     \
        hak_word saved_word_ = hak_registry_word(address);                                                   \
        hak_registry_store(address, damaged);                                                                \
        int result_ = hak_verify(why, sizeof why);                                                           \
        hak_registry_store(address, saved_word_);                                                            \
        assert_int_equal(result_, -1);                                                                       \
        assert_string_equal(why, sentence);                                                                  \
    } while (0)

static unsigned block_idx_of(const void *block, const struct slab *slab) {
    return (unsigned)(((uintptr_t)block - slab->base) / hak_class_block_bytes[slab->class_idx]);
}

/* ---- slabs ------------------------------------------------------------------------------------------ */

static void a_damaged_slab_is_named(void **state) {
    (void)state;
    void *block = hak_malloc(112);
    struct slab *slab = hak_slab_of_block(block);
    _Atomic uint8_t *header = &slab->map[block_idx_of(block, slab)];
    _Atomic uint8_t *last = &slab->map[slab->capacity_blocks - 1];
    struct slab **map_owner = (struct slab **)(void *)(slab->map - sizeof(uint64_t) * 2);
    struct slab *other = hak_slab_of_block(hak_malloc(1000));
    EXPECT(slab->carved_blocks, slab->capacity_blocks + 1, "slab: capacity or carved blocks out of range");
    EXPECT(slab->capacity_blocks, 1, "slab: capacity or carved blocks out of range");
    EXPECT(*map_owner, other, "slab: its header map names another slab");
    EXPECT(*header, 0x77, "slab: a header byte is in no state");
    EXPECT(*header, HAK_HEADER_LIVE + CLASS_OF_112 + 1, "slab: a header byte is in no state");
    assert_true(slab->carved_blocks < slab->capacity_blocks);
    EXPECT(*last, HAK_HEADER_FREE, "slab: a block beyond the carved ones is not NEVER");
    EXPECT_WORD((void *)slab->base, hak_registry_word((void *)other->base),
                "slab: a registry word does not name its header map");
    hak_free(block);
}

/* It waits for a thread that might be about to count, so this takes five seconds. */
static void a_block_that_nobody_counts_is_named(void **state) {
    (void)state;
    void *block = hak_malloc(112);
    struct slab *slab = hak_slab_of_block(block);
    EXPECT(slab->map[block_idx_of(block, slab)], HAK_HEADER_FREE,
           "slab: its count of free blocks is not that of its header map");
    hak_free(block);
}

/* ---- caches ----------------------------------------------------------------------------------------- */

static void a_damaged_cache_is_named(void **state) {
    (void)state;
    void *friends[FRIENDS];
    for (unsigned i = 0; i < FRIENDS; i++) {
        friends[i] = hak_malloc(112);
    }
    void *live = friends[0];
    for (unsigned i = 1; i < FRIENDS; i++) {
        hak_free(friends[i]);
    }
    struct class_state *class_state = &hak_tls.heap->classes[CLASS_OF_112];
    struct block_ref *entry = &class_state->array[1];
    assert_true(hak_tls.top[CLASS_OF_112] > entry);
    EXPECT(class_state->warm_count, HAK_WARM_SLABS_MAX + 1,
           "heap: a cache or warm pool holds more than it can");
    EXPECT(*entry->header, HAK_HEADER_LIVE + CLASS_OF_112, "heap: a cached block is not marked CACHED");
    EXPECT(entry->block, hak_malloc(1000), "heap: a block is cached under another class");
    hak_free(live);
}

/* ---- SuperSlabs ------------------------------------------------------------------------------------- */

static void a_damaged_superslab_is_named(void **state) {
    (void)state;
    void *block = hak_malloc(112);
    struct slab *slab = hak_slab_of_block(block);
    struct superslab *superslab = hak_superslab_of(slab);
    uint32_t unit = (uint32_t)1 << slab->unit_idx;
    assert_int_not_equal(superslab->free_units, 0);
    EXPECT(superslab->zero_units, superslab->zero_units | unit, "SuperSlab: zero units that are not free");
    EXPECT(superslab->purging_units, superslab->free_units, "SuperSlab: units both free and being purged");
    EXPECT(superslab->free_units, superslab->free_units | unit, "SuperSlab: units of a slab marked free");
    EXPECT(superslab->purging_units, unit, "SuperSlab: units of a slab marked free");
    EXPECT(superslab->tier, HAK_TIER_FREE, "SuperSlab: in the LRU but not empty");
    hak_free(block);
}

/* ---- extents ---------------------------------------------------------------------------------------- */

/* A copy of a live block's extent, to be damaged: its words name the original, which is said when all else
 * holds. */
struct sample {
    struct hak_extent extent;
    unsigned live_page;
    unsigned free_page; /* of a free run of at least four pages */
};

static struct sample sample;

static void take_sample(const void *block) {
    memcpy(&sample.extent, hak_word_address(hak_registry_word(block)), sizeof sample.extent);
    sample.live_page = hak_extent_live_page(&sample.extent, block);
    assert_int_not_equal(sample.live_page, HAK_NO_PAGE);
    for (unsigned page = 0; page < sample.extent.pages; page += sample.extent.run_pages[page]) {
        if (hak_page_map_test(&sample.extent.free_ends, page) && sample.extent.run_pages[page] >= 4) {
            sample.free_page = page;
        }
    }
    assert_true(hak_page_map_test(&sample.extent.free_ends, sample.free_page));
}

static const char *fault_of_sample(void) {
    struct hak_extent_sums sums = {0};
    const char *fault = NULL;
    hak_extent_check(&sample.extent, &sums, &fault);
    return fault != NULL ? fault : "";
}

/* Cuts the free run in two without telling anybody. */
static void cut_free_run(void) {
    struct hak_extent *extent = &sample.extent;
    unsigned first = sample.free_page;
    unsigned pages = extent->run_pages[first];
    unsigned second = first + 2;
    extent->run_pages[first] = extent->run_pages[second - 1] = 2;
    extent->run_pages[second] = extent->run_pages[first + pages - 1] = (uint16_t)(pages - 2);
    hak_page_map_set_one(&extent->free_ends, second - 1);
    hak_page_map_set_one(&extent->free_ends, second);
    extent->nodes[first / 2].pages = 2;
    extent->nodes[second / 2].page = (uint16_t)second;
    extent->nodes[second / 2].pages = (uint16_t)(pages - 2);
}

static void a_damaged_extent_is_named(void **state) {
    (void)state;
    char *block = hak_malloc(100000);
    struct hak_extent *extent = &sample.extent;
    take_sample(block);
    unsigned page = sample.live_page;
    unsigned pages = extent->run_pages[page];
    assert_string_equal(fault_of_sample(), "extent: a unit has another word");
    extent->run_pages[page] = 0;
    assert_string_equal(fault_of_sample(), "extent: the runs do not tile it");
    take_sample(block);
    extent->run_pages[page + pages - 1]++;
    assert_string_equal(fault_of_sample(), "extent: a run's two lengths differ");
    take_sample(block);
    hak_page_map_set_one(&extent->live_starts, page + 1);
    assert_string_equal(fault_of_sample(), "extent: a run is marked as two kinds at once");
    take_sample(block);
    hak_page_map_set_one(&extent->dirty, page);
    extent->dirty_pages++;
    assert_string_equal(fault_of_sample(), "extent: a page that is not free counts as dirty");
    take_sample(block);
    extent->nodes[sample.free_page / 2].pages++;
    assert_string_equal(fault_of_sample(), "extent: a free run is not in the index");
    take_sample(block);
    cut_free_run();
    assert_string_equal(fault_of_sample(), "extent: free neighbours are not joined");
    take_sample(block);
    extent->handed[page].number++;
    assert_string_equal(fault_of_sample(),
                        "extent: a run is handed out that is not live, or at another length");
    take_sample(block);
    extent->freed_pages[page] = 1;
    assert_string_equal(fault_of_sample(), "extent: a live page remembers a freed block");
    take_sample(block);
    extent->held_pages++;
    assert_string_equal(fault_of_sample(), "extent: its counts differ from its pages");
    hak_free(block);
}

static void a_damaged_run_index_is_named(void **state) {
    (void)state;
    static struct hak_run_index index;
    struct hak_run_node node = {.page = 5, .pages = 3};
    const char *fault = NULL;
    hak_run_index_insert(&index, &node);
    assert_int_equal(hak_run_index_check(&index, false, &fault), 1);
    assert_null(fault);
    (void)hak_run_index_check(&index, true, &fault);
    assert_string_equal(fault, "run index: a run is in the wrong list");
    fault = NULL;
    hak_page_map_clear_one(&index.lengths, 2);
    (void)hak_run_index_check(&index, false, &fault);
    assert_string_equal(fault, "run index: bit and list disagree");
}

/* ---- mappings and sums ------------------------------------------------------------------------------ */

static void a_damaged_mapping_is_named(void **state) {
    (void)state;
    hak_trim(0); /* so that the block alone is within the floor when it is freed */
    char *block = hak_malloc(MIB);
    struct hak_mapping *mapping = hak_word_address(hak_registry_word(block));
    struct hak_mapping fake = {.state = HAK_MAPPING_KEPT, .base = mapping->base, .bytes = HAK_UNIT_BYTES};
    EXPECT(mapping->dirty_bytes, mapping->bytes + 1, "mapping: its bounds are not whole units");
    EXPECT(mapping->before, &fake, "mapping: neighbours disagree");
    EXPECT(mapping->after, &fake, "mapping: neighbours disagree");
    EXPECT(mapping->seams, ((struct hak_seams){.count = 1, .units = {1000}}),
           "mapping: its seams do not lie within it in order");
    EXPECT_WORD(block, 0, "mapping: a live block without its word");
    fake.before = mapping;
    EXPECT(mapping->after, &fake, "mapping: neighbours overlap");
    fake.base = mapping->base + mapping->bytes;
    hak_free(block);
    assert_int_equal(mapping->state, HAK_MAPPING_KEPT);
    EXPECT(mapping->after, &fake, "mapping: kept neighbours are not joined");
    EXPECT(hak_mapping_totals.live_count, hak_mapping_totals.live_count + 1,
           "mapping: totals differ from the sums");
    EXPECT(hak_mapping_totals.seams, hak_mapping_totals.seams + 1,
           "mapping: there are more seams, or fewer, than were counted");
}

static void sums_that_do_not_add_up_are_named(void **state) {
    (void)state;
    char *block = hak_malloc(100000);
    struct hak_extent *extent = hak_word_address(hak_registry_word(block));
    EXPECT(hak_retain.dirty_bytes, hak_retain.dirty_bytes + 1,
           "large: live or dirty bytes differ from the sums");
    EXPECT(extent->base, 0, "large: live or dirty bytes differ from the sums");
    hak_free(block);
}

static void the_sentence_is_cut_to_the_room_there_is(void **state) {
    (void)state;
    char small[8] = "xxxxxxx";
    struct slab *slab = hak_slab_of_block(hak_malloc(112));
    unsigned saved = slab->carved_blocks;
    slab->carved_blocks = UINT16_MAX;
    int result = hak_verify(small, sizeof small);
    int silent_result = hak_verify(NULL, 0);
    slab->carved_blocks = (uint16_t)saved;
    assert_int_equal(result, -1);
    assert_int_equal(silent_result, -1);
    assert_string_equal(small, "slab: c");
}

/* ---- what free says --------------------------------------------------------------------------------- */

static int free_it(void *block) {
    hak_free(block);
    return 0;
}

static void assert_free_says(void *block, const char *fault, size_t block_bytes) {
    static struct child child;
    char line[200];
    child = (struct child){.function = free_it, .context = block};
    child_run(&child);
    assert_int_equal(child_signal(&child), SIGABRT);
    snprintf(line, sizeof line, "hakmem: hak_free(): %s 0x%jx, %zu-byte block\n", fault,
             (uintmax_t)(uintptr_t)block, block_bytes);
    assert_string_equal(child.err, line);
}

static void free_names_a_header_that_is_no_state_of_a_block(void **state) {
    (void)state;
    char *block = hak_malloc(112);
    struct slab *slab = hak_slab_of_block(block);
    _Atomic uint8_t *header = &slab->map[block_idx_of(block, slab)];
    unsigned live = *header;
    *header = 0x77;
    assert_free_says(block, "header damaged at", 112);
    *header = HAK_HEADER_LIVE + CLASS_OF_112 - 1;
    assert_free_says(block, "header damaged at", 112);
    *header = (uint8_t)live;
    assert_true(slab->carved_blocks < slab->capacity_blocks);
    assert_free_says((void *)(slab->base + (slab->capacity_blocks - 1u) * 112), "invalid pointer", 112);
    hak_free(block);
}

/* In a further unit of a slab too. */
static void free_names_a_block_of_a_slab_that_is_gone(void **state) {
    (void)state;
    static char *blocks[64]; /* 16 in a slab of five units */
    (void)hak_trim(0);
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hak_malloc(20480);
    }
    for (unsigned i = 0; i < COUNT_OF(blocks); i++) {
        hak_free(blocks[i]);
    }
    (void)hak_trim(0);
    for (unsigned i = 0; i < 16; i++) {
        assert_int_equal(hak_word_kind(hak_registry_word(blocks[i])), HAK_KIND_SLAB_FREED);
        assert_free_says(blocks[i], "double free of", 20480);
        assert_free_says(blocks[i] + 16, "invalid pointer", 20480);
    }
}

/* Where slabs were once, their marks stay in the units that are the inside of a large block now. */
static void free_names_the_large_block_around_where_slabs_were(void **state) {
    (void)state;
    char *block = hak_malloc(4 * MIB);
    char *inner = block + 3 * HAK_UNIT_BYTES;
    hak_registry_store(inner, hak_word_for_number(HAK_KIND_SLAB_FREED, hak_freed_number(0, 112)));
    assert_free_says(inner, "invalid pointer", hak_usable_size(block));
    assert_free_says(inner + 16, "invalid pointer", hak_usable_size(block));
    hak_registry_store(inner, 0);
    hak_free(block);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_slab_is_named),
        cmocka_unit_test(a_block_that_nobody_counts_is_named),
        cmocka_unit_test(a_damaged_cache_is_named),
        cmocka_unit_test(a_damaged_superslab_is_named),
        cmocka_unit_test(a_damaged_extent_is_named),
        cmocka_unit_test(a_damaged_run_index_is_named),
        cmocka_unit_test(a_damaged_mapping_is_named),
        cmocka_unit_test(sums_that_do_not_add_up_are_named),
        cmocka_unit_test(free_names_a_header_that_is_no_state_of_a_block),
        cmocka_unit_test(free_names_a_block_of_a_slab_that_is_gone),
        cmocka_unit_test(free_names_the_large_block_around_where_slabs_were),
        cmocka_unit_test(the_sentence_is_cut_to_the_room_there_is),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, heap_is_sound);
}
