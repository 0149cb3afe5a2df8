/*
 * lock.c - the shipped lock, os/lock.c, compiled under other names so that it stands beside the floor's.
 */
#include "os/lock.h"
#include "floor/floor.h"
#include "scenarios/list.h"

void shipped_lock_acquire(struct hak_lock *lock);
void shipped_lock_release(struct hak_lock *lock);

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_PROCESS);
static unsigned entered; /* plain: a race if two are inside at once, or the next one does not see the last */

static void enter_once(void) {
    shipped_lock_acquire(&lock);
    entered++;
    shipped_lock_release(&lock);
}

/* The lock's own name: the floor has none that gives up. */
static void enter_soon(void) {
    if (hak_lock_acquire_soon(&lock)) {
        entered++;
        shipped_lock_release(&lock);
    }
}

static void enter_twice(void) {
    enter_once();
    enter_once();
}

static void two_entered_thrice(void) {
    MODEL_CHECK(entered == 3);
}

static void three_entered(void) {
    MODEL_CHECK(entered == 3);
}

static void let_time_pass(void) {
    model_ms_per_look = HAK_LOCK_SOON_MS;
    model_free_looks = 2;
}

/* Who gives up has done nothing. */
static void two_or_three_entered(void) {
    MODEL_CHECK(entered == 2 || entered == 3);
}

const struct model_scenario model_lock_two = {
    .name = "lock-two-threads",
    .claim = "one at a time, each sees what the last one did, nobody sleeps for ever",
    .run = {enter_twice, enter_once},
    .check = two_entered_thrice,
};

const struct model_scenario model_lock_three = {
    .name = "lock-three-threads",
    .claim = "the same with two that may sleep",
    .run = {enter_once, enter_once, enter_once},
    .check = three_entered,
};

const struct model_scenario model_lock_soon = {
    .name = "lock-soon",
    .claim = "who gives up after a while is not inside; who does not sees what the last one did",
    .prepare = let_time_pass,
    .run = {enter_twice, enter_soon},
    .check = two_or_three_entered,
};
