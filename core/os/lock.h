/*
 * lock.h - the one lock of hakmem: a futex mutex with a rank.
 *
 * Held for some hundred nanoseconds, never across a system call that maps, unmaps or purges. A thread takes
 * locks in rising rank only (asserted in debug). A waiter spins a little, then sleeps, so a preempted holder
 * costs nobody a time slice of spinning. Algorithm: three-state mutex, U. Drepper, "Futexes are tricky"
 * (2011), mutex2.
 *
 * fork: the forking thread takes every lock in rank order (hak_lock_fork_begin afterwards) and then passes
 * through all of them, so that other libraries' atfork handlers may allocate, in whichever order they run.
 */
#ifndef HAK_OS_LOCK_H
#define HAK_OS_LOCK_H

#include "base/compiler.h"
#include <stdatomic.h>
#include <stdint.h>

/* Low ranks are taken first. One thread holds at most one lock of a rank. */
enum hak_lock_rank {
    HAK_RANK_NONE,
    HAK_RANK_PROCESS,   /* the rebuilding in the child of a fork */
    HAK_RANK_HEAPS,     /* table of heaps */
    HAK_RANK_SLAB_LIST, /* a class's orphans; a heap's slabs with remote frees */
    HAK_RANK_LARGE,     /* page runs and mapped blocks */
    HAK_RANK_SUPERSLAB, /* SuperSlab unit masks, tiers, LRU */
    HAK_RANK_META,      /* metadata arenas */
    HAK_RANK_REGISTRY,  /* registry leaves */
    HAK_RANK_CHANCE,    /* the generator of HAKMEM_RANDOMIZE */
    HAK_RANK_CRASH,     /* checked mode: who handles SIGSEGV */
    HAK_RANK_QUEUE,     /* checked mode: the quarantine */
    HAK_RANK_RECORDS,   /* checked mode: a shard of the blocks' records */
    HAK_RANK_COUNT,
};

struct hak_lock {
    _Atomic uint32_t state; /* 0 free, 1 held, 2 held and somebody may sleep */
    uint32_t rank;          /* const: enum hak_lock_rank */
};

#define HAK_LOCK_INIT(r)                                                                                     \
    { .state = 0, .rank = (r) }

void hak_lock_acquire(struct hak_lock *lock);
void hak_lock_release(struct hak_lock *lock);

/*
 * For a handler of faults, which may have come while its own thread holds a lock, that one even: false if it
 * cannot be had within HAK_LOCK_SOON_MS.
 */
HAK_COLD bool hak_lock_acquire_soon(struct hak_lock *lock);
#define HAK_LOCK_SOON_MS 20u

/*
 * For the fork handlers alone: taking one of many locks of a rank, giving it back in the parent, and making
 * it free in the child, where its waiters do not exist.
 */
void hak_lock_fork_take(struct hak_lock *lock);
void hak_lock_fork_give(struct hak_lock *lock);
void hak_lock_fork_reset(struct hak_lock *lock);

/* Whether nobody holds the lock: a hint, but for the only thread of a process. */
bool hak_lock_is_free(struct hak_lock *lock);

/* Called by the forking thread with every lock held; until fork_end it passes through all locks. */
void hak_lock_fork_begin(void);
void hak_lock_fork_end(void);

#endif
