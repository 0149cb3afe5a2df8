/*
 * checked_shrink_test.c - realloc to a smaller size in checked mode while no memory is to be had: the block
 * stays, and is checked at its new size.
 *
 * suite: flavours checked
 */
#include "support/child.h"
#include "support/limits.h"
#include "support/pattern.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

/* Of slabs, between guard pages: within the last page, some pages less, less of the mapping; and there at
 * more than a page's alignment. */
static const struct {
    size_t bytes, less_bytes, align;
} shrunk[] = {{5000, 100, 16},      {20000, 15000, 16}, {200000, 199990, 16},
              {200000, 190000, 16}, {1000000, 100, 16}, {1000000, 300000, 65536}};

/* A list through the blocks themselves. */
static void take_all_memory(void ***list, size_t least_bytes) {
    for (size_t bytes = 8 * MIB; bytes >= least_bytes / 2; bytes /= 2) {
        void **block;
        while ((block = malloc(bytes > least_bytes ? bytes : least_bytes)) != NULL) {
            *block = *list;
            *list = block;
        }
    }
}

static bool is_accessible(const void *address) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    bool is_read = write(ends[1], address, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return is_read;
}

/* Its new size holds for whoever asks, frees or writes past it. */
static void check_shrunk(char *block, size_t bytes, bool is_guarded) {
    char why[200];
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t to_page_end = -(uintptr_t)(block + bytes) % page_bytes;
    CHECK(!is_guarded || !is_accessible(block + bytes + to_page_end));
    CHECK(malloc_usable_size(block) == bytes);
    CHECK(pattern_holds(block, bytes, bytes));
    CHECK(hak_verify(why, sizeof why) == 0);
    char was = block[bytes];
    block[bytes] = 1;
    CHECK(hak_verify(why, sizeof why) == -1);
    block[bytes] = was;
    CHECK(hak_verify(why, sizeof why) == 0);
}

static int shrink_without_memory(void *unused) {
    (void)unused;
    void (*free_with_size)(void *block, size_t bytes) = function_named("free_sized");
    char *blocks[COUNT_OF(shrunk)];
    void **list = NULL;
    for (size_t i = 0; i < COUNT_OF(shrunk); i++) {
        blocks[i] = aligned_alloc(shrunk[i].align, shrunk[i].bytes);
        pattern_fill(blocks[i], shrunk[i].bytes, shrunk[i].less_bytes);
    }
    limit_room(64 * MIB);
    for (size_t i = 0; i < COUNT_OF(shrunk); i++) {
        take_all_memory(&list, shrunk[i].less_bytes);
        errno = 0;
        CHECK(realloc(launder(blocks[i]), shrunk[i].less_bytes) == blocks[i] && errno == 0);
        check_shrunk(blocks[i], shrunk[i].less_bytes, shrunk[i].bytes > 32 * KIB);
        CHECK(realloc(launder(blocks[i]), 2 * MIB) == NULL && errno == ENOMEM);
    }
    for (size_t i = 0; i < COUNT_OF(shrunk); i++) {
        free_with_size(blocks[i], shrunk[i].less_bytes);
    }
    while (list != NULL) {
        void **next = *list;
        free(list);
        list = next;
    }
    check_heap();
    return 0;
}

static void a_block_that_is_to_be_smaller_stays(void **state) {
    (void)state;
    REQUIRE_HAK();
    assert_function_succeeds(shrink_without_memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_that_is_to_be_smaller_stays),
    };
    return cmocka_run_group_tests_name("checked_shrink", tests, NULL, heap_is_sound);
}
