/*
 * system.c - the floor `os` under the model: what os_linux.c does, without a kernel.
 *
 * Address space comes from a pool of the calling thread's own, so that the addresses a thread gets do not
 * depend on when it asks. What the kernel would write or take away counts as written by the caller.
 */
#include "base/bits.h"
#include "floor/floor.h"
#include "model/model.h"
#include "os/os.h"
#include <errno.h>
#include <string.h>

#define PAGE_SHIFT 12u

bool model_is_release;
struct hak_os_counters hak_os_counters;
_Atomic uint8_t hak_os_known_page_shift = PAGE_SHIFT;

static size_t used_bytes[MODEL_THREADS_MAX + 1];
static uint64_t now_ms = 1000;
uint64_t model_ms_per_look;
unsigned model_free_looks;

unsigned hak_os_find_page_shift(void) {
    return PAGE_SHIFT;
}

static int take(size_t bytes, size_t align, void **out) {
    size_t pool_bytes;
    model_no_lock_is_held();
    char *pool = model_pool(&pool_bytes) + model_thread() * pool_bytes;
    size_t start = hak_round_up(used_bytes[model_thread()], align);
    if (start + bytes > pool_bytes) {
        return ENOMEM;
    }
    used_bytes[model_thread()] = start + bytes;
    *out = pool + start;
    return 0;
}

int hak_os_map(void *hint, size_t bytes, void **out) {
    (void)hint;
    return take(bytes, hak_os_page_bytes(), out);
}

int hak_os_map_aligned(void *hint, size_t bytes, size_t align, void **out) {
    (void)hint;
    return take(bytes, align, out);
}

int hak_os_reserve_aligned(size_t bytes, size_t align, void **out) {
    return take(bytes, align, out);
}

int hak_os_unmap(void *address, size_t bytes) {
    model_no_lock_is_held();
    model_range_written(address, bytes);
    return 0;
}

void hak_os_drop(void *address, size_t bytes) {
    (void)hak_os_unmap(address, bytes);
}

void hak_os_drop_again(void) {
}

int hak_os_allow(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
    return 0;
}

int hak_os_freeze(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
    return 0;
}

/* Zeroes nothing: the content of blocks is the scenarios' own, and they look at who wrote it. */
int hak_os_purge(void *address, size_t bytes) {
    model_no_lock_is_held();
    model_range_written(address, bytes);
    return 0;
}

int hak_os_populate(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
    return EINVAL;
}

int hak_os_advise_huge(void *address, size_t bytes, bool may_be_huge) {
    (void)address;
    (void)bytes;
    (void)may_be_huge;
    return EINVAL;
}

/* Checked mode, which no scenario turns on, asks these. */
int hak_os_forbid(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
    return ENOMEM;
}

void hak_os_raise(int signal) {
    (void)signal;
}

int hak_os_guard(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
    return ENOMEM;
}

int hak_os_unguard(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
    return ENOMEM;
}

int hak_os_reserve_again(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
    return ENOMEM;
}

uintptr_t hak_os_program_entry(void) {
    return 0;
}

int hak_os_signal_action(int signal, const struct sigaction *action, struct sigaction *old) {
    (void)signal;
    (void)action;
    (void)old;
    return EINVAL;
}

int hak_os_move(void *address, size_t old_bytes, void *target, size_t new_bytes) {
    (void)address;
    (void)old_bytes;
    (void)target;
    (void)new_bytes;
    return ENOMEM;
}

int hak_os_move_pages(void *address, size_t bytes, void *target) {
    (void)address;
    (void)bytes;
    (void)target;
    return EINVAL;
}

int hak_os_resize(void *address, size_t old_bytes, size_t new_bytes) {
    (void)address;
    (void)old_bytes;
    (void)new_bytes;
    return ENOMEM;
}

int hak_os_detach(void *address, size_t bytes, void **out) {
    (void)address;
    (void)bytes;
    (void)out;
    return EINVAL;
}

uint64_t hak_os_now_ms(void) {
    if (model_ms_per_look != 0) {
        now_ms += model_ms_per_look;
        if (model_free_looks != 0) {
            model_free_looks--;
        } else {
            model_wait_for_others();
        }
    }
    return now_ms;
}

/* Others get as far as they can. */
void hak_os_sleep_ms(uint32_t ms) {
    now_ms += ms;
    model_wait_for_others();
}

uint64_t hak_os_now_ns(void) {
    return hak_os_now_ms() * 1000000;
}

/* A fatal line: the library is about to end the program. */
void hak_os_write(int fd, const char *text, size_t bytes) {
    (void)fd;
    model_fail("%.*s", (int)bytes - 1, text);
}

void hak_os_futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    model_futex_wait(word, expected);
}

void hak_os_futex_wake(_Atomic uint32_t *word, unsigned count) {
    model_futex_wake(word, count);
}

bool hak_os_is_readable(const uint32_t *word) {
    return word != NULL;
}

void hak_os_random(void *bytes, size_t count) {
    memset(bytes, 1, count);
}

size_t hak_os_mapped_limit(void) {
    return SIZE_MAX;
}

size_t hak_os_space_limit(void) {
    return SIZE_MAX;
}

bool hak_os_is_secure(void) {
    return false;
}

uint64_t hak_os_process_id(void) {
    return 1;
}
