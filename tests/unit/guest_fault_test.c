/*
 * guest_fault_test.c - guests and what goes wrong: frees of them twice or in their middle, forks beside
 * threads that have them, rows that a thread was cut off in; and the slabs that take none.
 *
 * suite: limit 60 s
 */
#include "guest_kit.h"

#include "heap/child.h"
#include "support/child.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* ---- misuse ---- */

static int free_it(void *block) {
    hak_free(block);
    return 0;
}

static int free_it_twice(void *block) {
    hak_free(block);
    hak_free(block);
    return 0;
}

static void assert_dies(int (*function)(void *block), void *block, const char *says) {
    static struct child child;
    child = (struct child){.function = function, .context = block};
    child_run(&child);
    assert_int_equal(child_signal(&child), SIGABRT);
    char line[200];
    snprintf(line, sizeof line, "hakmem: hak_free(): %s 0x%jx, ", says, (uintmax_t)(uintptr_t)block);
    if (strncmp(child.err, line, strlen(line)) != 0) {
        fail_msg("\"%s\" does not begin with \"%s\"", child.err, line);
    }
}

static void assert_dies_inside(void *block, size_t block_bytes) {
    static struct child child;
    child = (struct child){.function = free_it, .context = block};
    child_run(&child);
    assert_int_equal(child_signal(&child), SIGABRT);
    char line[200];
    snprintf(line, sizeof line, "hakmem: hak_free(): invalid pointer 0x%jx, %zu-byte block\n",
             (uintmax_t)(uintptr_t)block, block_bytes);
    assert_string_equal(child.err, line);
}

static void a_guest_cannot_be_freed_twice(void **state) {
    (void)state;
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    assert_dies(free_it_twice, any_guest(), "double free of");
}

static void no_pointer_into_a_guest_can_be_freed(void **state) {
    (void)state;
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    char *guest = any_guest();
    size_t bytes = hak_class_block_bytes[hak_class_of(BIG_BYTES)];
    size_t host_bytes = hak_class_block_bytes[class_of_slab(guest)];
    for (size_t offset = 16; offset < BIG_BYTES; offset += 16) {
        assert_false(hak_owns(guest + offset));
    }
    assert_dies_inside(guest + host_bytes, bytes);
    assert_dies_inside(guest + 2 * host_bytes, bytes);
    assert_dies_inside(guest + 16, bytes);
    assert_dies_inside(guest + 2 * host_bytes + 16, bytes);
}

/* A guest's header in a place where there is no row: damage, as that of a class that there is not. */
static void a_header_without_its_row_is_damage(void **state) {
    (void)state;
    hak_header *header = header_of(smalls[0]);
    unsigned value = header_value(header);
    const unsigned damaged[] = {hak_class_of(BIG_BYTES), HAK_CLASS_COUNT};
    for (unsigned i = 0; i < COUNT_OF(damaged); i++) {
        hak_atomic_store_relaxed(header, (uint8_t)(HAK_HEADER_LIVE + damaged[i])); /* relaxed: alone */
        assert_false(hak_owns(smalls[0]));
        assert_dies(free_it, smalls[0], "header damaged at");
    }
    hak_atomic_store_relaxed(header, (uint8_t)value); /* relaxed: as above */
}

/* ---- fork ---- */

static pthread_barrier_t barrier;
static void *theirs[64];

static void *hold_guests(void *unused) {
    void *freed[64];
    for (unsigned i = 0; i < COUNT_OF(theirs); i++) {
        theirs[i] = hak_malloc(BIG_BYTES);
        freed[i] = hak_malloc(BIG_BYTES);
        memset(theirs[i], 77, BIG_BYTES);
    }
    for (unsigned i = 0; i < COUNT_OF(freed); i++) {
        hak_free(freed[i]); /* into the cache, with rows and all */
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < COUNT_OF(theirs); i++) {
        hak_free(theirs[i]);
    }
    return unused;
}

/* A guest that a thread, gone in the child, was cut off with. */
struct cut {
    unsigned i; /* of the bigs */
    void *block;
    hak_header *header;
    unsigned length;
};

static struct cut being_freed, being_taken;

static int use_the_heap_in_the_child(void *unused) {
    (void)unused;
    hak_child_rebuild_if_pending();
    for (unsigned i = 0; i < being_freed.length; i++) {
        CHECK(header_value(being_freed.header + i) == HAK_HEADER_FREE);
    }
    for (unsigned i = 0; i < being_taken.length; i++) {
        CHECK(header_value(being_taken.header + i) == HAK_HEADER_FREE);
    }
    check_heap();
    check_contents(BIGS);
    unsigned guests = 0;
    for (unsigned i = 0; i < COUNT_OF(theirs); i++) {
        CHECK(is_filled_with(theirs[i], BIG_BYTES, 77));
        guests += is_guest(theirs[i], BIG_BYTES);
        hak_free(theirs[i]);
    }
    CHECK(guests != 0);
    for (unsigned i = 0; i < BIGS; i++) {
        hak_free(bigs[i]);
        bigs[i] = hak_malloc(BIG_BYTES);
        fill_big(i);
    }
    check_contents(BIGS);
    (void)nothing_is_left(NULL);
    return 0;
}

static struct cut cut_next(unsigned from) {
    struct cut cut = {.i = from};
    while (!is_guest(bigs[cut.i], BIG_BYTES)) {
        cut.i++;
        CHECK(cut.i < BIGS);
    }
    cut.block = bigs[cut.i];
    cut.header = header_of(cut.block);
    cut.length = hak_row_length(cut.header);
    CHECK(cut.length > 3);
    bigs[cut.i] = NULL;
    return cut;
}

/* As they are left by one that is cut off in hak_row_to_free() and in free_to_cached(). */
static void cut_rows(void) {
    being_freed = cut_next(0);
    hak_atomic_store_relaxed(being_freed.header + being_freed.length - 1,
                             HAK_HEADER_FREE); /* relaxed: alone */
    being_taken = cut_next(being_freed.i + 1);
    hak_atomic_store_relaxed(being_taken.header, HAK_HEADER_FREE);     /* relaxed: as above */
    hak_atomic_store_relaxed(being_taken.header + 1, HAK_HEADER_FREE); /* relaxed: as above */
}

static void mend(struct cut cut) {
    for (unsigned i = 0; i < cut.length; i++) {
        unsigned value = i == 0 ? HAK_HEADER_LIVE + hak_class_of(BIG_BYTES) : HAK_HEADER_TAIL;
        hak_atomic_store_relaxed(cut.header + i, (uint8_t)value); /* relaxed: alone */
    }
    bigs[cut.i] = cut.block;
}

static void the_child_of_a_fork_puts_rows_right(void **state) {
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, hold_guests, NULL), 0);
    pthread_barrier_wait(&barrier);
    assert_true(allocate_bigs(BIGS) > BIGS / 2);
    cut_rows();
    static struct child child;
    child = (struct child){.function = use_the_heap_in_the_child};
    child_run(&child);
    assert_child_succeeded(&child);
    mend(being_freed);
    mend(being_taken);
    pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ---- who takes none ---- */

static void what_is_to_be_emptied_takes_none(void **state) {
    (void)state;
    unsigned named = 0;
    for (unsigned i = 0; i < kept; i++) {
        named += hak_defrag_hint(smalls[i]);
    }
    assert_true(named > kept / 2);
    unsigned guests = allocate_bigs(BIGS / 4);
    assert_in_range(guests, 0, BIGS / 40); /* those in the slab that this thread allocates from */
    check_contents(BIGS / 4);
}

static bool is_on_odd_page(const void *block) {
    return (uintptr_t)block % 8192 >= 4096 || (uintptr_t)block % 8192 + SMALL_BYTES > 4096;
}

/* Every second page is without survivors, and goes back. */
static void pages_that_went_back_stay_away(void **state) {
    (void)state;
    if (sysconf(_SC_PAGESIZE) != 4096) {
        SKIP_BECAUSE("pages are not of 4096 bytes");
    }
    unsigned left = 0;
    for (unsigned i = 0; i < kept; i++) {
        if (is_on_odd_page(smalls[i])) {
            hak_free(smalls[i]);
        } else {
            memset(smalls[i], (int)(left % 251), SMALL_BYTES);
            smalls[left++] = smalls[i];
        }
    }
    kept = left;
    assert_true(hak_trim(0));
    unsigned guests = allocate_bigs(BIGS / 4);
    assert_true(guests > BIGS / 32);
    for (unsigned i = 0; i < BIGS / 4; i++) {
        if (is_guest(bigs[i], BIG_BYTES)) {
            size_t row_bytes =
                hak_row_length(header_of(bigs[i])) * (size_t)hak_class_block_bytes[class_of_slab(bigs[i])];
            assert_in_range((uintptr_t)bigs[i] % 8192 + row_bytes, 0, 4096);
        }
    }
    check_contents(BIGS / 4);
}

/* In processes of their own: with the option off, one way or another, and where a heap is small. */
static void without_the_option_there_are_none(void **state) {
    (void)state;
    assert_part_succeeds("many", "HAKMEM_GUESTS=0");
    assert_part_succeeds("many", "HAKMEM_TINY_PROFILE=throughput");
    assert_part_succeeds("many", "HAKMEM_RANDOMIZE=1");
    assert_part_succeeds("few", "HAKMEM_GUESTS=1");
}

static int none_is_made(bool has_many) {
    if (has_many) {
        (void)leave_survivors(NULL);
    } else {
        for (unsigned i = 0; i < SMALLS / 10; i++) {
            smalls[i] = hak_malloc(SMALL_BYTES);
        }
        for (unsigned i = 0; i < SMALLS / 10; i++) {
            hak_free(i % 10 != 0 ? smalls[i] : NULL);
        }
    }
    unsigned guests = 0;
    for (unsigned i = 0; i < BIGS; i++) {
        bigs[i] = hak_malloc(BIG_BYTES);
        guests += i < BIGS / 8 && is_guest(bigs[i], BIG_BYTES);
    }
    return guests == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        return none_is_made(strcmp(argv[1], "many") == 0);
    }
#define WITH_SURVIVORS(test) cmocka_unit_test_setup_teardown(test, leave_survivors, nothing_is_left)
    const struct CMUnitTest tests[] = {
        WITH_SURVIVORS(a_guest_cannot_be_freed_twice),
        WITH_SURVIVORS(no_pointer_into_a_guest_can_be_freed),
        WITH_SURVIVORS(a_header_without_its_row_is_damage),
        WITH_SURVIVORS(the_child_of_a_fork_puts_rows_right),
        WITH_SURVIVORS(what_is_to_be_emptied_takes_none),
        WITH_SURVIVORS(pages_that_went_back_stay_away),
        cmocka_unit_test(without_the_option_there_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
