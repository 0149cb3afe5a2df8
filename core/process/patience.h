/*
 * patience.h - how long another thread is waited for that was preempted in the middle of something.
 *
 * Time in which this thread did not run either, because the machine was busy or stood still, counts as one
 * look: the other thread may not have run then. Owner: the calling thread.
 */
#ifndef HAK_PROCESS_PATIENCE_H
#define HAK_PROCESS_PATIENCE_H

#include "os/os.h"

#define HAK_LOOK_MS 10u

struct hak_patience {
    uint64_t seen_ms; /* the clock at the last look */
    uint64_t left_ms;
};

HAK_INLINE struct hak_patience hak_patience_of(uint64_t ms) {
    return (struct hak_patience){.seen_ms = hak_os_now_ms(), .left_ms = ms};
}

/* One more look: whether there may be another one. */
HAK_INLINE bool hak_has_patience(struct hak_patience *patience) {
    uint64_t now_ms = hak_os_now_ms();
    uint64_t passed_ms = now_ms - patience->seen_ms;
    uint64_t used_ms = passed_ms < HAK_LOOK_MS ? passed_ms : HAK_LOOK_MS;
    patience->seen_ms = now_ms;
    patience->left_ms -= used_ms < patience->left_ms ? used_ms : patience->left_ms;
    return patience->left_ms != 0;
}

#endif
