/*
 * fill.c - see fill.h.
 */
#include "heap/fill.h"
#include "base/atomic.h"
#include "conf/options.h"
#include "heap/front.h"
#include "os/os.h"
#include <string.h>

/* From this size on, giving a block's OS pages back costs less than writing zeros to them, touched or not. */
#define WIPE_BY_PURGE_BYTES ((size_t)128 * 1024)

static _Atomic uint8_t perturb_byte;

void hak_fill_set(uint8_t byte) {
    hak_atomic_store_relaxed(&perturb_byte, byte); /* relaxed: threads may take it up late */
}

static bool perturbs(void) {
    return HAK_UNLIKELY((hak_front_modes() & HAK_FRONT_PERTURB) != 0);
}

static void perturb(void *block, size_t bytes, bool is_free) {
    uint8_t fill = hak_atomic_load_relaxed(&perturb_byte); /* relaxed: as in hak_fill_set() */
    memset(block, is_free ? fill : fill ^ 0xFF, bytes);
}

void hak_fill_new(void *block, size_t bytes) {
    if (perturbs()) {
        perturb(block, bytes, false);
    }
}

static void wipe(void *block, size_t bytes) {
    if (bytes < WIPE_BY_PURGE_BYTES || hak_os_purge(block, bytes) != 0) {
        memset(block, 0, bytes);
    }
}

bool hak_fill_is_of_freed(void) {
    return HAK_UNLIKELY(hak_options.zero_on_free) || perturbs();
}

void hak_fill_freed(void *block, size_t bytes) {
    if (hak_options.zero_on_free) {
        wipe(block, bytes);
    } else {
        perturb(block, bytes, true);
    }
}
