/*
 * memory.c - what C11 lets each access see.
 *
 * Each shared location keeps its stores in modification order. A thread's view says how far it knows each
 * location's order; a load may read any store that is not before that. A release store carries the writer's
 * view and clock, an acquire load that reads it joins them; a read-modify-write reads a store that no other
 * one has read, comes right behind it, and hands on what that one carried. A plain store may come anywhere in
 * the order behind what its thread knows. That is C11 (as repaired, RC11: no value out of thin air, so that
 * no load sees what its own thread stores later) without fences and seq_cst, which hakmem does not use. The
 * real memory always holds the last store of the order.
 *
 * Of what a step may see, only that is tried which no other order of the steps gives: a load that reads past
 * a store which nothing forces to be executed earlier is the load executed before that store.
 *
 * A location becomes shared when a second thread uses it and one writes. Until then its accesses are no
 * steps; when it turns out to be shared, the exploration begins anew knowing that.
 */
#include "model/checker.h"
#include <stdlib.h>
#include <string.h>

#define STAMP_FIRST ((uint32_t)1 << 16)
#define STAMP_STEP  ((uint32_t)1 << 16)
#define STORES_MAX  400u
#define TABLE_SLOTS (1u << 16)
#define ARENA_WORDS ((size_t)4 << 20)

struct weakened weakened;
bool memory_must_restart;
unsigned spurious_max;
clock_vector thread_clock[THREADS];

static struct location *table[TABLE_SLOTS];
static struct location *shared[LOCATIONS];
static unsigned shared_count;
static unsigned generation;
static uint32_t views[THREADS][LOCATIONS];
static uint32_t *arena; /* views that stores carry, of one execution */
static size_t arena_used;
static unsigned spurious_count;

static unsigned hash_of(uintptr_t address) {
    return (unsigned)((address * UINT64_C(0x9E3779B97F4A7C15)) >> 48) & (TABLE_SLOTS - 1);
}

void memory_begin_execution(void) {
    if (arena == NULL) {
        arena = malloc(ARENA_WORDS * sizeof *arena);
    }
    generation++;
    arena_used = 0;
    spurious_count = 0;
    memset(views, 0, sizeof views);
    for (unsigned t = 0; t < THREADS; t++) {
        for (unsigned u = 0; u < THREADS; u++) {
            thread_clock[t][u] = t == u;
        }
    }
}

uint64_t memory_read_now(const volatile void *p, unsigned bytes) {
    switch (bytes) {
    case 1:
        return *(const volatile uint8_t *)p;
    case 2:
        return *(const volatile uint16_t *)p;
    case 4:
        return *(const volatile uint32_t *)p;
    default:
        return *(const volatile uint64_t *)p;
    }
}

void memory_write_now(volatile void *p, unsigned bytes, uint64_t value) {
    switch (bytes) {
    case 1:
        *(volatile uint8_t *)p = (uint8_t)value;
        break;
    case 2:
        *(volatile uint16_t *)p = (uint16_t)value;
        break;
    case 4:
        *(volatile uint32_t *)p = (uint32_t)value;
        break;
    default:
        *(volatile uint64_t *)p = value;
    }
}

static struct location *find(uintptr_t address) {
    for (unsigned slot = hash_of(address);; slot = (slot + 1) & (TABLE_SLOTS - 1)) {
        if (table[slot] == NULL) {
            table[slot] = calloc(1, sizeof **table);
            table[slot]->address = address;
        }
        if (table[slot]->address == address) {
            return table[slot];
        }
    }
}

/* A location's part of this execution, made when it is first used in it. */
static void refresh(struct location *l) {
    if (l->generation == generation) {
        return;
    }
    l->generation = generation;
    l->store_count = 1;
    l->stores[0] = (struct store){
        .stamp = STAMP_FIRST,
        .value = l->is_lock ? 0 : memory_read_now((const volatile void *)l->address, l->bytes)};
    l->holder = NOBODY;
    memset(l->lock_view, 0, sizeof l->lock_view);
    memset(l->lock_clock, 0, sizeof l->lock_clock);
    memset(l->last_read, 0, sizeof l->last_read);
    memset(l->last_write, 0, sizeof l->last_write);
    memset(l->write_steps, 0, sizeof l->write_steps);
    memset(l->access_steps, 0, sizeof l->access_steps);
}

static void make_shared(struct location *l) {
    l->is_shared = true;
    l->idx = shared_count;
    l->stores = malloc(STORES_MAX * sizeof *l->stores);
    memory_must_restart = true;
    if (shared_count == LOCATIONS) {
        model_fail("the checker has too few locations");
    }
    shared[shared_count++] = l;
    fiber_quit(); /* what this execution did so far knew nothing of it */
}

struct location *memory_location(const volatile void *p, unsigned bytes, bool is_write, bool is_lock) {
    if (!world_owns((uintptr_t)p)) {
        return NULL;
    }
    struct location *l = find((uintptr_t)p);
    if (bytes == 1) {
        struct location *word = find((uintptr_t)p & ~(uintptr_t)7);
        bool is_new = !word->has_bytes && word->users != 0 && word->bytes == 8;
        word->has_bytes = true;
        if (is_new) {
            memory_must_restart = true;
            fiber_quit();
        }
    }
    l->bytes = bytes;
    l->is_lock = is_lock;
    l->users |= (uint8_t)(1u << current_thread);
    l->is_written |= is_write;
    if (l->is_shared) {
        refresh(l);
        return l;
    }
    if ((l->users & (l->users - 1)) != 0 && l->is_written) {
        make_shared(l);
    }
    return NULL;
}

struct location *memory_private(void *p) {
    struct location *l = find((uintptr_t)p);
    if (!l->is_shared) {
        make_shared(l);
    }
    l->bytes = 4;
    refresh(l);
    return l;
}

bool memory_is_bytes(const volatile void *p) {
    return world_owns((uintptr_t)p) && find((uintptr_t)p)->has_bytes;
}

/* Time has passed: thread t sees the last store of every location. That orders nothing else. */
void memory_catch_up(unsigned t) {
    for (unsigned i = 0; i < shared_count; i++) {
        const struct location *l = shared[i];
        if (l->generation == generation && views[t][i] < l->stores[l->store_count - 1].stamp) {
            views[t][i] = l->stores[l->store_count - 1].stamp;
        }
    }
}

/* ---- orders ---- */

static bool is_weak_here(const struct model_site *site, enum weak_part part) {
    return weakened.part == part && site->line == weakened.line && strcmp(site->file, weakened.file) == 0;
}

static bool acquires(const struct model_site *site) {
    bool by_order = site->order == MODEL_ACQUIRE || site->order == MODEL_ACQ_REL;
    return by_order && !is_weak_here(site, WEAK_ACQUIRE);
}

static bool releases(const struct model_site *site) {
    bool by_order = site->order == MODEL_RELEASE || site->order == MODEL_ACQ_REL;
    return by_order && !is_weak_here(site, WEAK_RELEASE);
}

static void join_view(uint32_t *into, const uint32_t *from) {
    for (unsigned i = 0; i < shared_count; i++) {
        into[i] = into[i] > from[i] ? into[i] : from[i];
    }
}

static void join_clock(uint16_t *into, const uint16_t *from) {
    for (unsigned u = 0; u < THREADS; u++) {
        into[u] = into[u] > from[u] ? into[u] : from[u];
    }
}

static void take_in(unsigned t, const struct store *store) {
    if (store->view != NULL) {
        join_view(views[t], store->view);
        join_clock(thread_clock[t], store->clock);
    }
}

/* Fills what a new store carries: the thread's view if it releases, and what `read` carried. */
static void carry(unsigned t, struct store *store, bool is_release, const struct store *read) {
    bool has_read = read != NULL && read->view != NULL;
    store->view = NULL;
    if (!is_release && !has_read) {
        return;
    }
    if (arena_used + shared_count > ARENA_WORDS) {
        model_fail("the checker has too little room for views");
    }
    uint32_t *view = &arena[arena_used];
    arena_used += shared_count;
    memset(view, 0, shared_count * sizeof *view);
    memset(store->clock, 0, sizeof store->clock);
    if (is_release) {
        join_view(view, views[t]);
        join_clock(store->clock, thread_clock[t]);
    }
    if (has_read) {
        join_view(view, read->view);
        join_clock(store->clock, read->clock);
    }
    store->view = view;
}

/* ---- options ---- */

/* One way to execute a step: which store is read, or behind which one the new one comes. */
struct option {
    unsigned at; /* index of a store */
    bool is_swap;
};

static unsigned first_visible(unsigned t, const struct location *l) {
    unsigned i = 0;
    while (l->stores[i].stamp < views[t][l->idx]) {
        i++;
    }
    return i;
}

/* The oldest store that is worth trying: the step comes in any case after all newer ones. */
static unsigned lowest_option(unsigned t, const struct location *l, unsigned first) {
    unsigned i = l->store_count - 1;
    while (i > first && search_knows(t, l->stores[i].writer, l->stores[i].step)) {
        i--;
    }
    return i;
}

/* Whether an older visible store reads the same and carries as little: it allows all that this one does. */
static bool is_covered(unsigned t, const struct location *l, unsigned first, unsigned i, bool is_acquire) {
    for (unsigned older = lowest_option(t, l, first); older < i; older++) {
        bool is_plain = !is_acquire || (l->stores[older].view == NULL && l->stores[i].view == NULL);
        if (is_plain && l->stores[older].value == l->stores[i].value) {
            return true;
        }
    }
    return false;
}

static unsigned load_options(unsigned t, const struct op *op, bool is_acquire, struct option *options) {
    const struct location *l = op->location;
    unsigned first = first_visible(t, l);
    unsigned count = 0;
    for (unsigned i = l->store_count; i-- > lowest_option(t, l, first);) {
        bool is_equal = op->kind == OP_CAS && l->stores[i].value == op->expected;
        if (is_equal && (!op->is_weak || spurious_count >= spurious_max)) {
            continue;
        }
        if (!is_covered(t, l, first, i, is_acquire) && count < OPTIONS_MAX) {
            options[count++] = (struct option){.at = i};
        }
    }
    return count;
}

static unsigned swap_options(unsigned t, const struct op *op, struct option *options) {
    const struct location *l = op->location;
    unsigned first = first_visible(t, l);
    unsigned count = 0;
    for (unsigned i = l->store_count; i-- > lowest_option(t, l, first);) {
        bool fits = op->kind != OP_CAS || l->stores[i].value == op->expected;
        if (fits && !l->stores[i].is_followed && count < OPTIONS_MAX) {
            options[count++] = (struct option){.at = i, .is_swap = true};
        }
    }
    return count;
}

/* Behind which stores a plain store may come: those from the last known one on. */
static unsigned store_options(unsigned t, const struct op *op, struct option *options) {
    const struct location *l = op->location;
    unsigned count = 0;
    for (unsigned i = l->store_count; i-- > lowest_option(t, l, first_visible(t, l));) {
        if (!l->stores[i].is_followed && count < OPTIONS_MAX) {
            options[count++] = (struct option){.at = i};
        }
    }
    return count;
}

static unsigned options_of(unsigned t, const struct op *op, struct option *options) {
    unsigned count;
    switch (op->kind) {
    case OP_LOAD:
        return load_options(t, op, acquires(op->site), options);
    case OP_STORE:
        return store_options(t, op, options);
    case OP_EXCHANGE:
    case OP_ADD:
        return swap_options(t, op, options);
    case OP_CAS:
        count = swap_options(t, op, options);
        return count + load_options(t, op, false, options + count);
    default:
        return 1;
    }
}

unsigned memory_options(unsigned t, struct op *op) {
    struct option options[2 * OPTIONS_MAX];
    return options_of(t, op, options);
}

/* ---- execution ---- */

/* Puts a store right behind another one in the modification order. */
static struct store *insert_behind(struct location *l, unsigned at) {
    if (l->store_count == STORES_MAX) {
        model_fail("no end: %u stores to one location", l->store_count);
    }
    bool is_last = at + 1 == l->store_count;
    uint32_t before = l->stores[at].stamp;
    uint32_t stamp = is_last ? before + STAMP_STEP : before + (l->stores[at + 1].stamp - before) / 2;
    memmove(&l->stores[at + 2], &l->stores[at + 1], (l->store_count - at - 1) * sizeof *l->stores);
    l->store_count++;
    if (stamp == before) {
        model_fail("the checker has too little room between stores");
    }
    l->stores[at + 1] = (struct store){.stamp = stamp};
    return &l->stores[at + 1];
}

static void write_store(unsigned t, struct op *op, unsigned at, uint64_t value, const struct store *read) {
    struct location *l = op->location;
    bool is_release = releases(op->site);
    struct store read_copy = {0};
    if (read != NULL) {
        read_copy = *read;
        l->stores[at].is_followed = true;
    }
    struct store *store = insert_behind(l, at);
    store->value = l->bytes == 8 ? value : value & ((UINT64_C(1) << (8 * l->bytes)) - 1);
    store->writer = t;
    store->step = search_step();
    views[t][l->idx] = store->stamp;
    carry(t, store, is_release, read != NULL ? &read_copy : NULL);
    if (at + 2 == l->store_count) {
        memory_write_now((volatile void *)l->address, l->bytes, store->value);
    }
    op->is_a_write = true;
}

static void read_store(unsigned t, struct op *op, unsigned at, bool is_acquire) {
    const struct store *store = &op->location->stores[at];
    uint32_t *known = &views[t][op->location->idx];
    *known = store->stamp > *known ? store->stamp : *known;
    op->result = store->value;
    if (is_acquire) {
        take_in(t, store);
    }
}

static void lock_step(unsigned t, struct op *op) {
    struct location *l = op->location;
    if (op->kind == OP_LOCK) {
        l->holder = t;
        join_view(views[t], l->lock_view);
        join_clock(thread_clock[t], l->lock_clock);
    } else {
        l->holder = NOBODY;
        memcpy(l->lock_view, views[t], sizeof l->lock_view);
        memcpy(l->lock_clock, thread_clock[t], sizeof l->lock_clock);
    }
    op->is_a_write = true;
}

void memory_execute(unsigned t, struct op *op, unsigned option_idx) {
    struct option options[2 * OPTIONS_MAX];
    (void)options_of(t, op, options);
    const struct option *option = &options[option_idx];
    op->is_a_write = op->is_done = false;
    switch (op->kind) {
    case OP_LOAD:
        read_store(t, op, option->at, acquires(op->site));
        break;
    case OP_STORE:
        write_store(t, op, option->at, op->value, NULL);
        break;
    case OP_EXCHANGE:
    case OP_ADD:
    case OP_CAS:
        if (op->kind == OP_CAS && !option->is_swap) {
            spurious_count += op->location->stores[option->at].value == op->expected;
            read_store(t, op, option->at, false); /* every wrapper's failure is relaxed */
            break;
        }
        read_store(t, op, option->at, acquires(op->site));
        op->is_done = true;
        write_store(t, op, option->at, op->kind == OP_ADD ? op->result + op->value : op->value,
                    &op->location->stores[option->at]);
        break;
    default:
        lock_step(t, op);
    }
    if (op->kind != OP_LOCK && op->kind != OP_UNLOCK) {
        races_atomic(t, op->location->address, op->location->bytes, op->is_a_write);
    }
    thread_clock[t][t]++; /* what comes now is not covered by what was just published */
}
