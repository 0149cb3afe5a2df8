// Whether a core is shared with somebody at this moment.
#ifndef BENCH_TOOLS_ROOM_H
#define BENCH_TOOLS_ROOM_H

// The ratio of a dependent addition's time to an independent one's, on that CPU of this process's affinity
// mask where it is lowest: from 1 up to 4. At most 4 CPUs are looked at, for 0.2 ms each where nothing else
// runs there. Afterwards the mask is what it was.
double room_lowest(void);

#endif
