/*
 * background.c - see background.h. It wakes ten times a second and looks under two locks; it touches no
 * cache.
 */
#include "process/background.h"
#include "heap/heap.h"
#include "large/release.h"
#include "os/os.h"
#include "slab/purge.h"

#define PERIOD_MS 100u

static void *serve(void *unused) {
    (void)hak_heap_attach(); /* so that the child of a fork knows that somebody may have been purging */
    for (;;) {
        hak_os_sleep_ms(PERIOD_MS);
        hak_purge_age();
        hak_purge_settle();
        hak_release_age(SIZE_MAX);
    }
    return unused;
}

void hak_background_start(void) {
    (void)hak_os_start_thread("hakmem", serve);
}
