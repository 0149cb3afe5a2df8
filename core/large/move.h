/*
 * move.h - moves the pages of a piece of address space to where it can be longer.
 *
 * Knows addresses, lengths and seams, not records. Makes system calls: no lock held. Any thread.
 */
#ifndef HAK_LARGE_MOVE_H
#define HAK_LARGE_MOVE_H

#include "large/seams.h"

/*
 * Reserves `bytes` bytes at a multiple of `align` for the pages at `from` to move to, with the registry
 * prepared as for a piece. Long ranges get `from`'s offset in 2 MiB. Room for `slack_bytes` behind is made
 * sure of too, so that a block can grow in place for a while. NULL when it cannot be had.
 */
void *hak_move_reserve(const void *from, size_t bytes, size_t align, size_t slack_bytes);

/*
 * Moves a piece to a new place, where it is `new_bytes` long at a multiple of `align`, its seams where they
 * were. Returns its address, or NULL with everything as it was.
 */
void *hak_move_piece(void *from, size_t old_bytes, const struct hak_seams *seams, size_t new_bytes,
                     size_t align, size_t slack_bytes);

/*
 * Drops a target of `bytes` bytes but for [lost, lost_end), where a move has failed: that is nobody's, or
 * another thread's already.
 */
void hak_move_give_up(void *target, size_t bytes, size_t lost, size_t lost_end);

/*
 * Moves `bytes` bytes of free pages to `target`, part of a reserved range, where the piece is `new_bytes`
 * long. False when not all of them came: what did not is dropped, as is the target.
 */
bool hak_move_free_pages(void *from, size_t bytes, const struct hak_seams *seams, void *target,
                         size_t new_bytes);

#endif
