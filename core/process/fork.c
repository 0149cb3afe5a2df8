/*
 * fork.c - see fork.h.
 *
 * prepare takes every lock, lowest rank first, so that no other thread is inside a locked part when the
 * process is copied; then the forking thread passes through all locks, since other libraries' handlers may
 * allocate after ours ran. Those that lock something of theirs, whose holder may be allocating, have to run
 * before: prepare handlers run in the reverse of the order in which they were registered, and the shared
 * library is linked to be initialised first (-z initfirst; glibc alone). What is not under locks (caches,
 * leases, header maps) is put right in the child: see heap/child.h.
 *
 * In a process of one thread no lock is taken, and nothing is put right: a signal handler may then fork
 * whatever it interrupts, also an operation that holds locks or another fork. What was interrupted goes on in
 * the child as it does in the parent. (With several threads the C library's own fork does not bear that.)
 */
#include "process/fork.h"
#include "heap/checked.h"
#include "heap/child.h"
#include "heap/heap.h"
#include "large/large.h"
#include "meta/arena.h"
#include "meta/registry.h"
#include "os/os.h"
#include "process/report.h"
#include "slab/chance.h"
#include "slab/orphans.h"
#include "slab/retention.h"
#include "slab/superslab.h"
#include <pthread.h>

/*
 * glibc's lock of the list of streams, a recursive one. fork takes it after the handlers, while whoever has
 * it may wait for a stream whose holder waits for a lock of ours: so it is taken before them. Absent
 * elsewhere.
 */
extern void _IO_list_lock(void) __attribute__((weak));
extern void _IO_list_unlock(void) __attribute__((weak));
extern void _IO_list_resetlock(void) __attribute__((weak));

static void call_if_there(void (*function)(void)) {
    if (function != NULL) {
        function();
    }
}

/* A fork is under way that took the locks. Written by the thread that has them. */
static bool has_locks;

/* Numbers of the heaps whose lists prepare() locked: 1 to this. Under the heaps lock. */
static uint32_t locked_heaps;

/* Every lock above the heaps lock, in rank order. */
static void for_each_higher_lock(void (*action)(struct hak_lock *), uint32_t last_heap) {
    for (unsigned i = 0; i < hak_orphan_lists(); i++) {
        action(&hak_orphans_at(i)->lock);
    }
    for (uint32_t id = 1; id <= last_heap; id++) {
        struct heap *heap = hak_heap_by_id(id);
        if (heap != NULL) {
            action(&heap->remote.lock);
        }
    }
    action(&hak_large_lock);
    action(&hak_superslab_lock);
    action(&hak_meta_lock);
    action(&hak_registry_lock);
    action(&hak_chance_lock);
    hak_checked_for_each_lock(action);
}

static HAK_COLD void prepare(void) {
    if (hak_os_is_only_thread()) {
        return;
    }
    call_if_there(_IO_list_lock);
    hak_lock_fork_take(&hak_child_lock);
    hak_lock_fork_take(&hak_heaps_lock);
    locked_heaps = hak_heap_last_id();
    /* Another handler's allocation may give this thread a heap: no list is added for that meanwhile. */
    hak_orphans_note_heaps(locked_heaps + 1);
    for_each_higher_lock(hak_lock_fork_take, locked_heaps);
    hak_lock_fork_begin();
    has_locks = true;
}

/* The heaps lock goes last: a heap that is entered now has a list whose lock was not taken here. */
static HAK_COLD void parent(void) {
    hak_chance_fork_parent();
    if (!has_locks) {
        return;
    }
    has_locks = false;
    hak_lock_fork_end();
    for_each_higher_lock(hak_lock_fork_give, locked_heaps);
    hak_lock_fork_give(&hak_heaps_lock);
    hak_lock_fork_give(&hak_child_lock);
    call_if_there(_IO_list_unlock);
}

static HAK_COLD void child(void) {
    hak_retention_set_helper(false); /* it is the parent's */
    hak_report_child_begin();
    /* Free but where a handler interrupted the drawing of a number, which goes on in the child with the old
     * key. */
    if (has_locks || hak_lock_is_free(&hak_chance_lock)) {
        hak_chance_fork_child();
    }
    if (!has_locks) {
        return;
    }
    has_locks = false;
    hak_lock_fork_end();
    for_each_higher_lock(hak_lock_fork_reset, hak_heap_last_id());
    hak_lock_fork_reset(&hak_heaps_lock);
    hak_lock_fork_reset(&hak_child_lock);
    call_if_there(_IO_list_resetlock);
    hak_large_fork_child();
    hak_child_begin();
}

void hak_fork_register(void) {
    (void)pthread_atfork(prepare, parent, child);
}
