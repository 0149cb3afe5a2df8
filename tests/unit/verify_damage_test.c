/*
 * verify_damage_test.c - verification finds every damage that is planted, says what it is, and finds none
 * where there is none, other threads at work or not.
 *
 * suite: limit 120 s
 */
#define _GNU_SOURCE
#include "hakmem.h"
#include "heap/heap.h"
#include "large/extent.h"
#include "large/mapping.h"
#include "large/retain.h"
#include "meta/classes.h"
#include "slab/orphans.h"
#include "slab/slab_word.h"
#include "slab/superslab_pool.h"
#include "support/rng.h"
#include "support/target.h"
#include "support/test.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SMALL_BYTES  ((size_t)256)
#define WIDE_BYTES   ((size_t)10240) /* three units a slab */
#define RUN_BYTES    (300 * KIB)
#define MAPPED_BYTES (3 * MIB)
#define BLOCKS       200u

/* ---- a clock that does not make verification wait ---- */

static _Atomic int is_hurried;
static _Atomic long ahead_ms;

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (is_hurried) {
        ahead_ms += 700;
    }
    now->tv_sec += ahead_ms / 1000;
    return result;
}

/* ---- a heap with something of everything ---- */

static struct {
    void *small[BLOCKS];
    void *wide;
    void *run, *freed_run, *last_run;
    void *mapped, *freed_mapped, *last_mapped;
    struct slab *slab;   /* of small[0] */
    struct slab *orphan; /* of another class, listed */
    struct superslab *superslab;
    struct hak_extent *extent;
    struct hak_mapping *mapping, *kept;
    struct class_state *state; /* of the small class */
    unsigned class_idx;
} is;

static void *leave_an_orphan(void *unused) {
    (void)unused;
    return hak_malloc(1000);
}

static struct hak_mapping *mapping_at(const void *p) {
    for (struct hak_mapping *m = hak_mapping_first(); m != NULL; m = m->all_next) {
        if ((m->state == HAK_MAPPING_LIVE || m->state == HAK_MAPPING_KEPT) && m->base == (uintptr_t)p) {
            return m;
        }
    }
    return NULL;
}

static int fill_the_heap(void **state) {
    (void)state;
    pthread_t thread;
    void *orphaned;
    hak_large_policy.floor_bytes = 2 * MAPPED_BYTES; /* the freed mapping stays */
    is.class_idx = hak_class_of(SMALL_BYTES);
    for (unsigned i = 0; i < BLOCKS; i++) {
        is.small[i] = hak_malloc(SMALL_BYTES);
    }
    for (unsigned i = BLOCKS / 2; i < BLOCKS; i++) {
        hak_free(is.small[i]);
    }
    is.wide = hak_malloc(WIDE_BYTES);
    is.run = hak_malloc(RUN_BYTES);
    is.freed_run = hak_malloc(RUN_BYTES);
    is.last_run = hak_malloc(RUN_BYTES);
    memset(is.freed_run, 1, RUN_BYTES);
    hak_free(is.freed_run);
    is.mapped = hak_malloc(MAPPED_BYTES);
    is.freed_mapped = hak_malloc(MAPPED_BYTES);
    is.last_mapped = hak_malloc(MAPPED_BYTES);
    memset(is.freed_mapped, 1, MAPPED_BYTES);
    hak_free(is.freed_mapped);
    CHECK(pthread_create(&thread, NULL, leave_an_orphan, NULL) == 0);
    CHECK(pthread_join(thread, &orphaned) == 0);
    is.slab = hak_slab_of_block(is.small[0]);
    is.orphan = hak_slab_of_block(orphaned);
    is.superslab = hak_superslab_of(is.slab);
    is.extent = hak_word_address(hak_registry_word(is.run));
    is.mapping = hak_word_address(hak_registry_word(is.mapped));
    is.kept = mapping_at(is.freed_mapped);
    is.state = &hak_tls.heap->classes[is.class_idx];
    is_hurried = 1;
    return is.kept != NULL && is.state->array != NULL ? 0 : -1;
}

/* ---- damages ---- */

/* So many bits somewhere, turned over. */
struct damage {
    const char *what;
    void *at;
    size_t bytes;
    uint64_t bits;
    const char *says; /* part of what verification must say */
};

static void turn_over(const struct damage *damage) {
    unsigned char *at = damage->at;
    for (size_t i = 0; i < damage->bytes; i++) {
        at[i] ^= (unsigned char)(damage->bits >> (8 * i));
    }
}

static void find(const struct damage *damage) {
    char why[200] = "";
    assert_int_equal(hak_verify(NULL, 0), 0);
    turn_over(damage);
    int result = hak_verify(why, sizeof why);
    turn_over(damage);
    if (result == 0 || strstr(why, damage->says) == NULL) {
        fail_msg("%s: \"%s\" does not say \"%s\"", damage->what, why, damage->says);
    }
    assert_int_equal(hak_verify(why, sizeof why), 0);
}

#define FIELD(field, turned, text)                                                                           \
    { #field " ^ " #turned, (void *)(uintptr_t) & (field), sizeof(field), (uint64_t)(turned), text }

static void damages_of_slabs_are_found(void **state) {
    (void)state;
    unsigned carved = is.slab->carved_blocks;
    struct superslab *of_wide = hak_superslab_of(hak_slab_of_block(is.wide));
    struct hak_leaf *leaf = hak_registry.top[is.slab->base >> HAK_LEAF_SHIFT];
    _Atomic hak_word *word = &leaf->words[(uint32_t)is.slab->base >> HAK_UNIT_SHIFT];
    _Atomic uint32_t *reciprocal = &leaf->reciprocals[(uint32_t)is.slab->base >> HAK_UNIT_SHIFT];
    struct slab *wide = hak_slab_of_block(is.wide);
    _Atomic hak_word *further = &leaf->words[(uint32_t)(wide->base + HAK_UNIT_BYTES) >> HAK_UNIT_SHIFT];
    struct slab **owner_of_map = (struct slab **)((uintptr_t)is.slab->map - 16);
    CHECK(carved < is.slab->capacity_blocks && of_wide != NULL);
    const struct damage damages[] = {
        FIELD(is.slab->word, 1, "its count of free blocks"),
        FIELD(is.slab->map[0], 0x40, "in no state"),
        FIELD(is.slab->map[0], 0x01, "in no state"), /* live, of another class */
        FIELD(is.slab->map[carved], HAK_HEADER_FREE, "beyond the carved ones"),
        FIELD(is.slab->carved_blocks, 0x8000, "out of range"),
        FIELD(is.slab->carved_blocks, carved ^ (carved + 1), "in no state"),
        FIELD(is.slab->carved_blocks, carved ^ (carved - 1), "beyond the carved ones"),
        FIELD(is.slab->capacity_blocks, 1, "out of range"),
        FIELD(*word, (uint64_t)1 << 20, "registry word"),
        FIELD(*reciprocal, 1, "the reciprocal"),
        FIELD(*word, 1, "registry word"),
        FIELD(*further, 1, "registry word"),
        FIELD(*owner_of_map, 64, "names another slab"),
    };
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        find(&damages[i]);
    }
    /* A live block that is marked free: the count tells. */
    const struct damage freed = {"a live header becomes FREE", (void *)&is.slab->map[0], 1,
                                 is.slab->map[0] ^ HAK_HEADER_FREE, "its count of free blocks"};
    find(&freed);
}

static void damages_of_caches_are_found(void **state) {
    (void)state;
    struct block_ref *entry = &is.state->array[1];
    uint64_t to_wide = (uintptr_t)entry->block ^ (uintptr_t)is.wide;
    const struct damage damages[] = {
        FIELD(*entry->header, HAK_HEADER_CACHED ^ (HAK_HEADER_LIVE + is.class_idx), "is not marked CACHED"),
        FIELD(entry->block, to_wide, "under another class"),
        FIELD(is.state->capacity_blocks, is.state->capacity_blocks ^ 1, "more than it can"),
        FIELD(is.state->warm_count, 0x40, "more than it can"),
    };
    assert_int_equal(*entry->header, HAK_HEADER_CACHED);
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        find(&damages[i]);
    }
}

static void damages_of_lists_are_found(void **state) {
    (void)state;
    struct slab_list *orphans = hak_atomic_load_relaxed(&is.orphan->list); /* relaxed: one thread */
    assert_ptr_equal(orphans->head, is.orphan);
    const struct damage damages[] = {
        FIELD(orphans->count, 1, "orphans"),
        FIELD(is.orphan->prev, (uintptr_t)is.slab, "orphans"),
        FIELD(is.orphan->list, 64, "orphans"),
        FIELD(orphans->head, (uintptr_t)orphans->head, "orphans"),
        FIELD(hak_tls.heap->remote.count, 1, "remote frees"),
    };
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        find(&damages[i]);
    }
}

static void damages_of_superslabs_are_found(void **state) {
    (void)state;
    struct superslab *s = is.superslab;
    struct superslab_pool *pool = &hak_superslab_pool;
    uint32_t used = (uint32_t)1 << is.slab->unit_idx;
    uint32_t dirty = hak_superslab_dirty(s);
    uint32_t zero = s->zero_units & -s->zero_units;
    CHECK(zero != 0);
    const struct damage damages[] = {
        FIELD(s->zero_units, used, "zero units that are not free"),
        FIELD(s->zero_units, zero, "counts"),
        FIELD(s->purging_units, zero, "both free and being purged"),
        FIELD(s->purging_units, used, "units of a slab marked free"),
        FIELD(s->free_units, used, "units of a slab marked free"),
        FIELD(s->free_units, dirty != 0 ? dirty & -dirty : zero, dirty != 0 ? "counts" : "not free"),
        FIELD(s->tier, s->tier ^ HAK_TIER_FREE, "in the LRU but not empty"),
        FIELD(pool->free_units, 1, "counts"),
        FIELD(pool->dirty_units, 1, "counts"),
        FIELD(pool->light_units, 1, "counts"),
        FIELD(pool->empty_count, 1, "counts"),
        FIELD(pool->mapped_count, 1, "counts"),
        FIELD(pool->whole_count, 1, "counts"),
    };
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        find(&damages[i]);
    }
}

/* Which of the sums and records that no longer agree is named is verify_test.c's concern. */
static void damages_of_extents_are_found(void **state) {
    (void)state;
    struct hak_extent *e = is.extent;
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    unsigned live = (unsigned)(((uintptr_t)is.run - e->base) / page_bytes);
    unsigned freed = (unsigned)(((uintptr_t)is.freed_run - e->base) / page_bytes);
    unsigned pages = (unsigned)(RUN_BYTES / page_bytes);
    struct hak_run_node *node = &e->nodes[freed / 2];
    assert_int_equal(node->pages, pages);
    const struct damage damages[] = {
        FIELD(e->run_pages[live], 0x8000, ":"),
        FIELD(e->run_pages[live + pages - 1], 1, ":"),
        FIELD(e->live_starts.words[freed / 64], (uint64_t)1 << freed % 64, ":"),
        FIELD(e->free_ends.words[(live + 1) / 64], (uint64_t)1 << (live + 1) % 64, ":"),
        FIELD(e->dirty.words[live / 64], (uint64_t)1 << live % 64, ":"),
        FIELD(e->dirty.words[freed / 64], (uint64_t)1 << freed % 64, ":"),
        FIELD(node->page, 1, ":"),
        FIELD(node->prev, (uintptr_t)e->nodes, ":"),
        FIELD(node->is_dirty, 1, ":"),
        FIELD(e->handed[live].number, 1, ":"),
        FIELD(e->handed[live + 1].number, 1, ":"),
        FIELD(e->handed[freed].number, 1, ":"),
        FIELD(e->freed_pages[live], 1, ":"),
        FIELD(e->free_pages, 1, ":"),
        FIELD(e->held_pages, 1, ":"),
        FIELD(e->dirty_pages, 1, ":"),
        FIELD(hak_retain.live_bytes, 4096, ":"),
        FIELD(hak_retain.live_blocks, 1, ":"),
        FIELD(hak_retain.dirty_bytes, 4096, ":"),
    };
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        find(&damages[i]);
    }
}

static void damages_of_mappings_are_found(void **state) {
    (void)state;
    const struct damage damages[] = {
        FIELD(is.mapping->bytes, 4096, ":"),
        FIELD(is.mapping->base, 4096, ":"),
        FIELD(is.mapping->bytes, HAK_UNIT_BYTES, ":"),
        FIELD(is.kept->dirty_bytes, (uint64_t)1 << 40, ":"),
        FIELD(is.kept->dirty_bytes, MIB, ":"),
        FIELD(is.mapping->before, (uintptr_t)is.mapping->before ^ (uintptr_t)is.kept, ":"),
        FIELD(is.mapping->seams.count, 2, ":"),
        FIELD(hak_mapping_totals.live_count, 1, ":"),
        FIELD(hak_mapping_totals.live_bytes, HAK_UNIT_BYTES, ":"),
        FIELD(hak_mapping_totals.kept_count, 1, ":"),
        FIELD(hak_mapping_totals.kept_bytes, HAK_UNIT_BYTES, ":"),
    };
    for (size_t i = 0; i < COUNT_OF(damages); i++) {
        find(&damages[i]);
    }
    struct hak_leaf *leaf = hak_registry.top[is.mapping->base >> HAK_LEAF_SHIFT];
    const struct damage word = {"a mapping's word",
                                &leaf->words[(uint32_t)is.mapping->base >> HAK_UNIT_SHIFT], 8,
                                (uint64_t)1 << 30, ":"};
    find(&word);
}

/* ---- a busy heap ---- */

static _Atomic int is_over;

/* Blocks of all kinds, many of them freed by the next thread. */
static void *churn(void *seed) {
    static _Atomic(void *) shared[64];
    struct rng rng = rng_seeded((uintptr_t)seed);
    while (!is_over) {
        static const size_t sizes[] = {16, 100, 1000, 8000, 32768, 100 * KIB, 2 * MIB};
        void *block = hak_malloc(sizes[rng_below(&rng, COUNT_OF(sizes))]);
        CHECK(block != NULL);
        *(char *)block = 1;
        hak_free(atomic_exchange(&shared[rng_below(&rng, COUNT_OF(shared))], block));
    }
    for (unsigned i = 0; i < COUNT_OF(shared); i++) {
        hak_free(atomic_exchange(&shared[i], NULL));
    }
    return NULL;
}

/* What a busy heap keeps from being looked at: a slab whose lease somebody holds all the time, no more. */
static void a_slab_that_is_never_let_go_of_is_left_out(void **state) {
    (void)state;
    const struct damage damage = FIELD(is.orphan->map[0], 0x40, "in no state");
    const struct damage other = FIELD(is.slab->map[0], 0x40, "in no state");
    assert_true(hak_slab_lease_any(is.orphan));
    turn_over(&damage);
    assert_int_equal(hak_verify(NULL, 0), 0);
    find(&other);
    turn_over(&damage);
    assert_int_equal(hak_slab_release_any(is.orphan, 0), HAK_EVENT_NONE);
    find(&damage);
}

static void a_busy_heap_is_not_blamed(void **state) {
    (void)state;
    pthread_t threads[3];
    char why[200] = "";
    is_hurried = 0;
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    }
    for (unsigned i = 0; i < 30 * test_scale(); i++) {
        if (hak_verify(why, sizeof why) != 0) {
            fail_msg("after %u rounds: %s", i, why);
        }
    }
    is_over = 1;
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(hak_verify(why, sizeof why), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damages_of_slabs_are_found),
        cmocka_unit_test(damages_of_caches_are_found),
        cmocka_unit_test(damages_of_lists_are_found),
        cmocka_unit_test(damages_of_superslabs_are_found),
        cmocka_unit_test(damages_of_extents_are_found),
        cmocka_unit_test(damages_of_mappings_are_found),
        cmocka_unit_test(a_slab_that_is_never_let_go_of_is_left_out),
        cmocka_unit_test(a_busy_heap_is_not_blamed),
    };
    return cmocka_run_group_tests(tests, fill_the_heap, NULL);
}
