/*
 * workers.h - threads in lock step: a job runs on the thread that the input names, and nothing else runs
 * meanwhile.
 *
 * So what one thread frees for another, leaves behind at its end or finds when it begins comes in an order
 * that the input decides, and comes again when it is replayed.
 */
#ifndef HAK_TESTS_FUZZ_WORKERS_H
#define HAK_TESTS_FUZZ_WORKERS_H

#include <stdbool.h>

#define WORKERS_COUNT 4u /* with thread 0, the caller's own */

/* Runs the job on the thread, which is started if it is not there, and waits for its end. */
void workers_run(unsigned thread, void (*job)(void *context), void *context);

/*
 * Ends the thread (1 to WORKERS_COUNT - 1) if it is there. `is_late`: it allocates and frees in all the
 * rounds of its thread-specific destructors, when its heap is gone.
 */
void workers_end(unsigned thread, bool is_late);

#endif
