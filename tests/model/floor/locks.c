/*
 * locks.c - os/lock.h as one step each: what a lock promises. That the shipped lock keeps the promise is a
 * scenario of its own (scenarios/lock.c), where os/lock.c is what runs.
 */
#include "base/compiler.h"
#include "floor/floor.h"
#include "model/model.h"
#include "os/lock.h"
#include <pthread.h>

static HAK_TLS uint32_t held_ranks;
static HAK_TLS void *exit_value;
static void (*exit_function)(void *value);

void hak_lock_acquire(struct hak_lock *lock) {
    if ((held_ranks >> lock->rank) != 0) {
        model_fail("a lock of rank %u is taken with one of the same or a higher rank held", lock->rank);
    }
    model_lock(&lock->rank);
    held_ranks |= (uint32_t)1 << lock->rank;
}

void hak_lock_release(struct hak_lock *lock) {
    held_ranks &= ~((uint32_t)1 << lock->rank);
    model_unlock(&lock->rank);
}

void model_no_lock_is_held(void) {
    if (held_ranks != 0) {
        model_fail("a slow call with a lock held: ranks %#x", held_ranks);
    }
}

int pthread_key_create(pthread_key_t *key, void (*function)(void *value)) {
    exit_function = function;
    *key = 0;
    return 0;
}

int pthread_setspecific(pthread_key_t key, const void *value) {
    (void)key;
    exit_value = (void *)(uintptr_t)value;
    return 0;
}

void model_thread_exit(void) {
    for (unsigned round = 0; round < 4 && exit_value != NULL; round++) {
        void *value = exit_value;
        exit_value = NULL;
        exit_function(value);
    }
}
