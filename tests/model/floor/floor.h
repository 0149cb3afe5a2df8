/*
 * floor.h - what scenarios set in the floor below the library.
 */
#ifndef MODEL_FLOOR_H
#define MODEL_FLOOR_H

#include <stdint.h>

/* How far each look at the clock moves it; 0 at first. */
extern uint64_t model_ms_per_look;

/*
 * How many looks at a clock that moves do not wait for the other threads. Time in the models is patience:
 * whoever looks again has given everybody else the time to get as far as they can.
 */
extern unsigned model_free_looks;

/* The library must not make a slow call with a lock held. */
void model_no_lock_is_held(void);

/* The thread-exit function that the library gave to pthread_key_create(), run as at the thread's end. */
void model_thread_exit(void);

#endif
