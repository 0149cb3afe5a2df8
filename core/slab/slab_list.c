/*
 * slab_list.c - see slab_list.h.
 */
#include "slab/slab_list.h"
#include "base/assert.h"
#include "base/bits.h"
#include "slab/slab_word.h"

/* How many slabs a pop looks at for the fullest one. */
#define POP_LOOK_MAX 4u

#define WAIT_WEIGHT  8u
#define CROWDING_MAX (2 * HAK_CROWDED) /* it is soon forgotten */

static void set_count(struct slab_list *list, size_t change) {
    /* relaxed: a hint for hak_slab_list_looks_empty(), written under the lock */
    size_t count = hak_atomic_load_relaxed(&list->count);
    hak_atomic_store_relaxed(&list->count, count + change); /* relaxed: as above */
}

/* Takes the lock, and notes whether it had to be waited for: that counts as eight times that it had not. */
static void acquire(struct slab_list *list) {
    bool has_waited = !hak_lock_is_free(&list->lock);
    hak_lock_acquire(&list->lock);
    unsigned crowding = hak_atomic_load_relaxed(&list->crowding); /* relaxed: written under the lock */
    if (HAK_UNLIKELY(has_waited || crowding != 0)) {
        crowding = has_waited ? (unsigned)hak_smaller(crowding + WAIT_WEIGHT, CROWDING_MAX) : crowding - 1;
        hak_atomic_store_relaxed(&list->crowding, (uint16_t)crowding); /* relaxed: as above */
    }
}

bool hak_slab_list_tell_crowded(struct slab_list *list) {
    hak_lock_acquire(&list->lock);
    bool is_crowded = hak_slab_list_is_crowded(list);
    if (is_crowded) {
        hak_atomic_store_relaxed(&list->crowding, (uint16_t)0); /* relaxed: as in acquire() */
    }
    hak_lock_release(&list->lock);
    return is_crowded;
}

static void link_locked(struct slab_list *list, struct slab *slab) {
    slab->prev = NULL;
    slab->next = list->head;
    if (list->head != NULL) {
        list->head->prev = slab;
    }
    list->head = slab;
    hak_atomic_store_relaxed(&slab->list,
                             list); /* relaxed: read under the lock, or by the lease holder, see unlink */
    set_count(list, 1);
}

static void unlink_locked(struct slab_list *list, struct slab *slab) {
    if (slab->prev != NULL) {
        slab->prev->next = slab->next;
    } else {
        list->head = slab->next;
    }
    if (slab->next != NULL) {
        slab->next->prev = slab->prev;
    }
    slab->prev = slab->next = NULL;
    hak_atomic_store_relaxed(&slab->list, (struct slab_list *)NULL); /* relaxed: as in link_locked() */
    set_count(list, (size_t)-1);
}

/* leased -> LISTED, lease given back; or, with the lease held, what is due before that. */
static enum hak_slab_event leased_to_listed(struct slab *slab, uint32_t owner) {
    for (;;) {
        /* acquire: pairs with the swap in hak_slab_count_free(): what is retired here others are through with
         */
        uint64_t word = hak_atomic_load_acquire(&slab->word);
        HAK_ASSERT(hak_slab_word_is_leased(word));
        enum hak_slab_event event = hak_slab_unlisted_event(slab, word);
        if (event != HAK_EVENT_NONE) {
            return event;
        }
        uint64_t listed = hak_slab_word_with_owner(hak_slab_word_with_place(word, HAK_PLACE_LISTED), owner);
        /* release: pairs with the swaps in hak_slab_count_free() and hak_slab_lease_any(), which take the
         * lease without the list's lock */
        if (hak_atomic_cas_weak_release(&slab->word, &word, listed & ~(HAK_LEASED | HAK_PAGES_DUE))) {
            return HAK_EVENT_NONE;
        }
    }
}

/* LISTED -> leased, place NOWHERE. False while somebody else has the lease: he is about to unlink or release
 * it. */
static bool listed_to_leased(struct slab *slab) {
    uint64_t word = hak_atomic_load_relaxed(&slab->word); /* relaxed: the swap decides */
    for (;;) {
        if (hak_slab_word_is_leased(word) || hak_slab_word_place(word) != HAK_PLACE_LISTED) {
            return false;
        }
        uint64_t leased = hak_slab_word_with_place(word, HAK_PLACE_NOWHERE) | HAK_LEASED;
        /* acquire: pairs with the swap in hak_slab_release_any(), of who leased it without the list's lock */
        if (hak_atomic_cas_weak_acquire(&slab->word, &word, leased)) {
            return true;
        }
    }
}

bool hak_slab_list_push(struct slab_list *list, struct slab *slab, uint32_t owner,
                        enum hak_slab_event *event) {
    acquire(list);
    bool is_open = list->is_open;
    if (is_open) {
        link_locked(list, slab);
        *event = leased_to_listed(slab, owner);
        if (*event != HAK_EVENT_NONE) {
            unlink_locked(list, slab);
        }
    }
    hak_lock_release(&list->lock);
    return is_open;
}

/* The fullest of the first few slabs that nobody has leased; NULL if there is none. */
static struct slab *choose_locked(struct slab_list *list) {
    struct slab *best = NULL;
    int best_count = 0;
    unsigned looked = 0;
    for (struct slab *s = list->head; s != NULL && looked < POP_LOOK_MAX; s = s->next) {
        uint64_t word =
            hak_atomic_load_relaxed(&s->word); /* relaxed: only a choice; listed_to_leased() decides */
        if (hak_slab_word_is_leased(word)) {
            continue;
        }
        looked++;
        if (best == NULL || hak_slab_word_count(word) < best_count) {
            best = s;
            best_count = hak_slab_word_count(word);
        }
    }
    return best;
}

struct slab *hak_slab_list_pop(struct slab_list *list) {
    if (hak_slab_list_looks_empty(list)) {
        return NULL;
    }
    acquire(list);
    struct slab *slab;
    do {
        slab = choose_locked(list);
    } while (slab != NULL && !listed_to_leased(slab));
    if (slab != NULL) {
        unlink_locked(list, slab);
    }
    hak_lock_release(&list->lock);
    return slab;
}

void hak_slab_list_unlink(struct slab *slab) {
    /* relaxed: only the lease holder (the caller) links; others may only set it to NULL, seen under the lock
     * below */
    struct slab_list *list = hak_atomic_load_relaxed(&slab->list);
    if (list == NULL) {
        return;
    }
    acquire(list);
    if (hak_atomic_load_relaxed(&slab->list) == list) { /* relaxed: written under the lock that is held */
        unlink_locked(list, slab);
    }
    hak_lock_release(&list->lock);
}

void hak_slab_list_open(struct slab_list *list) {
    hak_lock_acquire(&list->lock);
    list->is_open = true;
    hak_lock_release(&list->lock);
}

void hak_slab_list_close(struct slab_list *list) {
    hak_lock_acquire(&list->lock);
    list->is_open = false;
    hak_lock_release(&list->lock);
}

void hak_slab_list_forget(struct slab_list *list) {
    hak_lock_acquire(&list->lock);
    list->head = NULL;
    hak_atomic_store_relaxed(&list->count, (size_t)0); /* relaxed: as in set_count() */
    hak_lock_release(&list->lock);
}

bool hak_slab_list_is_sound(struct slab_list *list) {
    const struct slab *before = NULL;
    size_t linked = 0;
    bool is_sound = true;
    hak_lock_acquire(&list->lock);
    for (const struct slab *s = list->head; s != NULL && is_sound; s = s->next) {
        /* relaxed: written under the lock */
        is_sound = s->prev == before && hak_atomic_load_relaxed(&s->list) == list;
        before = s;
        linked++;
    }
    is_sound = is_sound && linked == hak_atomic_load_relaxed(&list->count); /* relaxed: as above */
    hak_lock_release(&list->lock);
    return is_sound;
}
