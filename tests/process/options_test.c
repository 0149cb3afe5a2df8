/*
 * options_test.c - the HAKMEM_ options that change the heap do what they say, seen from outside.
 *
 * The parser's own rules are in unit/options_test.c, the options that print something in reports_test.c,
 * HAKMEM_DEEPBIND in dlopen_test.c, AT_SECURE in secure_test.sh.
 */
#include "process/options_kit.h"

static void prewarm_fills_the_cache_of_a_class(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct figures cold = figures_of("first", NULL, NULL, NULL);
    struct figures warm = figures_of("first", "HAKMEM_TINY_PREWARM_C3=40", NULL, NULL);
    assert_true(cold.cached_blocks[CLASS_64] < 8);
    assert_in_range(warm.cached_blocks[CLASS_64], 38, 64);
    assert_true(warm.cached_blocks[CLASS_64 + 1] < 8);
}

static void prewarm_fills_all_classes_but_those_with_their_own(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct figures warm = figures_of("first", "HAKMEM_TINY_PREWARM_ALL=16", "HAKMEM_TINY_PREWARM_C3=0", NULL);
    assert_true(warm.cached_blocks[CLASS_64] < 8);
    for (unsigned i = 0; i < 16; i++) {
        assert_true(i == CLASS_64 || warm.cached_blocks[i] >= 15);
    }
}

static void refill_count_is_how_much_a_refill_moves(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("take", "HAKMEM_TINY_REFILL_COUNT=1", "HAKMEM_TINY_FRONT_DUMP=-", NULL);
    (void)read_csv(child.err);
    assert_true(csv[CLASS_64][CACHE_MISSES] >= LOAD_BLOCKS);
    run("take", "HAKMEM_TINY_REFILL_COUNT=100", "HAKMEM_TINY_FRONT_DUMP=-", NULL);
    (void)read_csv(child.err);
    /* and, before the class has proved hot, some single blocks */
    assert_in_range(csv[CLASS_64][CACHE_MISSES], LOAD_BLOCKS / 100, LOAD_BLOCKS / 100 + 100);
}

/* What is spilled between refills is the end of nothing, however much it comes to. */
static void a_refill_count_does_not_narrow_caches(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("swings", "HAKMEM_TINY_REFILL_COUNT=256", "HAKMEM_TINY_FRONT_DUMP=-", NULL);
    (void)read_csv(child.err);
    assert_in_range(csv[CLASS_64][CACHE_MISSES], 1, 5 * SWINGS);
}

static void prefault_brings_new_superslabs_into_memory(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_true(figures_of("first", "HAKMEM_SS_PREFAULT=0", NULL, NULL).resident_bytes < 1 * MIB);
    assert_true(figures_of("first", "HAKMEM_SS_PREFAULT=1", NULL, NULL).resident_bytes >= 2 * MIB);
    assert_true(figures_of("first", "HAKMEM_SS_PREFAULT=2", NULL, NULL).resident_bytes >= 2 * MIB);
}

/* What nobody has written to as well. */
static void malloc_trim_gives_back_what_prefault_brought(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_true(figures_of("trimmed", "HAKMEM_SS_PREFAULT=1", NULL, NULL).resident_bytes < 1 * MIB);
    assert_true(figures_of("trimmed", "HAKMEM_SS_PREFAULT=2", NULL, NULL).resident_bytes < 1 * MIB);
}

static void the_lru_keeps_within_its_count_and_bytes(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_true(figures_of("rest", "HAKMEM_SS_LRU_MS=60000", NULL, NULL).superslabs_empty >= 2);
    assert_true(
        figures_of("rest", "HAKMEM_SS_LRU_MS=60000", "HAKMEM_SS_LRU_COUNT=1", NULL).superslabs_empty <= 1);
    assert_int_equal(figures_of("rest", "HAKMEM_SS_LRU_COUNT=0", NULL, NULL).superslabs_empty, 0);
    assert_true(figures_of("rest", "HAKMEM_SS_LRU_MS=60000", "HAKMEM_SS_LRU_MB=3", NULL).superslabs_empty <=
                1);
}

static void the_lru_keeps_nothing_beyond_its_age(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_true(figures_of("rest", "HAKMEM_SS_LRU_MS=10", NULL, NULL).superslabs_empty <= 1);
    assert_true(figures_of("rest", "HAKMEM_SS_LRU_MS=86400000", NULL, NULL).superslabs_empty >= 2);
}

static void retain_bounds_what_a_program_in_cycles_keeps(void **state) {
    (void)state;
    REQUIRE_HAK();
    run("cycles", "HAKMEM_RETAIN_MB=64", NULL, NULL);
    assert_true(strtoul(child.out, NULL, 10) >= 24 * MIB);
    run("cycles", "HAKMEM_RETAIN_MB=0", NULL, NULL);
    assert_true(strtoul(child.out, NULL, 10) <= 16 * MIB);
}

static void profiles_trade_memory_for_speed(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct figures conservative = figures_of("cached", "HAKMEM_TINY_PROFILE=conservative", NULL, NULL);
    struct figures standard = figures_of("cached", "HAKMEM_TINY_PROFILE=default", NULL, NULL);
    struct figures throughput = figures_of("cached", "HAKMEM_TINY_PROFILE=throughput", NULL, NULL);
    assert_true(conservative.cached_blocks[CLASS_64] <= standard.cached_blocks[CLASS_64]);
    assert_true(standard.cached_blocks[CLASS_64] <= throughput.cached_blocks[CLASS_64]);
    assert_true(conservative.cached_blocks[CLASS_64] < throughput.cached_blocks[CLASS_64]);
    assert_int_equal(figures_of("peak", "HAKMEM_TINY_PROFILE=conservative", NULL, NULL).superslabs_empty, 0);
}

/* The count of a refill, which the profile sets, makes no cache hold more than its class may. */
static void the_conservative_profile_caches_no_more_of_large_blocks(void **state) {
    (void)state;
    REQUIRE_HAK();
    struct figures conservative = figures_of("cached-large", "HAKMEM_TINY_PROFILE=conservative", NULL, NULL);
    struct figures standard = figures_of("cached-large", "HAKMEM_TINY_PROFILE=default", NULL, NULL);
    assert_true(standard.cached_blocks[CLASSES - 1] != 0);
    assert_in_range(conservative.cached_blocks[CLASSES - 1], 0, standard.cached_blocks[CLASSES - 1]);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        return run_mode(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prewarm_fills_the_cache_of_a_class),
        cmocka_unit_test(prewarm_fills_all_classes_but_those_with_their_own),
        cmocka_unit_test(refill_count_is_how_much_a_refill_moves),
        cmocka_unit_test(a_refill_count_does_not_narrow_caches),
        cmocka_unit_test(prefault_brings_new_superslabs_into_memory),
        cmocka_unit_test(malloc_trim_gives_back_what_prefault_brought),
        cmocka_unit_test(the_lru_keeps_within_its_count_and_bytes),
        cmocka_unit_test(the_lru_keeps_nothing_beyond_its_age),
        cmocka_unit_test(retain_bounds_what_a_program_in_cycles_keeps),
        cmocka_unit_test(profiles_trade_memory_for_speed),
        cmocka_unit_test(the_conservative_profile_caches_no_more_of_large_blocks),
    };
    return cmocka_run_group_tests_name("options from outside", tests, NULL, heap_is_sound);
}
