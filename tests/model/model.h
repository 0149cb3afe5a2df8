/*
 * model.h - what the checker offers to the library under the model build, and to scenarios.
 *
 * A scenario is a few threads over the shipped code. First its set_up functions run, one thread after the
 * other, then the threads' run functions in every interleaving and with every value that C11 lets a load
 * read, then check(). All memory is as it was after set_up at the start of each execution.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_THREADS_MAX 5u

enum model_order { MODEL_RELAXED, MODEL_ACQUIRE, MODEL_RELEASE, MODEL_ACQ_REL };

/* One use of a wrapper of base/atomic.h. */
struct model_site {
    const char *file;
    int line;
    const char *what;
    enum model_order order;
};

struct model_scenario {
    const char *name;
    const char *claim;     /* what holds in every execution, for people */
    void (*prepare)(void); /* before all; may use model_as() */
    void (*set_up[MODEL_THREADS_MAX])(void);
    void (*run[MODEL_THREADS_MAX])(void); /* up to the first NULL */
    void (*check)(void);                  /* after the threads, or NULL */
    uint64_t outcomes;                    /* of a litmus test: exactly these are seen; 0: it is none */
    bool is_deep;                         /* more than seconds: left out of the quick run */
};

/* ---- for the library: the wrappers of base/atomic.h, and its floor below ---- */

uint64_t model_load(const struct model_site *site, const volatile void *p, unsigned bytes);
void model_store(const struct model_site *site, volatile void *p, unsigned bytes, uint64_t value);
uint64_t model_exchange(const struct model_site *site, volatile void *p, unsigned bytes, uint64_t value);
uint64_t model_add(const struct model_site *site, volatile void *p, unsigned bytes, uint64_t value);
bool model_cas(const struct model_site *site, volatile void *p, unsigned bytes, uint64_t *expected,
               uint64_t value, bool is_weak);
void model_lock(void *lock);
void model_unlock(void *lock);
void model_futex_wait(volatile void *word, uint32_t expected);
void model_futex_wake(volatile void *word, unsigned count);

/* Waits until no other thread can go on. */
void model_wait_for_others(void);

/* The range is written, or gone, as by a system call of the calling thread. */
void model_range_written(void *address, size_t bytes);

/* The address space that the floor of the system hands out: `bytes` of it per thread. */
char *model_pool(size_t *bytes_per_thread);

/* Which half of the fast paths runs, release's or debug's. Set before the threads run. */
extern bool model_is_release;

/* ---- for scenarios ---- */

/* The number of the calling thread; during set_up that of the thread whose set_up it is. */
unsigned model_thread(void);

/* Runs a function as that thread, before the threads run. */
void model_as(unsigned thread, void (*function)(void));

/* In check(): the execution came out as `outcome`, below 64. */
void model_outcome(unsigned outcome);

/* Ends the execution as failed. */
__attribute__((noreturn, format(printf, 1, 2))) void model_fail(const char *format, ...);

#define MODEL_CHECK(condition)                                                                               \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            model_fail("%s:%d: not so: %s", __FILE__, __LINE__, #condition);                                 \
        }                                                                                                    \
    } while (0)

/* The scenarios, up to one without a name. */
extern const struct model_scenario *const model_scenarios[];

#endif
