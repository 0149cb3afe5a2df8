/*
 * stepper.h - a thread that does one step at a time, while the one that asked for it waits: several threads
 * in a known order.
 */
#ifndef HAK_TESTS_SUPPORT_STEPPER_H
#define HAK_TESTS_SUPPORT_STEPPER_H

#include <pthread.h>
#include <semaphore.h>

struct stepper {
    pthread_t thread;
    sem_t may_work, has_worked;
    void (*step)(void); /* NULL: end */
};

/* The thread waits for its first step. */
void stepper_start(struct stepper *stepper);

/* Returns when the step is done. */
void stepper_do(struct stepper *stepper, void (*step)(void));

/* Returns when the thread has ended. */
void stepper_end(struct stepper *stepper);

#endif
