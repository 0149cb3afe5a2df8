/*
 * stats.h - the figures of hakmem.h's struct hak_stats, counted on the spot.
 */
#ifndef HAK_PROCESS_STATS_H
#define HAK_PROCESS_STATS_H

#include "base/compiler.h"
#include "hakmem.h"

/* Fills everything but resident_bytes. Any thread; no lock held; no system call. */
HAK_COLD void hak_stats_collect(struct hak_stats *stats);

/* What of hakmem's mappings is in memory now. Asks the kernel (mincore), which a seccomp filter may forbid.
 */
HAK_COLD size_t hak_stats_resident_bytes(void);

#endif
