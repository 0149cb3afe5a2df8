/*
 * fork.c - see fork.h.
 *
 * prepare takes every lock, lowest rank first, so that no other thread is inside a locked part when the
 * process is copied; then the forking thread passes through all locks, since other libraries' handlers may
 * allocate after ours ran. What is not under locks (caches, leases, header maps) is put right in the child:
 * see heap/child.h.
 */
#include "process/fork.h"
#include "heap/child.h"
#include "heap/heap.h"
#include "large/large.h"
#include "meta/arena.h"
#include "meta/registry.h"
#include "slab/orphans.h"
#include "slab/superslab.h"
#include <pthread.h>

/* Every lock of hakmem, in rank order; lists of heaps are as many as there are heaps, fixed by the heaps
 * lock. */
static void for_each_lock(void (*action)(struct hak_lock *)) {
    action(&hak_child_lock);
    action(&hak_heaps_lock);
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        action(&hak_orphans[c].lock);
    }
    for (uint32_t id = 1; id <= hak_heap_last_id(); id++) {
        struct heap *heap = hak_heap_by_id(id);
        if (heap != NULL) {
            action(&heap->remote.lock);
        }
    }
    action(&hak_large_lock);
    action(&hak_superslab_lock);
    action(&hak_meta_lock);
    action(&hak_registry_lock);
}

static HAK_COLD void prepare(void) {
    for_each_lock(hak_lock_fork_take);
    hak_lock_fork_begin();
}

static HAK_COLD void parent(void) {
    hak_lock_fork_end();
    for_each_lock(hak_lock_fork_give);
}

static HAK_COLD void child(void) {
    hak_lock_fork_end();
    for_each_lock(hak_lock_fork_reset);
    hak_child_begin();
}

void hak_fork_register(void) {
    (void)pthread_atfork(prepare, parent, child);
}
