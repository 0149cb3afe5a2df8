/*
 * heap.c - see heap.h: the table of heaps, a thread's way in and out, where slabs with free blocks are
 * listed.
 *
 * A thread's heap goes back when its thread-specific data is destroyed, in the last round but one of
 * destructors that the C library makes, so that other destructors still find it. Slabs that are full then
 * keep the heap's number: a later thread that gets this heap inherits them; while nobody has it, its list of
 * remote frees is closed and they become orphans as soon as something in them is freed.
 */
#include "heap/heap.h"
#include "base/assert.h"
#include "base/hint.h"
#include "conf/options.h"
#include "heap/child.h"
#include "heap/front.h"
#include "heap/homeward.h"
#include "heap/supply.h"
#include "heap/unified_cache.h"
#include "heap/width.h"
#include "meta/arena.h"
#include "meta/classes.h"
#include "meta/registry.h"
#include "os/os.h"
#include "slab/orphans.h"
#include "slab/purge.h"
#include "slab/ragged.h"
#include "slab/retention.h"
#include "slab/slab_word.h"
#include "slab/thin.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>

/* The table is most of what the library spans, and that is less than 2 MiB: the kernel puts longer mappings
 * of files at multiples of a huge page, and then what is mapped below them (libc) has more pages in memory.
 */
#define HEAPS_MAX ((size_t)84 * 1024)

/* Records of free heaps that keep their pages. */
#define FREE_HEAPS_KEPT 32u

#ifndef PTHREAD_DESTRUCTOR_ITERATIONS
#define PTHREAD_DESTRUCTOR_ITERATIONS 4
#endif

/*
 * In which call of thread_exit() the heap goes back. Not in the last round: a thread that first allocates in
 * a destructor is called from the second round on. ThreadSanitizer takes its thread apart in the last round.
 */
#define EXIT_ROUNDS (PTHREAD_DESTRUCTOR_ITERATIONS - 1 - HAK_TSAN)

#define NO_CACHE(idx, below, bytes, units) [idx] = HAK_NO_CACHE_TOP,

HAK_READ_MOSTLY struct block_ref hak_no_cache[2] = {{.block = NULL}, {.block = HAK_CACHE_STOP}};
HAK_TLS struct hak_tls hak_tls = {
    .top = {HAK_CLASS_TABLE(NO_CACHE) NO_CACHE(HAK_CLASS_COUNT, 0, 0, 0)},
    .low = HAK_LOW_OF_NO_HEAP,
    .until_slow = HAK_NEVER_SLOW,
};

HAK_CONTENDED struct hak_lock hak_heaps_lock = HAK_LOCK_INIT(HAK_RANK_HEAPS);

/* By number; 0 stays empty. The first of the tables: it shares a page of memory with what lies before them.
 */
static __attribute__((section(".bss.hak_first_table"))) _Atomic(struct heap *) heaps[HEAPS_MAX];
HAK_READ_MOSTLY static _Atomic uint32_t last_id;
static struct heap *free_heaps;    /* under lock */
static unsigned free_count;        /* under lock: length of that list */
static struct heap *emptied_heaps; /* under lock: free ones whose pages went back, as far as they could */
static _Atomic uint32_t attached_count; /* written under lock */
static _Atomic bool has_changed_hands;  /* a thread that had a heap has ended; alone in a child: not yet */
static bool is_started;                 /* under lock */
static bool has_exit_key;               /* under lock, const after start */
static pthread_key_t exit_key;          /* const after start */

/* Counts of heaps that were given back. Under lock. */
static HAK_TABLE struct front_counts past_counts[HAK_CLASS_COUNT];

static void thread_exit(void *heap);

/* The first allocation of the process. Under lock. */
static void start_locked(void) {
    if (!is_started) {
        hak_registry_init();
        has_exit_key = pthread_key_create(&exit_key, thread_exit) == 0;
        is_started = true;
    }
}

struct heap *hak_heap_by_id(uint32_t id) {
    /* acquire: pairs with the release in enter_heap() */
    return id < HEAPS_MAX ? hak_atomic_load_acquire(&heaps[id]) : NULL;
}

uint32_t hak_heap_last_id(void) {
    return hak_atomic_load_relaxed(&last_id); /* relaxed: a bound for walks; heaps[] is checked for each */
}

bool hak_heap_has_changed_hands(void) {
    return hak_atomic_load_relaxed(&has_changed_hands); /* relaxed: set before the heap could be got */
}

uint32_t hak_heap_attached_count(void) {
    return hak_atomic_load_relaxed(&attached_count); /* relaxed: a hint */
}

static void set_attached_locked(struct heap *heap, bool is_attached) {
    hak_atomic_store_relaxed(&heap->is_attached, is_attached);                   /* relaxed: a statistic */
    (void)hak_atomic_add_relaxed(&attached_count, is_attached ? 1 : UINT32_MAX); /* relaxed: as above */
}

/* Gives a new record its number, and marks it attached. False when there are too many. */
static bool enter_heap(struct heap *heap) {
    hak_lock_acquire(&hak_heaps_lock);
    uint32_t id = hak_atomic_load_relaxed(&last_id) + 1; /* relaxed: written under the lock */
    bool has_room = id < HEAPS_MAX;
    if (has_room) {
        heap->id = heap->homeward.tally.owner = id;
        set_attached_locked(heap, true);
        hak_atomic_store_release(&heaps[id], heap); /* pairs with the load in hak_heap_by_id() */
        hak_atomic_store_relaxed(&last_id, id);     /* relaxed: see hak_heap_last_id() */
        hak_orphans_note_heaps(id);
    }
    hak_lock_release(&hak_heaps_lock);
    return has_room;
}

/* A heap that no thread has, marked attached; its list of remote frees is open. */
static struct heap *obtain(void) {
    hak_lock_acquire(&hak_heaps_lock);
    start_locked();
    struct heap **list = free_heaps != NULL ? &free_heaps : &emptied_heaps;
    struct heap *heap = *list;
    if (heap != NULL) {
        free_count -= list == &free_heaps;
        *list = heap->next_free;
        set_attached_locked(heap, true);
    }
    hak_lock_release(&hak_heaps_lock);
    if (heap == NULL) {
        heap = hak_meta_alloc(sizeof *heap);
        if (heap == NULL) {
            return NULL;
        }
        heap->remote.lock.rank = HAK_RANK_SLAB_LIST;
        heap->sampling.until_slow = HAK_NEVER_SLOW;
        heap->ragged_gap = HAK_UPKEEP_WHILE_RAGGED;
        heap->homeward.tally.handler = hak_heap_handle_event;
        heap->homeward.tally.context = heap;
        hak_homeward_forget(heap);
        if (!enter_heap(heap)) {
            hak_meta_free(heap, sizeof *heap);
            return NULL;
        }
    }
    hak_slab_list_open(&heap->remote);
    return heap;
}

#define ADD_PAST(name, help)                                                                                 \
    past->name += hak_atomic_load_relaxed(&counters->name); /* relaxed: no owner writes any more */          \
    hak_atomic_store_relaxed(&counters->name, 0);           /* relaxed: as above */

/* Of classes that are in use; or of all, since a block that was freed for another heap's may count in any. */
static void fold_counters_locked(struct heap *heap, bool is_of_all) {
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        struct front_counters *counters = &heap->classes[c].counters;
        struct front_counts *past = &past_counts[c];
        if (heap->classes[c].is_used || is_of_all) {
            HAK_FRONT_COUNTERS(ADD_PAST)
            heap->classes[c].is_used = false;
            heap->classes[c].heat = 0;
            heap->classes[c].has_begun = false;
            heap->classes[c].misses_in_row = 0;
            heap->classes[c].refills_in_row = 0;
            hak_supply_note_spill(heap, c);
        }
    }
}

/* What a flushed heap knows of its classes goes; as in a new one all of it is zero. */
static void give_pages_back(struct heap *heap) {
    size_t page_bytes = hak_os_page_bytes();
    uintptr_t first = hak_round_up((uintptr_t)heap->classes, page_bytes);
    uintptr_t end = hak_round_down((uintptr_t)(heap->classes + HAK_CLASS_COUNT), page_bytes);
    if (first < end) {
        (void)hak_os_purge((void *)first, end - first); /* refused: they stay as they are, which is as good */
    }
}

/* The heap whose end is of interest; under the lock. */
static const struct heap *watched;
HAK_READ_MOSTLY static _Atomic bool watched_has_ended;

void hak_heap_watch_end(const struct heap *heap) {
    hak_lock_acquire(&hak_heaps_lock);
    watched = heap;
    hak_lock_release(&hak_heaps_lock);
}

bool hak_heap_watched_has_ended(void) {
    return hak_atomic_load_relaxed(&watched_has_ended); /* relaxed: seen at some later time */
}

/* The counterpart of obtain(): a flushed heap becomes anybody's. Some keep their pages for those who come
 * next. It counts as attached until it is in a list, so that the child of a fork finds it. */
static void put_back(struct heap *heap, bool may_be_emptied) {
    heap->row = (struct spill_row){0};
    heap->huge_watch = (struct huge_watch){0};
    hak_lock_acquire(&hak_heaps_lock);
    bool is_emptied = may_be_emptied && free_count >= FREE_HEAPS_KEPT;
    fold_counters_locked(heap, is_emptied);
    if (is_emptied) {
        hak_lock_release(&hak_heaps_lock);
        give_pages_back(heap);
        hak_lock_acquire(&hak_heaps_lock);
    }
    struct heap **list = is_emptied ? &emptied_heaps : &free_heaps;
    free_count += !is_emptied;
    set_attached_locked(heap, false);
    if (heap == watched) {
        hak_hint_set(&watched_has_ended, true);
    }
    heap->next_free = *list;
    *list = heap;
    hak_lock_release(&hak_heaps_lock);
}

void hak_heap_flush(struct heap *heap, bool keep_arrays) {
    hak_homeward_flush(heap);
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        if (heap->classes[c].is_used) {
            hak_cache_flush(heap, c, keep_arrays);
            hak_supply_flush(heap, c);
        }
    }
    hak_supply_drain_remote(heap);
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        if (heap->classes[c].warm_count != 0) {
            hak_supply_flush(heap, c);
        }
    }
    hak_purge_settle();
}

/* Closes the list of remote frees first: what is freed from now on goes to the orphans. */
static void detach(struct heap *heap) {
    hak_slab_list_close(&heap->remote);
    hak_heap_flush(heap, false);
    heap->is_metered = false;
    put_back(heap, true);
}

/* Everything of a heap whose owner does not exist, but for its number and its counters. */
static void abandon(struct heap *heap) {
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        struct class_state *state = &heap->classes[c];
        state->array = state->metered_top = NULL;
        state->current = NULL;
        state->capacity_blocks = 0;
        state->marked = 0;
        state->warm_count = 0;
        hak_width_reset(heap, c);
    }
    hak_homeward_forget(heap);
    heap->is_metered = false;
    hak_slab_list_close(&heap->remote);
    put_back(heap, false);
}

void hak_heap_abandon_others(struct heap *survivor) {
    hak_hint_set(&has_changed_hands, false);
    for (uint32_t id = 1; id <= hak_heap_last_id(); id++) {
        struct heap *heap = hak_heap_by_id(id);
        if (heap == NULL) {
            continue;
        }
        hak_slab_list_forget(&heap->remote);
        if (heap != survivor && hak_atomic_load_relaxed(&heap->is_attached)) { /* relaxed: one thread */
            abandon(heap);
        }
    }
    hak_supply_forget_exporters(survivor);
    /* The survivor's caches are empty; others may have been cut off between that sum and their own. */
    hak_retention_note_raised(HAK_RETAINER_CACHES, 0);
}

/*
 * From now on the calling thread has no heap and gets none; its malloc and free find that on their slow ways.
 * In this order, since a signal handler may come at any point.
 */
static void leave(void) {
    hak_tls.until_slow = HAK_ALWAYS_SLOW;
    hak_tls.low = HAK_LOW_OF_NO_HEAP;
    hak_tls.state = HAK_THREAD_EXITED;
    hak_keep_order();
    hak_tls.heap = NULL;
    hak_keep_order();
}

static void thread_exit(void *value) {
    struct heap *heap = value;
    if (hak_tls.heap != heap) {
        return;
    }
    if (++hak_tls.exit_rounds < EXIT_ROUNDS && pthread_setspecific(exit_key, heap) == 0) {
        return; /* once more in the next round, after those who still allocate */
    }
    heap->sampling.until_slow = hak_tls.until_slow;
    leave(); /* before the heap is taken apart, since a signal handler may come */
    hak_hint_set(&has_changed_hands, true); /* whoever gets the heap sees it by the lock */
    detach(heap);
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        hak_tls.top[c] = HAK_NO_CACHE_TOP;
    }
}

void hak_heap_prewarm(struct heap *heap) {
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        unsigned blocks = hak_options.tiny_prewarm_blocks[c];
        if (blocks != 0 && hak_cache_make_hot(heap, c, blocks)) {
            hak_cache_fill(heap, c, blocks);
        }
    }
}

HAK_COLD void hak_heap_set_metered(struct heap *heap, bool is_metered) {
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        struct class_state *state = &heap->classes[c];
        if (state->array == NULL) {
            continue;
        }
        if (is_metered) {
            state->metered_top = hak_tls.top[c];
            hak_tls.top[c] = HAK_NO_CACHE_TOP;
        } else {
            hak_tls.top[c] = state->metered_top;
            state->metered_top = NULL;
        }
    }
    hak_tls.low = is_metered ? HAK_LOW_OF_NO_HEAP : hak_word_low_of_heap(heap->id);
    heap->is_metered = is_metered;
}

struct heap *hak_heap_attach(void) {
    if (hak_tls.heap != NULL) {
        return hak_tls.heap;
    }
    if (hak_tls.state == HAK_THREAD_EXITED) {
        return NULL;
    }
    hak_child_rebuild_if_pending(); /* before anything is cached: the rebuild takes it for a lost thread's */
    struct heap *heap = obtain();
    if (heap == NULL) {
        return NULL;
    }
    /* The heap is in place before the C library is told of it: pthread_setspecific may allocate. */
    hak_tls.heap = heap;
    hak_tls.low = hak_word_low_of_heap(heap->id);
    hak_tls.state = HAK_THREAD_ATTACHED;
    /* Less what this thread has allocated already. */
    hak_tls.until_slow = heap->sampling.until_slow - (HAK_NEVER_SLOW - hak_tls.until_slow);
    if (!hak_front_samples() && hak_tls.until_slow > HAK_UPKEEP_ALLOCATIONS) {
        hak_tls.until_slow = HAK_UPKEEP_ALLOCATIONS;
    }
    if (hak_front_is_metered()) {
        hak_heap_set_metered(heap, true);
    }
    if (has_exit_key) {
        int saved_errno = errno; /* free() may be the caller */
        (void)pthread_setspecific(exit_key, heap);
        errno = saved_errno;
    }
    hak_heap_prewarm(heap);
    return heap;
}

struct heap *hak_heap_borrow(void) {
    return obtain();
}

void hak_heap_give_back(struct heap *heap) {
    detach(heap);
}

/* Lists a leased slab where its owner, or else anybody, finds it. NONE, or with the lease held what is due
 * before that. */
static enum hak_slab_event list_slab(struct slab *slab, struct heap *heap) {
    enum hak_slab_event event;
    uint32_t owner = hak_slab_owner(slab);
    if (owner == HAK_OWNER_NOBODY) {
        return hak_orphans_push(slab);
    }
    if (heap != NULL && owner == heap->id) {
        if (hak_warm_push(heap, slab)) {
            return hak_slab_release(slab, 0, HAK_PLACE_WARM, owner);
        }
        return hak_orphans_push(slab);
    }
    struct heap *owning = hak_heap_by_id(owner);
    if (owning != NULL && hak_slab_list_push(&owning->remote, slab, owner, &event)) {
        return event;
    }
    return hak_orphans_push(slab);
}

void hak_heap_handle_event(struct slab *slab, enum hak_slab_event event, void *heap_or_null) {
    while (event != HAK_EVENT_NONE && event != HAK_EVENT_RETIRE) {
        if (hak_ragged_or_thin_enter(slab, event)) {
            event = hak_slab_release_any(slab, 0);
        } else {
            hak_ragged_enter_if_due(slab);
            hak_thin_enter_if_due(slab); /* one batch may have freed nearly all of a full slab */
            event = list_slab(slab, heap_or_null);
        }
    }
    if (event == HAK_EVENT_RETIRE) {
        hak_slab_retire(slab);
    }
}

#define ADD_SUM(name, help)                                                                                  \
    sums->name += hak_atomic_load_relaxed(&counters->name); /* relaxed: a statistic                          \
                                                             */
#define ADD_PAST_SUM(name, help) sums->name += past_counts[class_idx].name;

void hak_heap_sum_counters(unsigned class_idx, struct front_counts *sums) {
    *sums = (struct front_counts){0};
    hak_lock_acquire(&hak_heaps_lock);
    HAK_FRONT_COUNTERS(ADD_PAST_SUM)
    for (uint32_t id = 1; id <= hak_heap_last_id(); id++) {
        struct heap *heap = hak_heap_by_id(id);
        if (heap != NULL) {
            struct front_counters *counters = &heap->classes[class_idx].counters;
            HAK_FRONT_COUNTERS(ADD_SUM)
        }
    }
    hak_lock_release(&hak_heaps_lock);
}
