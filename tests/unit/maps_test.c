/*
 * maps_test.c - memory for header maps: apart from each other and from all other records, zero, and used
 * again before more is mapped.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "maps_kit.h"
#include "slab/purge.h"
#include "support/rng.h"
#include "support/target.h"

static void maps_are_zero_aligned_and_disjoint(void **state) {
    (void)state;
    enum { COUNT = 500, ROUNDS = 4 };
    static struct map maps[COUNT];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            map_take(&maps[i], 1 + i * 37 % HAK_SLAB_BLOCKS_MAX);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            map_give(&maps[i * 7 % COUNT]);
        }
        check_maps();
        if (round == ROUNDS / 2) {
            (void)purge_all();
        }
    }
}

/* As slabs of few blocks and of many have them: from one line to those of the smallest blocks. */
static unsigned some_headers(struct rng *rng) {
    return (unsigned)(rng_below(rng, 2) != 0 ? rng_log_between(rng, 1, HAK_SLAB_BLOCKS_MAX)
                                             : 1 + rng_below(rng, HAK_SLAB_BLOCKS_MAX));
}

static void every_map_keeps_what_is_in_it(void **state) {
    (void)state;
    enum { SLOTS = 700, OPERATIONS = 40000, LOOK = 64 };
    static struct map slots[SLOTS];
    struct rng rng = rng_seeded(5);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        /* Goes up and down, so that chunks come to be little used. */
        size_t live_slots = i / (OPERATIONS / 8) % 2 == 0 ? SLOTS : SLOTS / 40;
        struct map *map = &slots[rng_below(&rng, SLOTS)];
        if (map->headers != NULL) {
            map_give(map);
        }
        if (map < slots + live_slots) {
            map_take(map, some_headers(&rng));
        }
        if (i % LOOK == 0) {
            size_t given_bytes = 0;
            (void)hak_maps_purge(&given_bytes);
            check_maps();
        }
        if (i % (LOOK * 50) == 0) {
            (void)hak_maps_trim();
            check_maps();
        }
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (slots[i].headers != NULL) {
            map_give(&slots[i]);
        }
    }
    check_maps();
}

static void freed_room_is_used_before_more_is_mapped(void **state) {
    (void)state;
    enum { SLOTS = 2000, OPERATIONS = 200000, WARM_UP = OPERATIONS / 4 };
    static _Atomic uint8_t *slots[SLOTS];
    static unsigned headers[SLOTS];
    struct rng rng = rng_seeded(6);
    size_t mapped_bytes = 0;
    for (unsigned i = 0; i < OPERATIONS; i++) {
        size_t slot = rng_below(&rng, SLOTS);
        if (slots[slot] != NULL) {
            hak_map_free(slots[slot], headers[slot]);
        }
        headers[slot] = some_headers(&rng);
        slots[slot] = hak_map_alloc(headers[slot], NULL);
        assert_non_null(slots[slot]);
        mapped_bytes = i == WARM_UP ? hak_meta_mapped_bytes() : mapped_bytes;
    }
    /* By chance a chunk more: a hundred times as much was handed out since. */
    assert_in_range(hak_meta_mapped_bytes(), mapped_bytes, mapped_bytes + 2 * MIB);
    for (unsigned i = 0; i < SLOTS; i++) {
        hak_map_free(slots[i], headers[i]);
    }
    check_maps();
}

/* Nor does a map of many lines need a chunk of its own where short ones left a row of lines. */
static void neighbours_that_are_freed_make_room_for_longer_maps(void **state) {
    (void)state;
    static struct map small[CHUNK_LINES];
    struct whole whole;
    begin_chunk(&whole);
    unsigned count = 0;
    while (count < COUNT_OF(small) && whole.chunk->used_lines < whole.chunk->cell_count * HAK_CELL_LINES) {
        map_take(&small[count++], 1);
    }
    size_t mapped_bytes = hak_meta_mapped_bytes();
    for (unsigned parity = 0; parity < 2; parity++) {
        for (unsigned i = parity; i < count; i += 2) {
            map_give(&small[i]);
        }
    }
    unsigned most = (unsigned)(count / LINES_OF_LONGEST);
    assert_true(most > WHOLE_MAPS / 2);
    for (unsigned i = 0; i < most - 1; i++) {
        map_take(&whole.maps[i], HAK_SLAB_BLOCKS_MAX);
    }
    whole.count = most - 1;
    assert_int_equal(hak_meta_mapped_bytes(), mapped_bytes);
    check_maps();
    end_chunk(&whole);
}

/* So that little used ones empty. */
static void a_map_goes_where_there_is_least_room(void **state) {
    (void)state;
    enum { FULL = 0, ROOMY = 1, HALF = 2, CHUNKS = 3 };
    static struct whole wholes[CHUNKS];
    struct map map;
    for (unsigned i = 0; i < CHUNKS; i++) {
        fill_chunk(&wholes[i]);
    }
    give_maps(&wholes[HALF], 0, wholes[HALF].count / 2, 0);
    give_maps(&wholes[ROOMY], 0, wholes[ROOMY].count, 0);
    give_maps(&wholes[FULL], 10, 12, 0);
    for (unsigned i = 0; i < 2; i++) {
        map_take(&wholes[FULL].maps[10 + i], HAK_SLAB_BLOCKS_MAX);
        assert_ptr_equal(chunk_of(&wholes[FULL].maps[10 + i]), wholes[FULL].chunk);
    }
    map_take(&map, HAK_SLAB_BLOCKS_MAX);
    assert_ptr_equal(chunk_of(&map), wholes[HALF].chunk);
    map_give(&map);
    for (unsigned i = 0; i < CHUNKS; i++) {
        end_chunk(&wholes[i]);
    }
}

static void what_was_a_map_is_never_another_record(void **state) {
    (void)state;
    enum { MAPS = 600, RECORDS = 100000 };
    static struct map maps[MAPS];
    static struct range were[MAPS];
    static struct range records[RECORDS];
    unsigned count = 0;
    for (unsigned i = 0; i < MAPS; i++) {
        map_take(&maps[i], 1 + i * 61 % HAK_SLAB_BLOCKS_MAX);
        were[i] = (struct range){(const char *)maps[i].headers - sizeof(struct hak_map_prefix),
                                 sizeof(struct hak_map_prefix) + maps[i].count + SLACK_BYTES};
    }
    for (unsigned i = 0; i < MAPS; i++) {
        map_give(&maps[i]);
    }
    (void)hak_maps_trim();
    /* Of all sizes, and until memory has come from the system for them. */
    size_t mapped_bytes = hak_meta_mapped_bytes();
    for (; count < RECORDS && hak_meta_mapped_bytes() < mapped_bytes + 3 * MIB; count++) {
        struct range *record = &records[count];
        record->bytes = 1 + (size_t)count * 37 % 9000;
        record->start = hak_meta_alloc(record->bytes);
        assert_non_null(record->start);
        for (unsigned i = 0; i < MAPS; i++) {
            assert_true(are_disjoint(*record, were[i]));
        }
    }
    assert_true(count < RECORDS);
    while (count-- != 0) {
        hak_meta_free((void *)(uintptr_t)records[count].start, records[count].bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_zero_aligned_and_disjoint),
        cmocka_unit_test(every_map_keeps_what_is_in_it),
        cmocka_unit_test(freed_room_is_used_before_more_is_mapped),
        cmocka_unit_test(neighbours_that_are_freed_make_room_for_longer_maps),
        cmocka_unit_test(a_map_goes_where_there_is_least_room),
        cmocka_unit_test(what_was_a_map_is_never_another_record),
    };
    hak_purge_set_floor(PTRDIFF_MAX); /* or steps would purge as well */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
