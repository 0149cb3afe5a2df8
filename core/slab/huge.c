/*
 * huge.c - see huge.h.
 */
#include "slab/huge.h"

#define SLOW_NS       2000000u /* as long as small pages of as much memory take, and half as long again */
#define SLOW_IN_ROW   2u       /* one may have been the scheduler's */
#define TIMES_AS_LONG 4u       /* as a stretch without a new page: else the program is what takes long */
#define PAUSE_FIRST   16u      /* SuperSlabs; each slow trial after it doubles that, */
#define PAUSE_MAX     256u     /* so that trials take a few percent of what all would */

void hak_huge_watch_begin(struct huge_watch *watch, uint64_t now_ns) {
    *watch = (struct huge_watch){.since_ns = now_ns};
}

enum hak_huge_speed hak_huge_watch_end_stretch(struct huge_watch *watch, uint64_t now_ns) {
    uint64_t took_ns = now_ns - watch->since_ns;
    uint64_t first_ns = watch->first_ns;
    if (first_ns == 0 && took_ns >= SLOW_NS) {
        *watch = (struct huge_watch){.since_ns = now_ns, .first_ns = took_ns};
        return HAK_HUGE_UNKNOWN;
    }
    *watch = (struct huge_watch){0};
    if (first_ns == 0) {
        return HAK_HUGE_FAST;
    }
    return first_ns / TIMES_AS_LONG >= took_ns ? HAK_HUGE_SLOW : HAK_HUGE_UNKNOWN;
}

void hak_huge_pace_note(struct huge_pace *pace, enum hak_huge_speed speed) {
    if (speed == HAK_HUGE_FAST) {
        *pace = (struct huge_pace){0};
    } else if (speed == HAK_HUGE_SLOW && ++pace->slow_in_row >= SLOW_IN_ROW) {
        unsigned longer = pace->pause * 2;
        pace->pause = longer == 0 ? PAUSE_FIRST : longer < PAUSE_MAX ? longer : PAUSE_MAX;
        pace->left = pace->pause;
    }
}

bool hak_huge_pace_allows(struct huge_pace *pace) {
    if (pace->left == 0) {
        return true;
    }
    pace->left--;
    return false;
}
