/*
 * slab_list.h - a locked list of slabs: a class's orphans, or a heap's slabs with remote frees.
 *
 * A slab is linked and unlinked under the list's lock; it is linked only by the holder of its lease, and its
 * place becomes LISTED together with the release of that lease, under the lock. So whoever finds it in the
 * list and not leased may take it.
 */
#ifndef HAK_SLAB_SLAB_LIST_H
#define HAK_SLAB_SLAB_LIST_H

#include "os/lock.h"
#include "slab/slab.h"

/* Of a list's crowding: more than one operation in nine has waited, for a while. */
#define HAK_CROWDED 256u

struct slab_list {
    struct hak_lock lock;
    bool is_open;              /* under lock: a closed list refuses slabs */
    _Atomic uint16_t crowding; /* written under lock: how often, of late, somebody else had it */
    struct slab *head;         /* under lock: most recently listed */
    _Atomic size_t count;      /* written under lock; read anywhere as a hint */
};

/*
 * Links a leased slab and gives the lease back. False when the list is closed: the lease is still held.
 * *event is NONE, or (lease held, not linked) what is due before that: RETIRE, THIN or RAGGED.
 */
bool hak_slab_list_push(struct slab_list *list, struct slab *slab, uint32_t owner,
                        enum hak_slab_event *event);

/*
 * Unlinks a slab of the list and takes its lease, place NOWHERE; NULL when there is none to be had. Prefers
 * the one with the fewest free blocks among the first few.
 */
struct slab *hak_slab_list_pop(struct slab_list *list);

/* Unlinks a leased slab from whichever list it is in. */
void hak_slab_list_unlink(struct slab *slab);

void hak_slab_list_open(struct slab_list *list);
void hak_slab_list_close(struct slab_list *list);

/* Empties the list without touching the slabs: for the child of a fork, alone, which lists them anew. */
void hak_slab_list_forget(struct slab_list *list);

/* Whether the links, the slabs' own notes and the count agree. Takes the lock. */
HAK_COLD bool hak_slab_list_is_sound(struct slab_list *list);

/* Whether threads have found its lock taken too often, of late. */
HAK_INLINE bool hak_slab_list_is_crowded(struct slab_list *list) {
    return hak_atomic_load_relaxed(&list->crowding) >= HAK_CROWDED; /* relaxed: a hint */
}

/* Whether it is, and nobody has been told so before. */
HAK_COLD bool hak_slab_list_tell_crowded(struct slab_list *list);

/* Whether there was a slab in it a moment ago. */
HAK_INLINE bool hak_slab_list_looks_empty(struct slab_list *list) {
    return hak_atomic_load_relaxed(&list->count) == 0; /* relaxed: a hint; the lock decides */
}

#endif
