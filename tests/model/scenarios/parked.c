/*
 * parked.c - runs that are parked, taken from where they are parked, and flushed, with double frees between.
 */
#include "large/parked.h"
#include "conf/options.h"
#include "heap/heap.h"
#include "large/large.h"
#include "large/run.h"
#include "meta/arena.h"
#include "scenarios/kit.h"
#include "scenarios/list.h"
#include <string.h>
#include <sys/mman.h>

#define RUN_BYTES    ((size_t)40 * 1024)
#define LONGER_BYTES ((size_t)80 * 1024) /* too long for a request of RUN_BYTES */

static void *first, *second, *longer;
static unsigned freed_count;
static _Atomic unsigned freed[3];

static void use(void *block) {
    ++*(unsigned *)block;
}

static void *ask_for(size_t bytes) {
    bool is_zero;
    void *block = hak_large_alloc(bytes, HAK_ALIGN_BYTES, &is_zero);
    MODEL_CHECK(block != NULL);
    return block;
}

static void ask(void) {
    first = ask_for(RUN_BYTES);
}

static void ask_longer(void) {
    longer = ask_for(LONGER_BYTES);
}

/* Four threads take the four shards; so threads 0 and 1 share one, in which the length is wanted. */
static void share_a_shard(void) {
    static void (*const asked[])(void) = {ask, ask, ask, ask};
    static const unsigned order[] = {0, 2, 3, 4};
    for (unsigned i = 0; i < 4; i++) {
        model_as(order[i], asked[i]);
    }
    model_as(1, ask);
    second = first;
    model_as(0, ask);
}

static void use_and_free(void *block) {
    use(block);
    hak_large_free("free()", block, hak_registry_word(block));
}

static void free_first(void) {
    use_and_free(first);
}

static void free_second(void) {
    use_and_free(second);
}

static void free_longer(void) {
    use_and_free(longer);
}

/* The same, and the longer run lies where the latest one does: so the others go to their rows. */
static void share_the_rows(void) {
    share_a_shard();
    model_as(0, ask_longer);
    model_as(0, ask_longer);
    model_as(0, kit_attach);
    model_as(0, free_longer);
}

static void ask_and_use_any(void) {
    use(ask_for(RUN_BYTES));
}

static void ask_and_use(void) {
    void *block = ask_for(RUN_BYTES);
    MODEL_CHECK(block != second);
    use(block);
}

static int count_block(void *block, size_t usable_bytes, void *context) {
    (void)block;
    (void)usable_bytes;
    ++*(size_t *)context;
    return 0;
}

/* What is neither free nor parked is the program's: no run is lost, none is in two slots. */
static void is_sound(void) {
    const char *broken = NULL;
    size_t blocks = 0;
    if (!hak_large_verify(&broken)) {
        model_fail("verification: %s", broken);
    }
    (void)hak_large_walk(count_block, &blocks);
    MODEL_CHECK(blocks == hak_large_count().live_blocks);
}

const struct model_scenario model_parked_pair = {
    .name = "parked-pair",
    .claim = "a run parked by one thread and taken by another carries all its last user wrote",
    .prepare = share_a_shard,
    .set_up = {kit_attach, kit_attach},
    .run = {free_first, ask_and_use},
    .check = is_sound,
};

const struct model_scenario model_parked_row_pair = {
    .name = "parked-row-pair",
    .claim = "a run parked in its row by one thread and taken by another carries all its last user wrote",
    .prepare = share_the_rows,
    .set_up = {kit_attach, kit_attach},
    .run = {free_first, ask_and_use},
    .check = is_sound,
};

static void flush_and_ask(void) {
    struct hak_run run;
    hak_lock_acquire(&hak_large_lock);
    hak_parked_flush(true);
    hak_lock_release(&hak_large_lock);
    MODEL_CHECK(hak_run_alloc(RUN_BYTES, HAK_ALIGN_BYTES, &run));
    use(hak_extent_address(run.extent, run.page, 4096));
}

const struct model_scenario model_parked_flush = {
    .name = "parked-flush",
    .claim = "a run is taken by a request or by the flush that empties its slot, never by both",
    .prepare = share_a_shard,
    .set_up = {kit_attach, kit_attach, kit_attach},
    .run = {free_first, ask_and_use, flush_and_ask},
    .check = is_sound,
};

const struct model_scenario model_parked_row_flush = {
    .name = "parked-row-flush",
    .claim = "a run in its row is taken by a request or by the flush that empties the row, never by both",
    .prepare = share_the_rows,
    .set_up = {kit_attach, kit_attach, kit_attach},
    .run = {free_first, ask_and_use, flush_and_ask},
    .check = is_sound,
};

/* What a free does before it would end the program. */
static void free_if_live(void) {
    struct hak_extent *extent = hak_word_address(hak_registry_word(first));
    void *evicted;
    bool is_freed = hak_parked_put(extent, first, &evicted) || hak_run_free(extent, first);
    MODEL_CHECK(evicted == NULL);
    /* relaxed: read after the threads */
    hak_atomic_store_relaxed(&freed[model_thread()], (unsigned)is_freed);
}

static void one_was_right(void) {
    for (unsigned t = 0; t < 2; t++) {
        freed_count += hak_atomic_load_relaxed(&freed[t]); /* relaxed: after the threads */
    }
    MODEL_CHECK(freed_count == 1);
    is_sound();
}

const struct model_scenario model_parked_double = {
    .name = "parked-double-free",
    .claim = "of two frees of one run, one is right and the other is told so",
    .prepare = share_a_shard,
    .set_up = {kit_attach, kit_attach, kit_attach},
    .run = {free_if_live, free_if_live, free_second},
    .check = one_was_right,
};

const struct model_scenario model_parked_row_double = {
    .name = "parked-row-double-free",
    .claim = "of two frees of one run that goes to its row, one is right and the other is told so",
    .prepare = share_the_rows,
    .set_up = {kit_attach, kit_attach, kit_attach},
    .run = {free_if_live, free_if_live, free_second},
    .check = one_was_right,
};

static unsigned taken;

/* A run was parked in its row and taken from there, so that the row seems to hold one. */
static void empty_the_row(void) {
    share_the_rows();
    model_as(0, free_first);
    model_as(0, ask);
}

/* Each thread looks at all of its shard in one of 256 requests. */
static void ask_long_enough(void) {
    for (unsigned i = 0; i < 2 * 256; i++) {
        taken += hak_parked_take(RUN_BYTES) != NULL;
    }
}

static void all_are_found(void) {
    size_t in_row = hak_parked_count().blocks - 1; /* the longer one does not serve */
    model_as(0, ask_long_enough);
    MODEL_CHECK(taken == in_row && hak_parked_count().blocks == 1);
    is_sound();
}

const struct model_scenario model_parked_recount = {
    .name = "parked-recount",
    .claim = "a row that one thread notes to be empty while another parks a run there is found in time",
    .prepare = empty_the_row,
    .set_up = {kit_attach, kit_attach},
    .run = {free_first, ask_and_use},
    .check = all_are_found,
};

static void have_one_shard(void) {
    MODEL_CHECK(mprotect(&hak_options, sizeof hak_options, PROT_READ | PROT_WRITE) == 0);
    hak_options.parked_shards = 1;
}

/* Three threads share a shard, in which both lengths are wanted. */
static void share_one_shard(void) {
    static void (*const asked[])(void) = {ask, ask_longer, ask_longer, ask};
    have_one_shard();
    for (unsigned i = 0; i < 4; i++) {
        model_as(i % 3, asked[i]);
        second = i == 0 ? first : second;
    }
}

const struct model_scenario model_parked_settle = {
    .name = "parked-settle-pair",
    .claim = "a run that a longer one drives from the latest's place carries all its last user wrote",
    .prepare = share_one_shard,
    .set_up = {kit_attach, kit_attach, kit_attach},
    .run = {free_first, free_longer, ask_and_use},
    .check = is_sound,
};

/* The same, and the shorter one lies where the latest does, to be driven out. */
static void park_second(void) {
    share_one_shard();
    model_as(0, kit_attach);
    model_as(0, free_second);
}

const struct model_scenario model_parked_settle_flush = {
    .name = "parked-settle-flush",
    .claim = "a run on its way to its row is freed by the flush before or after, or stays: never lost",
    .prepare = park_second,
    .set_up = {kit_attach, kit_attach},
    .run = {free_longer, flush_and_ask},
    .check = is_sound,
};

const struct model_scenario model_parked_settle_put = {
    .name = "parked-settle-put",
    .claim = "a run that finds its place in the row taken by another, as it comes there, is freed",
    .prepare = park_second,
    .set_up = {kit_attach, kit_attach},
    .run = {free_longer, free_first},
    .check = is_sound,
};

const struct model_scenario model_parked_settle_take = {
    .name = "parked-settle-take",
    .claim = "a run on its way to its row, or one that comes between, is taken by a request, or stays",
    .prepare = park_second,
    .set_up = {kit_attach, kit_attach, kit_attach},
    .run = {free_longer, free_first, ask_and_use_any},
    .check = is_sound,
    .is_deep = true,
};

enum { SHARD_LINES_MAX = 40 };

/* Two threads share the shard that neither has made yet, and what it is made of was used before. */
static void one_shard_to_come(void) {
    void *pieces[SHARD_LINES_MAX];
    have_one_shard();
    for (size_t i = 0; i < SHARD_LINES_MAX; i++) {
        pieces[i] = hak_meta_alloc((i + 1) * HAK_CACHE_LINE_BYTES);
        memset(pieces[i], 0xFF, (i + 1) * HAK_CACHE_LINE_BYTES);
    }
    for (size_t i = 0; i < SHARD_LINES_MAX; i++) {
        hak_meta_free(pieces[i], (i + 1) * HAK_CACHE_LINE_BYTES);
    }
}

static void find_nothing(void) {
    MODEL_CHECK(hak_parked_take(RUN_BYTES) == NULL);
}

static void nothing_is_parked(void) {
    MODEL_CHECK(hak_parked_count().blocks == 0);
}

const struct model_scenario model_parked_shard = {
    .name = "parked-shard",
    .claim = "who finds a shard that another thread has just made finds it empty",
    .prepare = one_shard_to_come,
    .set_up = {kit_attach, kit_attach},
    .run = {find_nothing, find_nothing},
    .check = nothing_is_parked,
};
