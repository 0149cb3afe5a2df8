/*
 * checker.h - the checker's own parts, for each other: fibers, memory, races, the state of the world, the
 * search.
 *
 * Everything runs in one thread of the system. A scenario's threads are fibers; each atomic access, lock and
 * futex call hands control to the search (explore.c), which decides whose turn it is and, by way of memory.c,
 * what a load sees.
 */
#ifndef MODEL_CHECKER_H
#define MODEL_CHECKER_H

#include "model/model.h"

#define THREADS     MODEL_THREADS_MAX
#define NOBODY      THREADS /* set_up and check() run as nobody's step */
#define LOCATIONS   512u    /* shared ones */
#define EVENTS_MAX  4000u   /* of one execution; more is taken for a loop without an end */
#define OPTIONS_MAX 64u

/* ---- steps ---- */

enum op_kind {
    OP_NONE,
    OP_LOAD,
    OP_STORE,
    OP_EXCHANGE,
    OP_ADD,
    OP_CAS,
    OP_LOCK,
    OP_UNLOCK,
    OP_WAIT, /* futex */
    OP_WAKE,
    OP_LAST,     /* when no other thread can go on */
    OP_SLEEPING, /* in a futex wait; not to be scheduled until woken */
};

struct location;

/* What a fiber asks for: its next step. */
struct op {
    enum op_kind kind;
    const struct model_site *site;
    struct location *location;
    uint64_t value;    /* to store, to add; how many to wake */
    uint64_t expected; /* of a compare-and-swap or a wait */
    bool is_weak;
    uint64_t result; /* the value read */
    bool is_done;    /* of a compare-and-swap: it swapped */
    bool is_a_write; /* once executed */
};

typedef uint16_t clock_vector[THREADS];

/* ---- fibers.c ---- */

void fibers_create(void);

/* Makes fiber t start `run` anew and goes on until its first step, or its end. */
void fiber_start(unsigned t, void (*run)(void));

/* Goes on with fiber t, whose step has been executed, until its next one. */
void fiber_resume(unsigned t);

/* Gives control back to the search; returns when the step has been executed. */
void fiber_yield(void);

/* Ends the running fiber: control goes to the search and never comes back. */
__attribute__((noreturn)) void fiber_quit(void);

/* Runs a function in the thread-local data of fiber t, at once. */
void fiber_run_as(unsigned t, void (*run)(void));

/* Remembers each fiber's thread-local data, and puts it back as it was. */
void fibers_save(void);
void fibers_restore(void);

extern unsigned current_thread; /* NOBODY in the search */
extern bool is_exploring;       /* steps are scheduled; else they act at once */

/* ---- memory.c: C11's memory, by the history of stores of each location ---- */

struct store {
    uint32_t stamp; /* place in the modification order */
    uint64_t value;
    const uint32_t *view;  /* what an acquire load that reads it sees of the other locations; NULL: nothing */
    clock_vector clock;    /* with it: what it knows happened */
    unsigned writer, step; /* the thread, and the number of its step; 0: before all */
    bool is_followed;      /* a read-modify-write read it: nothing comes between */
};

struct location {
    uintptr_t address;
    unsigned bytes;
    bool is_lock;
    bool is_shared;      /* more than one thread uses it and one writes: each access is a step */
    uint8_t users;       /* threads that ever used it */
    bool is_written;     /* ever, after set_up */
    bool has_bytes;      /* the word that begins here was ever used byte by byte */
    unsigned idx;        /* among shared ones */
    unsigned generation; /* of the execution that the rest belongs to */
    unsigned holder;     /* of a lock */
    struct store *stores;
    unsigned store_count;
    uint32_t lock_view[LOCATIONS];
    clock_vector lock_clock;
    /* for the search: steps are numbered from 1 */
    unsigned last_read[THREADS], last_write[THREADS];
    clock_vector write_steps, access_steps;
};

void memory_begin_execution(void);

/* The location of an access by the current thread; NULL when it is not a step (then act at once). */
struct location *memory_location(const volatile void *p, unsigned bytes, bool is_write, bool is_lock);

/* How many ways there are to execute the step, at least 1; and executes it in one of them. */
unsigned memory_options(unsigned t, struct op *op);
void memory_execute(unsigned t, struct op *op, unsigned option);

/* A location was found to be shared that was not known to be: this exploration is to be started anew. */
extern bool memory_must_restart;

void memory_catch_up(unsigned t);

/* A location of the checker's own, for steps that are no accesses. */
struct location *memory_private(void *p);

/* Whether the eight bytes at p are used one by one: a load or store of all of them is then eight. */
bool memory_is_bytes(const volatile void *p);

uint64_t memory_read_now(const volatile void *p, unsigned bytes);
void memory_write_now(volatile void *p, unsigned bytes, uint64_t value);

/* How often weak swaps may fail without a cause in one execution. */
extern unsigned spurious_max;

extern clock_vector thread_clock[THREADS];

/* Weakens one site: the part of the order that is dropped. */
enum weak_part { WEAK_NOTHING, WEAK_ACQUIRE, WEAK_RELEASE };
extern struct weakened {
    const char *file;
    int line;
    enum weak_part part;
} weakened;

/* ---- main.c ---- */

/* A step has this site. */
void note_site(const struct model_site *site);

/* ---- races.c ---- */

struct range {
    char *start;
    size_t bytes;
};

void races_create(const struct range *ranges, unsigned count);
void races_begin_execution(void);
void races_atomic(unsigned t, uintptr_t address, unsigned bytes, bool is_write);

/* ---- world.c ---- */

/* The library's data, and its pool. */
unsigned world_ranges(struct range *ranges);
void world_create(void);
void world_save(void); /* from now on, world_restore() comes back here */
void world_restore(void);
bool world_owns(uintptr_t address);

/* ---- explore.c ---- */

/* Whether the step of that number, of thread u, comes before the next one of thread t in every order. */
bool search_knows(unsigned t, unsigned u, unsigned step);
unsigned search_step(void); /* the number of the step that is being executed */

struct verdict {
    unsigned long executions; /* run to their end */
    unsigned long pruned;     /* ended early: another one covers it */
    unsigned steps_max;
    double seconds;
    uint64_t outcomes; /* of a litmus test: those seen */
    bool is_exhausted;
    bool has_failed;
    char why[400];
};

/* Where a fiber leaves its next step for the search, and finds what came of it. */
struct op *pending_op(unsigned t);

/* Sets the scenario up in this process and explores it. */
void explore(const struct model_scenario *scenario, double limit_s, bool is_verbose, struct verdict *verdict);

#endif
