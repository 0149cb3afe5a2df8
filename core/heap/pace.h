/*
 * pace.h - how often guard sampling may take a block, so that it costs a bounded share of the time.
 *
 * What a sampled block costs is not known beforehand: shutting it interrupts whoever runs beside it, which is
 * little on one processor and much on a virtual machine's two. So the time spent is measured, and a multiple
 * of it has to go by before the next. All functions: any thread, no lock held.
 */
#ifndef HAK_HEAP_PACE_H
#define HAK_HEAP_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* More time than that on one block counts as that: the thread was not running. */
#define HAK_PACE_SPENT_NS_MAX UINT64_C(200000)

/*
 * Whether a block may be taken at `now_ns`. If so the next may be from `gap_ns` on, and the caller is the
 * only one who is told so.
 */
bool hak_pace_take(uint64_t now_ns, uint64_t gap_ns);

/* `spent_ns`, up to `now_ns`, went into a sampled block: `times` as long goes by before the next is taken. */
void hak_pace_spend(uint64_t now_ns, uint64_t spent_ns, uint64_t times);

#endif
