/*
 * litmus.c - the checker itself: small programs whose outcomes under C11 are known. Each must show exactly
 * those: one more and the checker invents, one less and it overlooks.
 */
#include "base/atomic.h"
#include "scenarios/list.h"
#include <stdint.h>

static _Atomic uint32_t x, y;
static uint32_t a, b, c, d;
static uint32_t data;

/* ---- store buffering: both may read 0 ---- */

static void sb_one(void) {
    hak_atomic_store_relaxed(&x, 1u);
    a = hak_atomic_load_relaxed(&y);
}
static void sb_two(void) {
    hak_atomic_store_relaxed(&y, 1u);
    b = hak_atomic_load_relaxed(&x);
}
static void two_results(void) {
    model_outcome(a * 2 + b);
}
const struct model_scenario model_litmus_sb = {
    .name = "litmus-store-buffering",
    .claim = "00 01 10 11",
    .run = {sb_one, sb_two},
    .check = two_results,
    .outcomes = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
};

/* ---- message passing ---- */

static void mp_write(void) {
    hak_atomic_store_relaxed(&x, 1u);
    hak_atomic_store_release(&y, 1u);
}
static void mp_write_relaxed(void) {
    hak_atomic_store_relaxed(&x, 1u);
    hak_atomic_store_relaxed(&y, 1u);
}
static void mp_read(void) {
    a = hak_atomic_load_acquire(&y);
    b = hak_atomic_load_relaxed(&x);
}
const struct model_scenario model_litmus_mp = {
    .name = "litmus-message",
    .claim = "00 01 11: who sees the flag sees the message",
    .run = {mp_write, mp_read},
    .check = two_results,
    .outcomes = 1u << 0 | 1u << 1 | 1u << 3,
};
const struct model_scenario model_litmus_mp_relaxed = {
    .name = "litmus-message-relaxed",
    .claim = "00 01 10 11",
    .run = {mp_write_relaxed, mp_read},
    .check = two_results,
    .outcomes = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
};

/* ---- a message through somebody's read-modify-write ---- */

static void rs_pass_on(void) {
    (void)hak_atomic_add_relaxed(&y, 1u);
}
static void rs_read(void) {
    a = hak_atomic_load_acquire(&y);
    b = hak_atomic_load_relaxed(&x);
}
static void rs_results(void) {
    model_outcome(a * 2 + b);
}
const struct model_scenario model_litmus_sequence = {
    .name = "litmus-release-sequence",
    .claim = "flag 0, 1 or 2 with and without the message, but 2 only with it",
    .run = {mp_write, rs_pass_on, rs_read},
    .check = rs_results,
    /* a = 1 without the message: the add came first and the store is not seen, or came first and is over */
    .outcomes = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 5,
};

/* ---- 2+2 writes: each location may end with the first store of either thread ---- */

static void ww_one(void) {
    hak_atomic_store_relaxed(&x, 1u);
    hak_atomic_store_relaxed(&y, 2u);
}
static void ww_two(void) {
    hak_atomic_store_relaxed(&y, 1u);
    hak_atomic_store_relaxed(&x, 2u);
}
static void last_stores(void) {
    model_outcome((hak_atomic_load_relaxed(&x) - 1) * 2 + hak_atomic_load_relaxed(&y) - 1);
}
const struct model_scenario model_litmus_22w = {
    .name = "litmus-two-plus-two-writes",
    .claim = "all four",
    .run = {ww_one, ww_two},
    .check = last_stores,
    .outcomes = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
};

/* ---- coherence: one location never goes back ---- */

static void co_write(void) {
    hak_atomic_store_relaxed(&x, 1u);
    hak_atomic_store_relaxed(&x, 2u);
}
static void co_read(void) {
    a = hak_atomic_load_relaxed(&x);
    b = hak_atomic_load_relaxed(&x);
}
static void co_results(void) {
    model_outcome(a * 3 + b);
}
const struct model_scenario model_litmus_coherence = {
    .name = "litmus-coherence",
    .claim = "00 01 02 11 12 22",
    .run = {co_write, co_read},
    .check = co_results,
    .outcomes = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 4 | 1u << 5 | 1u << 8,
};

/* ---- independent reads of independent writes: two readers may disagree ---- */

static void iriw_x(void) {
    hak_atomic_store_release(&x, 1u);
}
static void iriw_y(void) {
    hak_atomic_store_release(&y, 1u);
}
static void iriw_read_xy(void) {
    a = hak_atomic_load_acquire(&x);
    b = hak_atomic_load_acquire(&y);
}
static void iriw_read_yx(void) {
    c = hak_atomic_load_acquire(&y);
    d = hak_atomic_load_acquire(&x);
}
static void four_results(void) {
    model_outcome(a * 8 + b * 4 + c * 2 + d);
}
const struct model_scenario model_litmus_iriw = {
    .name = "litmus-independent-reads",
    .claim = "all sixteen, 1010 too",
    .run = {iriw_x, iriw_y, iriw_read_xy, iriw_read_yx},
    .check = four_results,
    .outcomes = 0xFFFF,
};

/* ---- swaps: of two, one comes first ---- */

static void swap_one(void) {
    uint32_t expected = 0;
    a = hak_atomic_cas_relaxed(&x, &expected, 1u);
}
static void swap_two(void) {
    uint32_t expected = 0;
    b = hak_atomic_cas_relaxed(&x, &expected, 2u);
}
const struct model_scenario model_litmus_swaps = {
    .name = "litmus-swaps",
    .claim = "exactly one swaps",
    .run = {swap_one, swap_two},
    .check = two_results,
    .outcomes = 1u << 1 | 1u << 2,
};

/* ---- load buffering: neither reads the other's store. hakmem's model leaves 11 out, see README.md ---- */

static void lb_one(void) {
    a = hak_atomic_load_relaxed(&x);
    hak_atomic_store_relaxed(&y, 1u);
}
static void lb_two(void) {
    b = hak_atomic_load_relaxed(&y);
    hak_atomic_store_relaxed(&x, 1u);
}
const struct model_scenario model_litmus_lb = {
    .name = "litmus-load-buffering",
    .claim = "00 01 10; what C11 also allows on paper, 11, is left out",
    .run = {lb_one, lb_two},
    .check = two_results,
    .outcomes = 1u << 0 | 1u << 1 | 1u << 2,
};

/* ---- plain data: ordered by release and acquire, or a race ---- */

static void data_write(void) {
    data = 7;
    hak_atomic_store_release(&y, 1u);
}
static void data_read(void) {
    a = hak_atomic_load_acquire(&y);
    if (a != 0) {
        b = data;
        MODEL_CHECK(b == 7);
    }
}
const struct model_scenario model_litmus_data = {
    .name = "litmus-data",
    .claim = "who sees the flag may read the data",
    .run = {data_write, data_read},
};
