/*
 * width_64k_test.c - what caches may keep is counted in full where an OS page is 64 KiB (simulated) and a
 * cache pins more than 64 MiB of them, and is taken off again in full.
 *
 * suite: limit 60 s
 */
#define PAGE_BYTES ((size_t)64 * 1024)

#include "support/page_size.h"

#include "hakmem.h"
#include "heap/width.h"
#include "slab/retention.h"
#include "support/blocks.h"
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"
#include "width_kit.h"

#define ROUNDS      8u
#define SWINGS      12u
#define SMALL       1900u /* blocks of 64 bytes: a cache comes to hold them all, a page for each */
#define SMALL_BYTES 64u
#define MANY        1500u /* of a page of 4 KiB: what ends all classes of a thread */
#define MANY_BYTES  4096u

static void *blocks[SMALL];

static void swing(unsigned count, size_t bytes) {
    blocks_take(blocks, count, bytes);
    blocks_free(blocks, count);
}

static size_t kept_kib(void) {
    size_t kib = 0;
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        kib += hak_heap_attach()->classes[c].width.kept_kib;
    }
    return kib;
}

/* Wide classes count as well: so much at most where none keeps anything. */
static int end_again_and_again(void) {
    size_t most_kib = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < SWINGS; i++) {
            swing(SMALL, SMALL_BYTES);
        }
        /* As if each lay in a unit of its own. */
        hak_width_note_returned(hak_heap_attach(), hak_class_of(SMALL_BYTES), SMALL, SMALL);
        swing(MANY, MANY_BYTES);
        most_kib = kept_kib() > most_kib ? kept_kib() : most_kib;
    }
    CHECK(most_kib > UINT16_MAX); /* or this would show nothing */
    (void)hak_trim(0);
    CHECK(kept_kib() == 0);
    CHECK(hak_retention_raised_bytes(HAK_RETAINER_CACHES) <= 4 * MIB);
    check_heap();
    return 0;
}

static void what_caches_keep_is_taken_off_in_full(void **state) {
    (void)state;
    REQUIRE_PAGE_BYTES();
    assert_part_succeeds("child", "HAKMEM_TINY_PROFILE=throughput");
}

int main(int argc, char **argv) {
    (void)argv;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_caches_keep_is_taken_off_in_full),
    };
    return argc > 1 ? end_again_and_again() : cmocka_run_group_tests(tests, NULL, NULL);
}
