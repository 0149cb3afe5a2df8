/*
 * leaks.h - the list of what is still allocated, by where it was allocated, the most bytes first.
 *
 * What a program still points to when it ends is listed too: whether a block is lost is not known here.
 */
#ifndef HAK_CHECK_LEAKS_H
#define HAK_CHECK_LEAKS_H

/* Writes a line with the sums and then at most `sites_max` places with their stacks. One thread at a time, at
 * exit. */
void hak_leaks_write(int fd, unsigned sites_max);

#endif
