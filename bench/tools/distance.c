// distance: the round trip of a word between two CPUs.
//
// Where a virtual machine's processors are, its host decides anew now and then: on two threads of one core,
// on two cores that share a cache, or on two that do not. What threads hand to each other then takes 80 ns or
// 400 (AMD EPYC, family 25, model 1, 2026-11-27, the same machine within 20 s), and rows with two threads
// have as many modes, whatever the allocator.
// Does not: say what is far. That differs by CPU: whoever asks compares with the least that was seen.
// Called by: launch.c.
#include "distance.h"

#include "../lib/bench.h"
#include "cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    TRIPS = 200, // of a piece, some 20 to 100 us
    PIECES = 5,  // the least counts: an interrupt makes one longer
    STACK_BYTES = 65536,
    LIMIT_NS = 5000000, // the other CPU may be taken, or both threads be on one where run_on() is refused
};

static struct {
    _Atomic unsigned word; // odd: a question, even: its answer
    _Atomic bool is_over;
} __attribute__((aligned(128))) line;

static void *answer(void *cpu) {
    run_on(*(const int *)cpu);
    while (!atomic_load_explicit(&line.is_over, memory_order_relaxed)) {
        unsigned word = atomic_load_explicit(&line.word, memory_order_relaxed);
        if (word % 2 == 1) {
            atomic_store_explicit(&line.word, word + 1, memory_order_relaxed);
        }
    }
    return NULL;
}

// False when the answer has not come by then.
static bool ask(unsigned question, uint64_t deadline_ns) {
    atomic_store_explicit(&line.word, question, memory_order_relaxed);
    for (unsigned looks = 1; atomic_load_explicit(&line.word, memory_order_relaxed) != question + 1;
         looks++) {
        if (looks % 1024 == 0 && bench_now_ns() > deadline_ns) {
            return false;
        }
    }
    return true;
}

static double least_ns(void) {
    uint64_t deadline_ns = bench_now_ns() + LIMIT_NS;
    uint64_t least = 0;
    unsigned question = 1;
    if (!ask(question, deadline_ns)) { // the thread has begun
        return 0;
    }
    for (int piece = 0; piece < PIECES; piece++) {
        uint64_t start_ns = bench_now_ns();
        for (int trip = 0; trip < TRIPS; trip++) {
            question += 2;
            if (!ask(question, deadline_ns)) {
                return (double)least / TRIPS;
            }
        }
        uint64_t took_ns = bench_now_ns() - start_ns;
        least = least == 0 || took_ns < least ? took_ns : least;
    }
    return (double)least / TRIPS;
}

double distance_ns(void) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) {
        return 0; // or more CPUs than a cpu_set_t holds
    }
    int first = 0;
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(first, &allowed)) {
        first++;
    }
    while (!CPU_ISSET(last, &allowed)) {
        last--;
    }
    pthread_attr_t attr;
    pthread_t thread;
    atomic_store(&line.word, 0);
    atomic_store(&line.is_over, false);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int error = pthread_create(&thread, &attr, answer, &last);
    pthread_attr_destroy(&attr);
    if (error != 0) {
        return 0;
    }
    run_on(first);
    double found_ns = least_ns();
    atomic_store(&line.is_over, true);
    pthread_join(thread, NULL);
    sched_setaffinity(0, sizeof allowed, &allowed);
    return found_ns;
}
