// room: how much of a core this process has, told by the core alone.
//
// Two threads of one core share its units for arithmetic. A chain of additions, each waiting for the one
// before, uses one unit at a time and takes as long whatever the other thread does; additions that wait for
// none take all the units there are. The ratio of the two is the room: 3.8 alone and 2.0 to 2.6 beside a busy
// neighbour, on an AMD EPYC (family 25, model 1), 2026-11-27. The neighbour may belong to another virtual
// machine, which no counter of this system shows; and the ratio is the same at every frequency.
// Does not: say what is much. That differs by CPU: whoever asks compares with the most that was seen.
// Called by: launch.c.
#include "room.h"

#include "../lib/bench.h"
#include "cpu.h"

#include <sched.h>
#include <stdint.h>

enum {
    CPUS_AT_MOST = 4,
    CHAINS = 4,
    // A piece is some 20 us, long beside what reading the clock costs; an interrupt hits few of them.
    STEPS = 2048,
    PIECES = 9,
};

// An addition that the compiler can neither join with the next nor leave out.
static inline unsigned long add_one(unsigned long x) {
    x += 1;
    __asm__ volatile("" : "+r"(x));
    return x;
}

// One chain of 16 additions a step.
static uint64_t dependent_ns(void) {
    unsigned long a = 0;
    uint64_t start_ns = bench_now_ns();
    for (int step = 0; step < STEPS; step++) {
        a = add_one(add_one(add_one(add_one(a))));
        a = add_one(add_one(add_one(add_one(a))));
        a = add_one(add_one(add_one(add_one(a))));
        a = add_one(add_one(add_one(add_one(a))));
    }
    return bench_now_ns() - start_ns;
}

// 4 chains of 4 additions a step, 4 times the steps: about as long, so that an interrupt hits both alike.
static uint64_t independent_ns(void) {
    unsigned long a = 0, b = 0, c = 0, d = 0;
    uint64_t start_ns = bench_now_ns();
    for (int step = 0; step < STEPS * CHAINS; step++) {
        a = add_one(a), b = add_one(b), c = add_one(c), d = add_one(d);
        a = add_one(a), b = add_one(b), c = add_one(c), d = add_one(d);
        a = add_one(a), b = add_one(b), c = add_one(c), d = add_one(d);
        a = add_one(a), b = add_one(b), c = add_one(c), d = add_one(d);
    }
    return bench_now_ns() - start_ns;
}

// On the CPU that this runs on: the median of several pieces.
static double room_here(void) {
    double sorted[PIECES];
    for (int count = 0; count < PIECES; count++) {
        double dependent = (double)dependent_ns() * CHAINS;
        double room = dependent / (double)independent_ns();
        int at = count;
        for (; at > 0 && sorted[at - 1] > room; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = room;
    }
    return sorted[PIECES / 2];
}

double room_lowest(void) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return room_here(); // more CPUs than a cpu_set_t holds
    }
    // Every n-th, so that those looked at are spread over the machine.
    int stride = (CPU_COUNT(&allowed) + CPUS_AT_MOST - 1) / CPUS_AT_MOST;
    double lowest = CHAINS; // no core is better than that
    for (int cpu = 0, idx = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && idx++ % stride == 0) {
            run_on(cpu); // refused: this CPU is looked at instead
            double room = room_here();
            lowest = room < lowest ? room : lowest;
        }
    }
    sched_setaffinity(0, sizeof allowed, &allowed);
    return lowest;
}
