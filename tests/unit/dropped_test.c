/*
 * dropped_test.c - address space that the kernel would not take, for want of one mapping more: its memory
 * goes at once, and it goes itself when everything is given back.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/atomic.h"
#include "hakmem.h"
#include "os/os.h"
#include "support/target.h"
#include "support/test.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MANY 200u /* more than can wait */

static bool is_full; /* the process has as many mappings as it may: none is cut in two */

int munmap(void *address, size_t bytes) {
    if (is_full) {
        errno = ENOMEM;
        return -1;
    }
    return (int)syscall(SYS_munmap, address, bytes);
}

static size_t page_bytes;

static size_t mapped_bytes(void) {
    return hak_atomic_load_relaxed(&hak_os_counters.mapped_bytes); /* relaxed: one thread */
}

static bool is_mapped(const char *page) {
    size_t resident_bytes;
    return hak_os_resident((void *)(uintptr_t)page, page_bytes, &resident_bytes) == 0;
}

static char *map_page(char value) {
    void *page;
    page_bytes = hak_os_page_bytes();
    CHECK(hak_os_map(NULL, page_bytes, &page) == 0);
    memset(page, value, page_bytes);
    return page;
}

static void drop_while_full(char *page) {
    is_full = true;
    errno = 7;
    hak_os_drop(page, page_bytes);
    CHECK(errno == 7);
    is_full = false;
}

static void what_can_be_unmapped_is(void **state) {
    (void)state;
    size_t before_bytes = mapped_bytes();
    char *page = map_page(1);
    hak_os_drop(page, page_bytes);
    assert_false(is_mapped(page));
    hak_os_drop(page, 0);
    assert_int_equal(mapped_bytes(), before_bytes);
}

static void what_cannot_be_unmapped_gives_its_memory_and_goes_later(void **state) {
    (void)state;
    size_t before_bytes = mapped_bytes();
    char *page = map_page(1);
    drop_while_full(page);
    assert_true(is_mapped(page));
    assert_int_equal(page[page_bytes - 1], 0);
    is_full = true;
    hak_os_drop_again();
    is_full = false;
    assert_true(is_mapped(page));
    hak_os_drop_again();
    assert_false(is_mapped(page));
    assert_int_equal(mapped_bytes(), before_bytes);
}

/* What is mapped there afterwards is somebody else's. */
static void it_goes_once(void **state) {
    (void)state;
    char *page = map_page(1);
    drop_while_full(page);
    hak_os_drop_again();
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    assert_ptr_equal(mmap(page, page_bytes, PROT_READ | PROT_WRITE, flags, -1, 0), page);
    hak_os_drop_again();
    assert_true(is_mapped(page));
    assert_int_equal(munmap(page, page_bytes), 0);
}

static void a_trim_takes_it_along(void **state) {
    (void)state;
    char *page = map_page(1);
    drop_while_full(page);
    (void)hak_trim(0);
    assert_false(is_mapped(page));
}

static void what_waits_is_bounded_and_makes_room(void **state) {
    (void)state;
    size_t before_bytes = mapped_bytes();
    char *pages = NULL;
    for (unsigned i = 0; i < MANY; i++) {
        pages = map_page(1);
        drop_while_full(pages);
    }
    hak_os_drop_again();
    size_t lost_bytes = mapped_bytes() - before_bytes;
    assert_in_range(lost_bytes, page_bytes, (MANY - 32) * page_bytes);
    drop_while_full(map_page(1));
    hak_os_drop_again();
    assert_int_equal(mapped_bytes(), before_bytes + lost_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_be_unmapped_is),
        cmocka_unit_test(what_cannot_be_unmapped_gives_its_memory_and_goes_later),
        cmocka_unit_test(it_goes_once),
        cmocka_unit_test(a_trim_takes_it_along),
        cmocka_unit_test(what_waits_is_bounded_and_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
