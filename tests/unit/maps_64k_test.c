/*
 * maps_64k_test.c - header maps where an OS page is 64 KiB (simulated): whole pages go back, and all of those
 * without a map, however few of their lines were in use.
 *
 * suite: limit 60 s
 */
#define PAGE_BYTES ((size_t)64 * 1024)

#include "support/page_size.h"

#include "hakmem.h"
#include "maps_kit.h"
#include "slab/purge.h"
#include "support/target.h"

/* Nobody lets a part of it go, so it is as good as its first page of 4 KiB. */
static bool is_resident(const char *page) {
    bool is_any = false;
    for (size_t offset = 0; offset < PAGE_BYTES; offset += HAK_CELL_BYTES) {
        unsigned char state;
        CHECK(mincore((void *)(uintptr_t)(page + offset), HAK_CELL_BYTES, &state) == 0);
        is_any = is_any || (state & 1) != 0;
    }
    return is_any;
}

static void whole_pages_go_back(void **state) {
    (void)state;
    static struct whole whole;
    REQUIRE_PAGE_BYTES();
    static const unsigned every[] = {0, 60, 20};
    for (unsigned i = 0; i < COUNT_OF(every); i++) {
        fill_chunk(&whole);
        give_maps(&whole, 0, whole.count, every[i]);
        assert_true(purge_all() % PAGE_BYTES == 0);
        check_maps();
        (void)hak_maps_trim();
        check_maps();
        check_pages(whole.chunk, is_resident);
        for (unsigned k = 0; k < whole.count; k++) {
            map_check(&whole.maps[k]);
        }
        end_chunk(&whole);
    }
    assert_true(asked != 0);
    assert_int_equal(unaligned, 0);
}

/* A page that went back whole holds memory again when some of its lines are written to. */
static void a_page_of_which_little_was_used_goes_back(void **state) {
    (void)state;
    static struct whole whole;
    REQUIRE_PAGE_BYTES();
    fill_chunk(&whole);
    give_maps(&whole, 0, whole.count, 0);
    (void)hak_maps_trim();
    const unsigned some = 20; /* the first page is in use for good; these reach into the second */
    for (unsigned i = 0; i < some; i++) {
        map_take(&whole.maps[i], HAK_SLAB_BLOCKS_MAX);
        assert_ptr_equal(chunk_of(&whole.maps[i]), whole.chunk);
    }
    assert_true((uintptr_t)whole.maps[some - 1].headers > (uintptr_t)whole.chunk->base + PAGE_BYTES);
    give_maps(&whole, 0, some, 0);
    (void)hak_maps_trim();
    check_maps();
    check_pages(whole.chunk, is_resident);
    end_chunk(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(whole_pages_go_back, heap_is_sound),
        cmocka_unit_test_teardown(a_page_of_which_little_was_used_goes_back, heap_is_sound),
    };
    hak_purge_set_floor(PTRDIFF_MAX); /* or steps would purge as well */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
