/*
 * background.c - see background.h. It wakes ten times a second and looks under two locks; it touches no
 * cache.
 */
#include "process/background.h"
#include "conf/option_warnings.h"
#include "heap/heap.h"
#include "large/release.h"
#include "os/os.h"
#include "slab/purge.h"
#include "slab/ragged.h"
#include "slab/retention.h"
#include <unistd.h>

#define PERIOD_MS    100u
#define RAGGED_TURNS 8u /* in each: some 1 % of a processor's time */

static void give_back(void) {
    hak_release_help();
    hak_purge_help();
}

static void *serve(void *unused) {
    (void)hak_heap_attach(); /* so that the child of a fork knows that somebody may have been purging */
    /* A main thread that ends by itself leaves the end of the process to the last thread: another one. */
    while (!hak_heap_watched_has_ended()) {
        hak_os_sleep_ms(PERIOD_MS);
        give_back();
        for (unsigned i = 0; i < RAGGED_TURNS && hak_ragged_is_waiting(); i++) {
            hak_purge_ragged();
        }
    }
    /* What still waits does so in vain from now on. */
    hak_retention_set_helper(false);
    give_back();
    return unused;
}

void hak_background_start(void) {
    const struct heap *main_heap = hak_heap_attach();
    if (main_heap != NULL) {
        hak_heap_watch_end(main_heap);
    }
    bool is_helped = main_heap != NULL && hak_os_start_thread("hakmem", serve) == 0;
    if (!is_helped) {
        hak_warn_no_helper(STDERR_FILENO);
    }
    hak_retention_set_helper(is_helped);
}
