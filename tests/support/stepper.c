/*
 * stepper.c - see stepper.h.
 */
#include "support/stepper.h"
#include "support/test.h"

static void *run(void *context) {
    struct stepper *stepper = context;
    for (;;) {
        while (sem_wait(&stepper->may_work) != 0) {
        }
        if (stepper->step == NULL) {
            return NULL;
        }
        stepper->step();
        CHECK(sem_post(&stepper->has_worked) == 0);
    }
}

void stepper_start(struct stepper *stepper) {
    CHECK(sem_init(&stepper->may_work, 0, 0) == 0 && sem_init(&stepper->has_worked, 0, 0) == 0);
    CHECK(pthread_create(&stepper->thread, NULL, run, stepper) == 0);
}

void stepper_do(struct stepper *stepper, void (*step)(void)) {
    stepper->step = step;
    CHECK(sem_post(&stepper->may_work) == 0);
    while (sem_wait(&stepper->has_worked) != 0) {
    }
}

void stepper_end(struct stepper *stepper) {
    stepper->step = NULL;
    CHECK(sem_post(&stepper->may_work) == 0);
    CHECK(pthread_join(stepper->thread, NULL) == 0);
    CHECK(sem_destroy(&stepper->may_work) == 0 && sem_destroy(&stepper->has_worked) == 0);
}
