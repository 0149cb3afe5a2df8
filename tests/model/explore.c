/*
 * explore.c - the search: all interleavings of steps, and for each step all that memory.c lets it do, depth
 * first and by running every execution anew from the start.
 *
 * Interleavings that differ only in the order of independent steps (of different locations, or both loads)
 * are one: dynamic partial-order reduction with source sets and sleep sets, after P. Abdulla, S. Aronis, B.
 * Jonsson and K. Sagonas (POPL 2014). Nothing else is left out: neither preemptions nor depth are bounded.
 */
#include "model/checker.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One step of the execution under way, and what else is to be tried in its place. */
struct node {
    uint8_t enabled, backtrack, done, sleep; /* sets of threads */
    uint8_t chosen;
    uint8_t option, options;
    struct op op;       /* as executed */
    clock_vector known; /* of each thread, the last step that comes before this one or is it */
};

static struct node nodes[EVENTS_MAX];
static unsigned planned; /* nodes whose choice is given */
static unsigned depth;
static struct op pending[THREADS];
static bool has_ended[THREADS];
static unsigned thread_count;
static clock_vector
    known_steps[THREADS]; /* of each thread: the last step of each that came before its next */
static struct verdict *verdict;
static jmp_buf failed_in_search;
static bool is_cut; /* the execution is covered by another one */

struct op *pending_op(unsigned t) {
    return &pending[t];
}

bool search_knows(unsigned t, unsigned u, unsigned step) {
    return u == t || known_steps[t][u] >= step;
}

unsigned search_step(void) {
    return depth;
}

/* ---- what depends on what ---- */

static bool may_write(const struct op *op) {
    return op->kind != OP_LOAD;
}

/* Whether step `b` that is to come depends on `a` that was executed: a swap that failed was a load. */
static bool depends_on_executed(const struct op *a, const struct op *b) {
    return a->location == b->location && (a->is_a_write || a->kind >= OP_LOCK || may_write(b));
}

/* Whether no other thread can go on, or all that can wait for that as well. */
static bool is_last(unsigned t) {
    for (unsigned u = 0; u < thread_count; u++) {
        bool is_waiting = has_ended[u] || pending[u].kind == OP_SLEEPING || pending[u].kind == OP_LAST;
        bool is_locked_out = pending[u].kind == OP_LOCK && pending[u].location->holder != NOBODY;
        if (u != t && !is_waiting && !is_locked_out) {
            return false;
        }
    }
    return true;
}

static bool is_enabled(unsigned t) {
    if (has_ended[t] || pending[t].kind == OP_SLEEPING) {
        return false;
    }
    if (pending[t].kind == OP_LAST) {
        return is_last(t);
    }
    return pending[t].kind != OP_LOCK || pending[t].location->holder == NOBODY;
}

/* Whether step i (from 1 on) comes before step j in every order of the same steps. */
static bool comes_before(unsigned i, unsigned j) {
    return nodes[j - 1].known[nodes[i - 1].chosen] >= i;
}

/*
 * Steps i and `depth` were executed in this order, and could have been in the other. Then some thread should
 * also be tried in place of i with which an execution may begin where `depth` comes first: one that has the
 * first of those steps, i itself and all that follows from it left out, which waits for no other of them.
 */
static void note_race(unsigned i) {
    unsigned first_of[THREADS] = {0};
    uint8_t waits = 0, initials = 0;
    for (unsigned j = i + 1; j <= depth; j++) {
        unsigned u = nodes[j - 1].chosen;
        if ((j != depth && comes_before(i, j)) || first_of[u] != 0) {
            continue;
        }
        first_of[u] = j;
        for (unsigned g = i + 1; g < j; g++) {
            if (nodes[g - 1].chosen != u && !comes_before(i, g) && comes_before(g, j)) {
                waits |= (uint8_t)(1u << u);
            }
        }
        initials |= (uint8_t)(1u << u);
    }
    initials &= (uint8_t)~waits & nodes[i - 1].enabled;
    if (initials == 0) {
        nodes[i - 1].backtrack |= nodes[i - 1].enabled;
    } else if ((initials & nodes[i - 1].backtrack) == 0) {
        nodes[i - 1].backtrack |= (uint8_t)(initials & -initials);
    }
}

/* The steps of others that the one of thread t, about to be executed, races with: `before` is what it knew.
 */
static void note_races(unsigned t, const struct op *op, const clock_vector before,
                       const unsigned *candidates) {
    for (unsigned u = 0; u < thread_count && op->kind != OP_UNLOCK && op->kind != OP_LAST; u++) {
        unsigned step = candidates[u];
        bool is_race = u != t && step > before[u];
        for (unsigned other = 0; is_race && other < thread_count; other++) {
            /* Between the two there is a third: that one is reversed, not this. */
            is_race = other == u || other == t || candidates[other] <= before[other] ||
                      candidates[other] < step || !comes_before(step, candidates[other]);
        }
        if (is_race) {
            note_race(step);
        }
    }
}

/* The step of thread t has been executed: what it came after, what it races with. */
static void note_executed(unsigned t, const struct op *op) {
    struct location *l = op->location;
    bool is_write = op->is_a_write || op->kind >= OP_LOCK;
    uint16_t *steps = known_steps[t];
    const uint16_t *earlier = is_write ? l->access_steps : l->write_steps;
    unsigned candidates[THREADS];
    clock_vector before;
    memcpy(before, steps, sizeof before);
    for (unsigned u = 0; u < THREADS; u++) {
        candidates[u] = is_write && l->last_read[u] > l->last_write[u] ? l->last_read[u] : l->last_write[u];
        steps[u] = op->kind == OP_LAST && u != t ? (uint16_t)(depth - 1) : steps[u];
        steps[u] = steps[u] > earlier[u] ? steps[u] : earlier[u];
    }
    steps[t] = (uint16_t)depth;
    memcpy(nodes[depth - 1].known, steps, sizeof before);
    for (unsigned u = 0; u < THREADS; u++) {
        l->access_steps[u] = l->access_steps[u] > steps[u] ? l->access_steps[u] : steps[u];
        if (is_write && l->write_steps[u] < steps[u]) {
            l->write_steps[u] = steps[u];
        }
    }
    if (op->kind != OP_UNLOCK) {
        (is_write ? l->last_write : l->last_read)[t] = depth;
    }
    if (depth >= planned) {
        note_races(t, op, before, candidates);
    }
}

/* ---- futex ---- */

static void execute_wait(unsigned t) {
    /* The kernel compares with the newest value, under a lock of its own. */
    const struct location *l = pending[t].location;
    if (l->stores[l->store_count - 1].value == pending[t].expected) {
        pending[t].kind = OP_SLEEPING;
    }
}

static void execute_wake(const struct op *op) {
    unsigned left = (unsigned)op->value;
    for (unsigned u = 0; u < thread_count && left != 0; u++) {
        if (pending[u].kind == OP_SLEEPING && pending[u].location == op->location && !has_ended[u]) {
            pending[u].kind = OP_WAIT;
            pending[u].expected = UINT64_MAX; /* no value: it goes on at its next turn */
            left--;
        }
    }
}

/* ---- one execution ---- */

static uint8_t enabled_threads(void) {
    uint8_t enabled = 0;
    for (unsigned t = 0; t < thread_count; t++) {
        enabled |= is_enabled(t) ? (uint8_t)(1u << t) : 0;
    }
    return enabled;
}

/* A node for the state that has been reached: whose turn is it? */
static void open_node(struct node *node, uint8_t enabled, uint8_t sleep) {
    uint8_t awake = enabled & (uint8_t)~sleep;
    unsigned last = depth == 0 ? 0 : nodes[depth - 1].chosen;
    if (awake == 0) {
        is_cut = true;
        return;
    }
    unsigned t = (awake >> last & 1) != 0 ? last : (unsigned)__builtin_ctz(awake);
    *node = (struct node){
        .enabled = enabled, .backtrack = (uint8_t)(1u << t), .sleep = sleep, .chosen = (uint8_t)t};
}

/* Threads that need not be tried after this node, since what they would do next does not depend on it. */
static uint8_t sleep_after(const struct node *node) {
    uint8_t sleep = 0;
    for (unsigned u = 0; u < thread_count; u++) {
        bool is_asleep = ((node->sleep | node->done) >> u & 1) != 0 && u != node->chosen;
        if (is_asleep && !depends_on_executed(&node->op, &pending[u])) {
            sleep |= (uint8_t)(1u << u);
        }
    }
    return sleep;
}

static void execute(struct node *node) {
    unsigned t = node->chosen;
    struct op *op = &pending[t];
    depth++;
    if (depth < planned && (node->op.location != op->location || node->op.site != op->site)) {
        model_fail("the checker does not repeat itself");
    }
    if (op->kind == OP_LAST) {
        memory_catch_up(t);
        node->options = 1;
    } else if (op->kind == OP_WAIT) {
        execute_wait(t);
        node->options = 1;
    } else if (op->kind == OP_WAKE) {
        execute_wake(op);
        node->options = 1;
    } else {
        unsigned options = memory_options(t, op);
        if (options == 0 || options > OPTIONS_MAX) {
            model_fail("%u ways to execute a step", options);
        }
        node->options = (uint8_t)options;
        memory_execute(t, op, node->option);
    }
    node->op = *op;
    note_executed(t, op);
}

static bool all_ended(void) {
    for (unsigned t = 0; t < thread_count; t++) {
        if (!has_ended[t]) {
            return false;
        }
    }
    return true;
}

/* A fiber that comes back without having asked for a step has ended. */
static void take_back(unsigned t) {
    has_ended[t] = pending[t].kind == OP_NONE;
}

static void run_steps(void) {
    uint8_t sleep = 0;
    depth = 0;
    while (!verdict->has_failed && !is_cut && !memory_must_restart) {
        uint8_t enabled = enabled_threads();
        if (enabled == 0) {
            break;
        }
        if (depth == EVENTS_MAX) {
            model_fail("no end after %u steps", depth);
        }
        struct node *node = &nodes[depth];
        if (depth >= planned) {
            open_node(node, enabled, sleep);
            if (is_cut) {
                break;
            }
        }
        execute(node);
        unsigned t = node->chosen;
        if (pending[t].kind != OP_SLEEPING) {
            fiber_resume(t);
            take_back(t);
        }
        sleep = sleep_after(node);
    }
}

static void run_execution(const struct model_scenario *scenario) {
    if (setjmp(failed_in_search) != 0) {
        return;
    }
    world_restore();
    fibers_restore();
    memory_begin_execution();
    races_begin_execution();
    memset(known_steps, 0, sizeof known_steps);
    is_cut = false;
    is_exploring = true;
    for (unsigned t = 0; t < thread_count && !memory_must_restart; t++) {
        pending[t] = (struct op){.kind = OP_NONE};
        fiber_start(t, scenario->run[t]);
        take_back(t);
    }
    run_steps();
    is_exploring = false;
    verdict->steps_max = depth > verdict->steps_max ? depth : verdict->steps_max;
    if (memory_must_restart) {
        return;
    }
    if (!verdict->has_failed && !is_cut && !all_ended()) {
        model_fail("deadlock: no thread can go on");
    }
    if (!verdict->has_failed && !is_cut && scenario->check != NULL) {
        scenario->check();
    }
}

/* The next execution's choices; false when there are no more. */
static bool advance(void) {
    for (; depth != 0; depth--) {
        struct node *node = &nodes[depth - 1];
        if (++node->option < node->options) {
            planned = depth;
            return true;
        }
        node->done |= (uint8_t)(1u << node->chosen);
        uint8_t left = node->backtrack & node->enabled & (uint8_t) ~(node->done | node->sleep);
        if (left != 0) {
            node->chosen = (uint8_t)__builtin_ctz(left);
            node->option = 0;
            planned = depth;
            return true;
        }
    }
    return false;
}

/* ---- a whole exploration ---- */

void model_fail(const char *format, ...) {
    va_list arguments;
    char why[sizeof verdict->why];
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    if (verdict == NULL) {
        fprintf(stderr, "model: in set_up: %s\n", why);
        exit(3);
    }
    if (!verdict->has_failed) {
        memcpy(verdict->why, why, sizeof why);
        verdict->has_failed = true;
    }
    if (current_thread == NOBODY) {
        longjmp(failed_in_search, 1);
    }
    pending[current_thread].kind = OP_NONE;
    fiber_quit();
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void print_step(unsigned number, const struct node *node) {
    static const char *const names[] = {"-",    "load",   "store", "exchange", "add",  "cas",
                                        "lock", "unlock", "wait",  "wake",     "last", "sleeping"};
    const struct op *op = &node->op;
    printf("  %3u thread %u %-8s %#lx", number, node->chosen, names[op->kind],
           (unsigned long)op->location->address);
    if (op->kind == OP_CAS && !op->is_done) {
        printf(" expected %#lx, found %#lx", (unsigned long)op->expected, (unsigned long)op->result);
    } else if (op->kind == OP_STORE) {
        printf(" := %#lx", (unsigned long)op->value);
    } else if (op->kind < OP_LOCK) {
        printf(" = %#lx", (unsigned long)op->result);
        if (op->kind != OP_LOAD) {
            printf(" -> %#lx", (unsigned long)op->value);
        }
    }
    if (op->site != NULL) {
        printf("  %s:%d", op->site->file, op->site->line);
    }
    printf("%s\n", node->option != 0 ? "  (not the newest)" : "");
}

void model_as(unsigned thread, void (*function)(void)) {
    fiber_run_as(thread, function);
}

void model_outcome(unsigned outcome) {
    verdict->outcomes |= UINT64_C(1) << outcome;
}

static void set_up(const struct model_scenario *scenario) {
    if (scenario->prepare != NULL) {
        scenario->prepare();
    }
    for (unsigned t = 0; t < THREADS; t++) {
        if (scenario->set_up[t] != NULL) {
            fiber_run_as(t, scenario->set_up[t]);
        }
    }
    for (thread_count = 0; thread_count < THREADS && scenario->run[thread_count] != NULL;) {
        thread_count++;
    }
    fibers_save();
    world_save();
}

void explore(const struct model_scenario *scenario, double limit_s, bool is_verbose, struct verdict *out) {
    double start_s = now_s();
    set_up(scenario);
    verdict = out;
    *out = (struct verdict){0};
    planned = 0;
    for (;;) {
        memory_must_restart = false;
        run_execution(scenario);
        if (memory_must_restart) {
            *out = (struct verdict){0};
            planned = 0;
            continue;
        }
        out->executions += !is_cut;
        out->pruned += is_cut;
        if (out->has_failed) {
            for (unsigned i = 0; is_verbose && i < depth; i++) {
                print_step(i + 1, &nodes[i]);
            }
            break;
        }
        if (!advance()) {
            out->is_exhausted = true;
            break;
        }
        if ((out->executions + out->pruned) % 256 == 0 && now_s() - start_s > limit_s) {
            break;
        }
    }
    if (out->is_exhausted && scenario->outcomes != 0 && out->outcomes != scenario->outcomes) {
        out->has_failed = true;
        snprintf(out->why, sizeof out->why, "outcomes %#lx, expected %#lx", (unsigned long)out->outcomes,
                 (unsigned long)scenario->outcomes);
    }
    out->seconds = now_s() - start_s;
}
