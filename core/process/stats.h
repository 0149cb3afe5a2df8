/*
 * stats.h - the figures of hakmem.h's struct hak_stats, counted on the spot.
 */
#ifndef HAK_PROCESS_STATS_H
#define HAK_PROCESS_STATS_H

#include "hakmem.h"

/* Fills everything but version and struct_bytes. Any thread; no lock held. */
void hak_stats_collect(struct hak_stats *stats);

#endif
