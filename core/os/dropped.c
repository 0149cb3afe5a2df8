/*
 * dropped.c - see hak_os_drop() in os.h: address space that could not be unmapped waits for a better time.
 *
 * To cut a piece out of a mapping takes one mapping more, which a process may not have (vm.max_map_count). No
 * lock: a thread has a place while it fills or empties it. Of one that was at that when another thread forked
 * the child knows nothing any more.
 */
#include "base/atomic.h"
#include "base/compiler.h"
#include "os/os.h"

#define PLACES 64u

/* Values of a place's start that are no address. */
#define EMPTY ((uintptr_t)0)
#define TAKEN ((uintptr_t)1)

struct place {
    _Atomic uintptr_t start;
    size_t bytes; /* who has the place TAKEN reads and writes it */
};
static HAK_TABLE struct place places[PLACES];

static bool put_into(struct place *place, void *address, size_t bytes) {
    uintptr_t empty = EMPTY;
    /* acquire: pairs with the store in try_again(), whose thread has read what stood there */
    if (!hak_atomic_cas_acquire(&place->start, &empty, TAKEN)) {
        return false;
    }
    place->bytes = bytes;
    hak_atomic_store_release(&place->start, (uintptr_t)address); /* pairs with the swap in try_again() */
    return true;
}

static bool keep(void *address, size_t bytes) {
    for (unsigned i = 0; i < PLACES; i++) {
        if (put_into(&places[i], address, bytes)) {
            return true;
        }
    }
    return false;
}

static void try_again(struct place *place) {
    uintptr_t start = hak_atomic_load_relaxed(&place->start); /* relaxed: the swap decides */
    /* acquire: pairs with the stores in put_into() and try_again() */
    if (start == EMPTY || start == TAKEN || !hak_atomic_cas_acquire(&place->start, &start, TAKEN)) {
        return;
    }
    bool is_gone = hak_os_unmap((void *)start, place->bytes) == 0;
    /* release: pairs with the swaps in put_into() and try_again() */
    hak_atomic_store_release(&place->start, is_gone ? EMPTY : start);
}

HAK_COLD void hak_os_drop_again(void) {
    for (unsigned i = 0; i < PLACES; i++) {
        try_again(&places[i]);
    }
}

static HAK_COLD void drop_later(void *address, size_t bytes) {
    (void)hak_os_purge(address, bytes);
    if (!keep(address, bytes)) {
        hak_os_drop_again();
        (void)keep(address, bytes);
    }
}

void hak_os_drop(void *address, size_t bytes) {
    if (bytes != 0 && hak_os_unmap(address, bytes) != 0) {
        drop_later(address, bytes);
    }
}
