/*
 * page_size_cases.h - the cases of page_16k_test and page_64k_test: hakmem on a system with larger OS pages.
 *
 * The suite defines PAGE_BYTES and includes this once.
 */
#ifndef HAK_TESTS_PROCESS_PAGE_SIZE_CASES_H
#define HAK_TESTS_PROCESS_PAGE_SIZE_CASES_H

#include "base/config.h"
#include "support/page_size.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static void *exercise(void *seed) {
    static const struct load everything = {1, 5 * MIB, 32, 48, 24};
    static _Thread_local struct slot slots[96];
    struct rng rng = rng_seeded((uintptr_t)seed);
    for (unsigned i = 0; i < 6000; i++) {
        slots_step(slots, COUNT_OF(slots), &everything, &rng);
        if (i % 1000 == 999) {
            (void)malloc_trim(0);
        }
    }
    slots_clear(slots, COUNT_OF(slots));
    return NULL;
}

static void the_page_size_was_read(void **state) {
    (void)state;
    REQUIRE_HAK();
    REQUIRE_PAGE_BYTES();
    assert_true(asked > 0);
}

static void random_loads_run(void **state) {
    (void)state;
    pthread_t threads[3];
    for (uintptr_t i = 0; i < COUNT_OF(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, exercise, (void *)i), 0);
    }
    (void)exercise((void *)9);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    check_heap();
}

static void ranges_given_back_are_whole_pages(void **state) {
    (void)state;
    REQUIRE_HAK();
    REQUIRE_PAGE_BYTES();
    atomic_store(&unaligned, 0); /* libc's own calls for threads do not come through here, others might */
    (void)exercise((void *)11);
    assert_int_equal(unaligned, 0);
}

static void valloc_and_pvalloc_use_that_page(void **state) {
    (void)state;
    REQUIRE_HAK();
    REQUIRE_PAGE_BYTES();
    for (size_t bytes = 1; bytes < 300000; bytes = bytes * 2 + 1) {
        void *page = valloc(bytes), *pages = pvalloc(bytes);
        assert_true(page != NULL && pages != NULL);
        assert_int_equal((uintptr_t)page % PAGE_BYTES, 0);
        assert_int_equal((uintptr_t)pages % PAGE_BYTES, 0);
        assert_true(malloc_usable_size(pages) >= (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
        free(page);
        free(pages);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_size_was_read),
        cmocka_unit_test(random_loads_run),
        cmocka_unit_test(ranges_given_back_are_whole_pages),
        cmocka_unit_test(valloc_and_pvalloc_use_that_page),
    };
    return cmocka_run_group_tests_name("page size", tests, NULL, heap_is_sound);
}

#endif
