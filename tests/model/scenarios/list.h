/*
 * list.h - every scenario, by the file that has it. list.c puts them into the order in which they run.
 */
#ifndef MODEL_LIST_H
#define MODEL_LIST_H

#include "model/model.h"

/* litmus.c */
extern const struct model_scenario model_litmus_sb, model_litmus_mp, model_litmus_mp_relaxed,
    model_litmus_sequence, model_litmus_22w, model_litmus_coherence, model_litmus_iriw, model_litmus_swaps,
    model_litmus_lb, model_litmus_data;

/* lock.c */
extern const struct model_scenario model_lock_two, model_lock_three, model_lock_soon;

/* frees.c */
extern const struct model_scenario model_remote_free, model_remote_listing, model_remote_frees, model_retire,
    model_retire_reuse, model_far_free, model_far_sweep, model_far_sweep_release, model_far_sweep_metered,
    model_far_sweep_many, model_cold_sweep;

/* lists.c */
extern const struct model_scenario model_orphan_adopt, model_orphan_free, model_thread_exit_free,
    model_remote_list, model_heap_birth, model_heap_birth_frees, model_heap_table, model_orphan_complete,
    model_orphan_side, model_drain_complete;

/* supply.c */
extern const struct model_scenario model_units, model_purge_units, model_purge_blocks, model_purge_orphan,
    model_purge_twice, model_purge_complete, model_thin, model_thin_refill, model_thin_purge, model_thin_trim,
    model_prefill, model_verify;

/* guests.c */
extern const struct model_scenario model_guest_free, model_guest_sweep, model_guest_retire, model_guest_hint,
    model_guest_release, model_guest_verify;

/* sleepers.c */
extern const struct model_scenario model_sleeper_wakes, model_sleeper_takes, model_sleeper_ends,
    model_share_takes, model_share_frees;

/* registry.c */
extern const struct model_scenario model_registry_home, model_registry_leaf, model_registry_words,
    model_registry_reciprocals, model_registry_prepared, model_record_table;

/* traces.c */
extern const struct model_scenario model_traces_same, model_traces_two;

/* parked.c */
extern const struct model_scenario model_parked_pair, model_parked_row_pair, model_parked_flush,
    model_parked_row_flush, model_parked_double, model_parked_row_double, model_parked_recount,
    model_parked_settle, model_parked_settle_flush, model_parked_settle_put, model_parked_settle_take,
    model_parked_shard;

/* child.c */
extern const struct model_scenario model_child_rebuild;

#endif
