/*
 * traces.c - the table of call stacks: kept by several threads.
 */
#include "check/trace_table.h"
#include "scenarios/kit.h"
#include "scenarios/list.h"

#define FRAMES 2u

/* In the models' table of few buckets all three meet in one. */
static void *const stacks[2][FRAMES] = {{(void *)0x1000, (void *)0x2000}, {(void *)0x1000, (void *)0x3000}};
static const struct hak_trace *kept[MODEL_THREADS_MAX];

static void make_table(void) {
    MODEL_CHECK(hak_trace_table_prepare() == 0);
}

static bool is_stack(const struct hak_trace *trace, void *const *stack) {
    void *const *frames;
    return hak_trace_frames(trace, &frames) == FRAMES && frames[0] == stack[0] && frames[1] == stack[1];
}

static void keep(unsigned idx) {
    kept[model_thread()] = hak_trace_keep(stacks[idx], FRAMES);
    MODEL_CHECK(is_stack(kept[model_thread()], stacks[idx]));
}

static void keep_first(void) {
    keep(0);
}

static void keep_second(void) {
    keep(1);
}

/* Kept twice at worst: both threads came at once. */
static void is_kept(void) {
    const struct hak_trace *found = hak_trace_keep(stacks[0], FRAMES);
    MODEL_CHECK(found == kept[0] || found == kept[1]);
}

const struct model_scenario model_traces_same = {
    .name = "traces-same",
    .claim = "a stack that two threads keep at once is found whole by both",
    .prepare = make_table,
    .run = {keep_first, keep_first},
    .check = is_kept,
};

static void are_kept(void) {
    MODEL_CHECK(hak_trace_keep(stacks[0], FRAMES) == kept[0] && hak_trace_keep(stacks[1], FRAMES) == kept[1]);
}

const struct model_scenario model_traces_two = {
    .name = "traces-two",
    .claim = "of two stacks that are added to one bucket at once neither is lost",
    .prepare = make_table,
    .run = {keep_first, keep_second},
    .check = are_kept,
};
