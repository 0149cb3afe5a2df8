/*
 * maps_purge_test.c - memory for header maps goes back to the system an OS page at a time, whatever the
 * system says and others do meanwhile.
 *
 * suite: limit 60 s
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/bits.h"
#include "base/config.h"
#include "hakmem.h"
#include "maps_kit.h"
#include "os/os.h"
#include "slab/purge.h"
#include "slab/superslab_pool.h"
#include "support/rng.h"
#include "support/target.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the system ---- */

static bool is_refusing;              /* madvise fails, as over locked pages */
static struct hak_map_chunk *refused; /* so it does over this one */
static unsigned refusals;
static unsigned purge_calls;
static char *purged; /* by the last call */
static size_t purged_bytes;
static void (*meanwhile)(void); /* called in the next madvise */

int madvise(void *address, size_t bytes, int advice) {
    if (advice == MADV_DONTNEED) {
        purge_calls++;
        purged = address;
        purged_bytes = bytes;
    }
    if (advice == MADV_DONTNEED && meanwhile != NULL) {
        void (*call)(void) = meanwhile;
        meanwhile = NULL;
        call();
    }
    if (is_refusing || (refused != NULL && (char *)address >= refused->base &&
                        (char *)address < refused->base + refused->cell_count * HAK_CELL_BYTES)) {
        refusals++;
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

static bool is_resident(const char *page) {
    size_t resident_bytes;
    CHECK(hak_os_resident((void *)(uintptr_t)page, hak_os_page_bytes(), &resident_bytes) == 0);
    return resident_bytes != 0;
}

static int system_as_usual(void **state) {
    (void)state;
    is_refusing = false;
    refused = NULL;
    meanwhile = NULL;
    (void)hak_maps_trim();
    purge_calls = 0;
    return 0;
}

/* ---- giving back ---- */

static void empty_chunks_go_back_by_a_call_each(void **state) {
    (void)state;
    enum { CHUNKS = 3 };
    static struct whole wholes[CHUNKS];
    for (unsigned i = 0; i < CHUNKS; i++) {
        fill_chunk(&wholes[i]);
    }
    assert_int_equal(hak_maps_owed_bytes(), 0);
    size_t freed_bytes = 0;
    for (unsigned i = 0; i < CHUNKS; i++) {
        give_maps(&wholes[i], 0, wholes[i].count, 0);
        freed_bytes += wholes[i].chunk->dirty_cells * HAK_CELL_BYTES;
    }
    assert_true(freed_bytes > CHUNKS * (size_t)9 * MIB / 10);
    assert_int_equal(hak_maps_owed_bytes(), freed_bytes);
    for (unsigned i = 0; i < CHUNKS; i++) {
        size_t given_bytes = 0;
        assert_int_equal(hak_maps_purge(&given_bytes), 1);
        assert_int_equal(given_bytes, purged_bytes);
        assert_int_equal(purge_calls, i + 1);
        freed_bytes -= given_bytes;
        check_maps();
    }
    size_t given_bytes = 0;
    assert_int_equal(freed_bytes, 0);
    assert_int_equal(hak_maps_owed_bytes(), 0);
    assert_int_equal(hak_maps_purge(&given_bytes), 0);
    assert_int_equal(purge_calls, CHUNKS);
    assert_int_equal(given_bytes, 0);
    for (unsigned i = 0; i < CHUNKS; i++) {
        check_pages(wholes[i].chunk, is_resident);
        end_chunk(&wholes[i]);
    }
}

/* A few maps keep less than an eighth of it. */
static void a_chunk_little_used_goes_back_between_its_maps(void **state) {
    (void)state;
    static struct whole whole;
    enum { EVERY = 80 };
    fill_chunk(&whole);
    give_maps(&whole, 0, whole.count, EVERY);
    const struct hak_map_chunk *c = whole.chunk;
    size_t before_bytes = c->dirty_cells * HAK_CELL_BYTES;
    assert_int_equal(hak_maps_owed_bytes(), before_bytes);
    size_t given_bytes = purge_all();
    assert_true(purge_calls >= 2);
    assert_int_equal(given_bytes, before_bytes - c->dirty_cells * HAK_CELL_BYTES);
    assert_true(given_bytes >= before_bytes / 2);
    for (unsigned i = 0; i < whole.count; i++) {
        map_check(&whole.maps[i]);
    }
    check_maps();
    end_chunk(&whole);
}

/* Else a heap that swings would give back and fault in what it is about to use again. */
static void a_chunk_much_used_is_not_owed(void **state) {
    (void)state;
    static struct whole whole;
    fill_chunk(&whole);
    give_maps(&whole, 0, whole.count, 4);
    size_t given_bytes = 0;
    assert_true(whole.chunk->dirty_cells > whole.count / 2);
    assert_int_equal(hak_maps_owed_bytes(), 0);
    assert_int_equal(hak_maps_purge(&given_bytes), 0);
    assert_int_equal(purge_calls, 0);
    end_chunk(&whole);
}

static void a_chunk_is_owed_from_an_eighth_on(void **state) {
    (void)state;
    static struct whole whole;
    fill_chunk(&whole);
    unsigned freed = 0;
    while (hak_maps_owed_bytes() == 0) {
        assert_true(freed < whole.count);
        map_give(&whole.maps[freed++]);
    }
    unsigned used = whole.count - freed;
    assert_in_range(freed, 8 * used - 8, 9 * used + 8);
    end_chunk(&whole);
}

/* Whatever is left is free all the same, and not zero. */
static void what_is_refused_is_not_asked_for_again_at_once(void **state) {
    (void)state;
    static struct whole whole;
    size_t given_bytes = 0;
    fill_chunk(&whole);
    give_maps(&whole, 1, whole.count, 0);
    is_refusing = true;
    assert_int_equal(hak_maps_purge(&given_bytes), 1);
    assert_int_equal(purge_calls, 1);
    assert_int_equal(hak_maps_purge(&given_bytes), 0);
    assert_int_equal(given_bytes, 0);
    assert_int_equal(purge_calls, 1);
    assert_int_equal(hak_maps_owed_bytes(), 0);
    check_maps();
    map_give(&whole.maps[0]);
    assert_int_equal(hak_maps_purge(&given_bytes), 1);
    assert_int_equal(purge_calls, 2);
    is_refusing = false;
    check_maps();
    for (unsigned i = 0; i < whole.count; i++) {
        map_take(&whole.maps[i], HAK_SLAB_BLOCKS_MAX); /* which looks whether it is zero */
        assert_ptr_equal(chunk_of(&whole.maps[i]), whole.chunk);
    }
    end_chunk(&whole);
}

static void trim_gives_back_every_page_without_a_map(void **state) {
    (void)state;
    static struct whole whole;
    static const unsigned every[] = {2, 3, 5, 60};
    for (unsigned i = 0; i < COUNT_OF(every); i++) {
        fill_chunk(&whole);
        give_maps(&whole, 0, whole.count, every[i]);
        size_t bytes = whole.chunk->dirty_cells * HAK_CELL_BYTES;
        assert_true(bytes != 0);
        assert_in_range(hak_maps_trim(), bytes, bytes + 8 * HAK_CELL_BYTES); /* slabs have maps as well */
        check_pages(whole.chunk, is_resident);
        assert_int_equal(hak_maps_trim(), 0);
        assert_int_equal(hak_maps_owed_bytes(), 0);
        for (unsigned k = 0; k < whole.count; k++) {
            map_check(&whole.maps[k]);
        }
        check_maps();
        end_chunk(&whole);
        (void)hak_maps_trim();
    }
}

static void malloc_trim_trims_maps_too(void **state) {
    (void)state;
    static struct whole whole;
    fill_chunk(&whole);
    give_maps(&whole, 0, whole.count, 4);
    assert_true(hak_trim(0) != 0);
    check_pages(whole.chunk, is_resident);
    check_maps();
    end_chunk(&whole);
}

/* Beside so much of slabs an eighth of it may stay. */
static void steps_purge_maps_beyond_an_eighth_of_the_floor(void **state) {
    (void)state;
    static struct whole whole;
    fill_chunk(&whole);
    give_maps(&whole, 0, whole.count, 0);
    size_t owed_bytes = hak_maps_owed_bytes();
    assert_true(owed_bytes != 0);
    hak_purge_set_floor(8 * owed_bytes);
    hak_superslab_note_owed();
    (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    assert_int_equal(hak_maps_owed_bytes(), owed_bytes);
    hak_purge_set_floor(8 * (owed_bytes - 1));
    hak_superslab_note_owed();
    assert_true(hak_purge_is_owed());
    (void)hak_purge_step(HAK_PURGE_STEP_CALLS);
    assert_int_equal(hak_maps_owed_bytes(), 0);
    check_pages(whole.chunk, is_resident);
    hak_purge_set_floor(PTRDIFF_MAX);
    end_chunk(&whole);
}

/* Locked pages of header maps keep no unit from going back, whatever is freed beside them meanwhile. */
static void what_is_refused_keeps_no_unit(void **state) {
    (void)state;
    enum { UNITS = 40 };
    static struct whole whole;
    static struct slab *units[UNITS];
    fill_chunk(&whole);
    for (unsigned i = 0; i < UNITS; i++) {
        units[i] = hak_superslab_take_units(1, 0);
        memset((void *)units[i]->base, 1, HAK_UNIT_BYTES);
    }
    give_maps(&whole, 0, whole.count / 2, 0);
    give_maps(&whole, whole.count / 2 + UNITS, whole.count, 0);
    refused = whole.chunk;
    refusals = 0;
    hak_purge_set_floor(0);
    for (unsigned i = 0; i < UNITS; i++) {
        give_maps(&whole, whole.count / 2 + i, whole.count / 2 + i + 1, 0);
        hak_superslab_give_units(units[i], false);
        hak_purge_pay();
        assert_int_equal(hak_superslab_count().dirty_units, 0);
    }
    assert_true(hak_maps_owed_bytes() != 0);
    assert_int_equal(refusals, 1);
    refused = NULL;
    hak_purge_set_floor(PTRDIFF_MAX);
    end_chunk(&whole);
}

/* ---- others meanwhile ---- */

enum { OTHERS = WHOLE_MAPS + WHOLE_MAPS / 2 };
static struct map others[OTHERS];
static unsigned others_count;

static void *take_many(void *unused) {
    for (; others_count < OTHERS; others_count++) {
        struct map *map = &others[others_count];
        map_take(map, HAK_SLAB_BLOCKS_MAX);
        struct range taken = {(const char *)map->headers - sizeof(struct hak_map_prefix),
                              sizeof(struct hak_map_prefix) + map->count + SLACK_BYTES};
        CHECK(are_disjoint(taken, (struct range){purged, purged_bytes}));
    }
    return unused;
}

static void let_another_thread_take_many(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_many, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void give_others(void) {
    while (others_count != 0) {
        map_give(&others[--others_count]);
    }
}

/* How many of the longest maps get a place there before more memory is mapped. */
static unsigned count_room(const struct hak_map_chunk *chunk) {
    static struct map maps[FILLERS_MAX];
    size_t mapped_bytes = hak_meta_mapped_bytes();
    unsigned count = 0, room = 0;
    while (hak_meta_mapped_bytes() == mapped_bytes) {
        CHECK(count < FILLERS_MAX);
        map_take(&maps[count], HAK_SLAB_BLOCKS_MAX);
        room += chunk_of(&maps[count++]) == chunk;
    }
    while (count != 0) {
        map_give(&maps[--count]);
    }
    return room;
}

/* More than there is room for elsewhere, so that the chunk is searched while it is being purged. */
static void nobody_gets_what_is_being_purged(void **state) {
    static struct whole whole;
    bool is_refused = *state != NULL;
    fill_chunk(&whole);
    give_maps(&whole, 1, whole.count, 0);
    assert_ptr_equal(chunk_of(&whole.maps[0]), whole.chunk);
    is_refusing = is_refused;
    meanwhile = let_another_thread_take_many;
    size_t given_bytes = 0;
    assert_int_equal(hak_maps_purge(&given_bytes), 1);
    assert_null(meanwhile);
    is_refusing = false;
    assert_int_equal(others_count, OTHERS);
    check_maps();
    /* And afterwards it is there for everybody. */
    assert_in_range(count_room(whole.chunk), whole.count * 9 / 10, whole.count);
    give_others();
    end_chunk(&whole);
}

static struct whole torn; /* is being purged while its last map is freed */

static void free_what_lies_beside(void) {
    give_maps(&torn, torn.count / 2, torn.count / 2 + 1, 0);
}

/* Lines that are freed beside those being purged are one run with them in the end. */
static void what_is_freed_beside_it_joins_it(void **state) {
    (void)state;
    size_t given_bytes = 0;
    fill_chunk(&torn);
    give_maps(&torn, 0, torn.count / 2, 0);
    give_maps(&torn, torn.count / 2 + 1, torn.count, 0);
    meanwhile = free_what_lies_beside;
    assert_int_equal(hak_maps_purge(&given_bytes), 1);
    assert_null(meanwhile);
    check_maps();
    end_chunk(&torn);
}

/* ---- fork ---- */

static atomic_bool is_purging, has_forked;

static void wait_for_fork(void) {
    atomic_store(&is_purging, true);
    while (!atomic_load(&has_forked)) {
        usleep(1000);
    }
}

static void *purge_slowly(void *unused) {
    size_t given_bytes = 0;
    hak_free(hak_malloc(1)); /* as every thread has done that gives something back */
    meanwhile = wait_for_fork;
    CHECK(hak_maps_purge(&given_bytes) == 1);
    return unused;
}

static void look_in_child(const struct whole *whole) {
    const char *why = "";
    hak_free(hak_malloc(5000));
    CHECK(hak_maps_verify(&why));
    CHECK(whole->chunk->purging_cells == 0);
    CHECK(count_room(whole->chunk) >= whole->count * 9 / 10);
    check_heap();
    _exit(0);
}

static void what_was_being_purged_is_free_in_the_child(void **state) {
    static struct whole whole;
    bool is_searched = *state != NULL;
    pthread_t thread;
    int status;
    atomic_store(&is_purging, false);
    atomic_store(&has_forked, false);
    fill_chunk(&whole);
    give_maps(&whole, 1, whole.count, 0);
    assert_int_equal(pthread_create(&thread, NULL, purge_slowly, NULL), 0);
    while (!atomic_load(&is_purging)) {
        usleep(1000);
    }
    assert_true(whole.chunk->purging_cells != 0);
    if (is_searched) {
        (void)take_many(NULL);
        give_others();
    }
    pid_t child = fork();
    if (child == 0) {
        look_in_child(&whole);
    }
    atomic_store(&has_forked, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_maps();
    end_chunk(&whole);
}

/* ---- damage ---- */

struct damage {
    const char *what;
    void *at;
    size_t bytes;
    uint64_t bits; /* turned over */
    const char *says;
};

static void turn_over(const struct damage *damage) {
    for (size_t i = 0; i < damage->bytes; i++) {
        ((unsigned char *)damage->at)[i] ^= (unsigned char)(damage->bits >> (8 * i));
    }
}

static void find(const struct damage *damage) {
    const char *why = "nothing";
    char text[200] = "";
    check_maps();
    turn_over(damage);
    bool is_sound = hak_maps_verify(&why);
    int result = hak_verify(text, sizeof text);
    turn_over(damage);
    if (is_sound || strstr(why, damage->says) == NULL || result == 0 || strstr(text, why) == NULL) {
        fail_msg("%s: \"%s\" and \"%s\" do not say \"%s\"", damage->what, why, text, damage->says);
    }
    check_maps();
}

#define FIELD(field, turned, text)                                                                           \
    { #field " ^ " #turned, (void *)(uintptr_t) & (field), sizeof(field), (uint64_t)(turned), text }

static void damages_are_found(void **state) {
    (void)state;
    static struct whole whole;
    fill_chunk(&whole);
    give_maps(&whole, 0, whole.count, 30);
    struct hak_map_chunk *c = whole.chunk;
    unsigned dirty = 0, used = 0;
    while (c->cells[dirty].used != 0) {
        dirty++;
    }
    while (c->cells[used].used != UINT64_MAX) {
        used++;
    }
    assert_true(c->owed_cells != 0 && c->dirty_cells != 0 && used < c->cell_count);
    const struct damage damages[] = {
        FIELD(c->used_lines, 1, "not what was counted"),
        FIELD(c->dirty_cells, 1, "not what was counted"),
        FIELD(c->owed_cells, c->owed_cells ^ (c->dirty_cells + 1), "more is to be purged than is free"),
        FIELD(c->owed_cells, 1, "to be purged"),
        FIELD(c->room_lines, c->room_lines ^ 1, "more room than is known"),
        FIELD(c->cells[used].used, 16, "a free line that no search would find"),
        FIELD(c->full_cells, c->full_cells ^ c->cell_count, "a free line that no search would find"),
        FIELD(c->cells[dirty].used, 16, "not what was counted"),
        FIELD(c->cells[used].stale, 16, "lines in use that count as zero"),
        FIELD(c->cells[dirty].stale, c->cells[dirty].stale, "not what was counted"),
    };
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        find(&damages[i]);
    }
    end_chunk(&whole);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, system_as_usual, heap_is_sound)
#define OTHER_FORM(name)                                                                                     \
    { #name " (2)", name, system_as_usual, heap_is_sound, (void *)1 }

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(empty_chunks_go_back_by_a_call_each),
        TEST(a_chunk_little_used_goes_back_between_its_maps),
        TEST(a_chunk_much_used_is_not_owed),
        TEST(a_chunk_is_owed_from_an_eighth_on),
        TEST(what_is_refused_is_not_asked_for_again_at_once),
        TEST(trim_gives_back_every_page_without_a_map),
        TEST(malloc_trim_trims_maps_too),
        TEST(steps_purge_maps_beyond_an_eighth_of_the_floor),
        TEST(what_is_refused_keeps_no_unit),
        TEST(nobody_gets_what_is_being_purged),
        OTHER_FORM(nobody_gets_what_is_being_purged), /* and the system refuses it */
        TEST(what_is_freed_beside_it_joins_it),
        TEST(what_was_being_purged_is_free_in_the_child),
        OTHER_FORM(what_was_being_purged_is_free_in_the_child), /* and was looked at meanwhile */
        TEST(damages_are_found),
    };
    void *page;
    CHECK(hak_os_map(NULL, hak_os_page_bytes(), &page) == 0 && hak_os_purge(page, hak_os_page_bytes()) == 0);
    hak_purge_set_floor(PTRDIFF_MAX); /* or steps would purge as well */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
