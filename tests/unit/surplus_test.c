/*
 * surplus_test.c - a SuperSlab that a thread maps and then has no need of, because units came back from
 * another thread meanwhile: it is an empty one, which goes back like any other.
 */
#include "superslab_kit.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As if another thread did it while this one maps memory. */
static bool is_given_meanwhile;

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (is_given_meanwhile && bytes >= HAK_SUPERSLAB_BYTES) {
        is_given_meanwhile = false;
        give(a, 0, 1, false);
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

static void what_is_mapped_without_need_is_empty(void **state) {
    (void)state;
    struct superslab *full = new_full(a);
    size_t before = hak_superslab_count().mapped;
    is_given_meanwhile = true;
    struct slab *unit = hak_superslab_take_units(1, 0);
    assert_false(is_given_meanwhile);
    assert_ptr_equal(hak_superslab_of(unit), full);
    assert_int_equal(hak_superslab_count().mapped, before + 1);
    assert_int_equal(hak_superslab_count().empty, 1);
    give(a, 1, UNITS, false);
    hak_superslab_give_units(unit, false);
}

static void it_serves_the_next_request(void **state) {
    (void)state;
    (void)new_full(a);
    (void)new_full(b);
    is_given_meanwhile = true;
    struct slab *unit = hak_superslab_take_units(1, 0);
    size_t mapped = hak_superslab_count().mapped;
    struct slab *next = hak_superslab_take_units(1, 0);
    assert_int_equal(hak_superslab_count().mapped, mapped);
    assert_int_equal(hak_superslab_count().empty, 0);
    assert_true(next->is_zero);
    give(a, 1, UNITS, false);
    give(b, 0, UNITS, false);
    hak_superslab_give_units(unit, false);
    hak_superslab_give_units(next, true);
}

static void trim_gives_it_back(void **state) {
    (void)state;
    (void)new_full(a);
    size_t before = hak_superslab_count().mapped;
    is_given_meanwhile = true;
    struct slab *unit = hak_superslab_take_units(1, 0);
    (void)hak_superslab_trim(0);
    assert_int_equal(hak_superslab_count().mapped, before);
    give(a, 1, UNITS, false);
    hak_superslab_give_units(unit, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_is_mapped_without_need_is_empty),
        TEST(it_serves_the_next_request),
        TEST(trim_gives_it_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
