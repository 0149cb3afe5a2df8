/*
 * chance.h - the random choices of HAKMEM_RANDOMIZE: one generator for the process, under a lock of its own.
 *
 * Without the option nothing here is called. Its key comes from the kernel, in the constructor; the child of
 * a fork goes on with a key of its own. Thread rule: any thread, also under the locks of lower rank.
 */
#ifndef HAK_SLAB_CHANCE_H
#define HAK_SLAB_CHANCE_H

#include "os/lock.h"
#include <stdint.h>

/* Fetches the key. Once, while the process has one thread, before the first choice. */
HAK_COLD void hak_chance_start(void);

/* A number from 0 to bound - 1; bound is 1 to 2^32 - 1. */
uint32_t hak_chance_below(uint32_t bound);

/* The position of one of the bits that are set, each as likely; the mask is not 0. */
unsigned hak_chance_bit(uint32_t mask);

/* After a fork, in the parent and in the child: neither repeats, nor foretells, what the other draws. */
HAK_COLD void hak_chance_fork_parent(void);
HAK_COLD void hak_chance_fork_child(void);

extern struct hak_lock hak_chance_lock;

#endif
