/*
 * workers.c - see workers.h.
 */
#include "fuzz/workers.h"
#include "fuzz/kernel.h"
#include "fuzz/own.h"

#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>

#define LATE_BYTES 200u

struct worker {
    pthread_t thread;
    sem_t go, done;
    void (*job)(void *context); /* NULL: end */
    void *context;
    bool is_there;
    bool is_late;
    unsigned rounds; /* of destructors so far */
    void *held;      /* by the destructors, from one round to the next */
};

static struct worker workers[WORKERS_COUNT];
static pthread_key_t late_key;

/* In each round: frees what the last one allocated, and allocates unless it is the last. */
static void use_late(void *context) {
    struct worker *worker = context;
    own_free(worker->held);
    worker->held = NULL;
    void *block = own_malloc(LATE_BYTES << worker->rounds * 4);
    worker->rounds++;
    if (worker->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        worker->held = block;
        (void)pthread_setspecific(late_key, worker);
    } else {
        own_free(block);
    }
}

static void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0) {
    }
}

static void *work(void *context) {
    struct worker *worker = context;
    for (;;) {
        wait_for(&worker->go);
        if (worker->job == NULL) {
            break;
        }
        worker->job(worker->context);
        FUZZ_CHECK(sem_post(&worker->done) == 0);
    }
    if (worker->is_late) {
        FUZZ_CHECK(pthread_setspecific(late_key, worker) == 0);
    }
    return NULL;
}

static void start(struct worker *worker) {
    static bool has_key;
    if (!has_key) {
        FUZZ_CHECK(pthread_key_create(&late_key, use_late) == 0);
        has_key = true;
    }
    FUZZ_CHECK(sem_init(&worker->go, 0, 0) == 0 && sem_init(&worker->done, 0, 0) == 0);
    worker->rounds = 0;
    worker->held = NULL;
    worker->is_there = true;
    FUZZ_CHECK(pthread_create(&worker->thread, NULL, work, worker) == 0);
}

void workers_run(unsigned thread, void (*job)(void *context), void *context) {
    struct worker *worker = &workers[thread];
    if (thread == 0) {
        job(context);
        return;
    }
    if (!worker->is_there) {
        start(worker);
    }
    worker->job = job;
    worker->context = context;
    FUZZ_CHECK(sem_post(&worker->go) == 0);
    wait_for(&worker->done);
}

void workers_end(unsigned thread, bool is_late) {
    struct worker *worker = &workers[thread];
    if (thread == 0 || !worker->is_there) {
        return;
    }
    worker->job = NULL;
    worker->is_late = is_late;
    FUZZ_CHECK(sem_post(&worker->go) == 0);
    FUZZ_CHECK(pthread_join(worker->thread, NULL) == 0);
    worker->is_there = false;
}
