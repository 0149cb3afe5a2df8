// How far apart two CPUs are at this moment.
#ifndef BENCH_TOOLS_DISTANCE_H
#define BENCH_TOOLS_DISTANCE_H

// The time in which a word that the first CPU of this process's affinity mask writes is seen by the last one,
// and its answer by the first, in nanoseconds; 0 where there is one CPU alone, or where the answer does not
// come. Takes 0.1 to 0.5 ms, and a thread meanwhile; 5 ms at most. Afterwards the mask is what it was.
double distance_ns(void);

#endif
