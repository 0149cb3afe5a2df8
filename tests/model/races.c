/*
 * races.c - data races: every plain access of the library to shared memory, as the compiler's thread
 * sanitizer instrumentation reports it, against the vector clocks of the threads.
 *
 * Only the instrumentation is the compiler's (-fsanitize=thread); the functions that it calls are these, and
 * its run-time library is not linked. Two accesses race when they touch one byte, one writes, one is plain,
 * and neither happens before the other. What is not the library's memory, stacks for one, is nobody else's.
 */
#define _GNU_SOURCE
#include "model/checker.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What is known of one byte in this execution. A clock of 0: never. */
struct cell {
    uint32_t generation;
    clock_vector plain_write, plain_read, atomic_write, atomic_read;
    uint32_t writer_place; /* where in the library the last plain write was */
};

#define RANGES_MAX 8u

static struct range ranges[RANGES_MAX];
static struct cell *cells[RANGES_MAX];
static uint8_t *touched_pages[RANGES_MAX]; /* pages where any plain access was ever seen */
static unsigned range_count;
static uint32_t generation = 1;
static uintptr_t library_base;

void races_create(const struct range *from, unsigned count) {
    range_count = count;
    for (unsigned i = 0; i < count; i++) {
        ranges[i] = from[i];
        cells[i] = mmap(NULL, from[i].bytes * sizeof(struct cell), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        touched_pages[i] = calloc(from[i].bytes / 4096 + 1, 1);
        if (cells[i] == MAP_FAILED || touched_pages[i] == NULL) {
            perror("model: cells");
            exit(2);
        }
    }
}

void races_begin_execution(void) {
    generation++;
}

static struct cell *cell_of(uintptr_t address) {
    for (unsigned i = 0; i < range_count; i++) {
        uintptr_t offset = address - (uintptr_t)ranges[i].start;
        if (offset < ranges[i].bytes) {
            struct cell *cell = &cells[i][offset];
            touched_pages[i][offset / 4096] = 1;
            if (cell->generation != generation) {
                memset(cell, 0, sizeof *cell);
                cell->generation = generation;
            }
            return cell;
        }
    }
    return NULL;
}

/* Whether an access of another thread at these clocks is not known to have happened before. */
static bool is_concurrent(unsigned t, const clock_vector clock) {
    for (unsigned u = 0; u < THREADS; u++) {
        if (u != t && clock[u] > thread_clock[t][u]) {
            return true;
        }
    }
    return false;
}

static const char *place_name(uintptr_t place, char *buffer, size_t bytes) {
    Dl_info info;
    if (dladdr((void *)place, &info) != 0 && info.dli_sname != NULL) {
        snprintf(buffer, bytes, "%s+0x%lx", info.dli_sname,
                 (unsigned long)(place - (uintptr_t)info.dli_saddr));
    } else {
        snprintf(buffer, bytes, "0x%lx", (unsigned long)(place - library_base));
    }
    return buffer;
}

static void report(uintptr_t address, const char *what, uintptr_t place, const struct cell *cell) {
    char here[100], there[100];
    Dl_info info;
    if (dladdr((void *)place, &info) != 0) {
        library_base = (uintptr_t)info.dli_fbase;
    }
    model_fail("data race at 0x%lx: %s at %s (0x%lx), last plain write at %s (0x%x)", (unsigned long)address,
               what, place_name(place, here, sizeof here), (unsigned long)(place - library_base),
               place_name(library_base + cell->writer_place, there, sizeof there), cell->writer_place);
}

static void plain(uintptr_t address, size_t bytes, bool is_write, uintptr_t place) {
    unsigned t = current_thread;
    if (!is_exploring || t == NOBODY || !world_owns(address)) {
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        struct cell *cell = cell_of(address + i);
        if (cell == NULL) {
            return;
        }
        if (is_concurrent(t, cell->plain_write) || is_concurrent(t, cell->atomic_write) ||
            (is_write && (is_concurrent(t, cell->plain_read) || is_concurrent(t, cell->atomic_read)))) {
            report(address + i, is_write ? "plain write" : "plain read", place, cell);
        }
        if (is_write) {
            Dl_info info;
            if (library_base == 0 && dladdr((void *)place, &info) != 0) {
                library_base = (uintptr_t)info.dli_fbase;
            }
            cell->plain_write[t] = thread_clock[t][t];
            cell->writer_place = (uint32_t)(place - library_base);
        } else {
            cell->plain_read[t] = thread_clock[t][t];
        }
    }
}

void races_atomic(unsigned t, uintptr_t address, unsigned bytes, bool is_write) {
    if (t == NOBODY) {
        return;
    }
    for (unsigned i = 0; i < bytes; i++) {
        struct cell *cell = cell_of(address + i);
        if (cell == NULL) {
            return;
        }
        if (is_concurrent(t, cell->plain_write) || (is_write && is_concurrent(t, cell->plain_read))) {
            report(address + i, is_write ? "atomic write" : "atomic read", 0, cell);
        }
        (is_write ? cell->atomic_write : cell->atomic_read)[t] = thread_clock[t][t];
    }
}

void model_range_written(void *address, size_t bytes) {
    uintptr_t start = (uintptr_t)address;
    for (unsigned i = 0; is_exploring && i < range_count; i++) {
        uintptr_t offset = start - (uintptr_t)ranges[i].start;
        if (offset >= ranges[i].bytes) {
            continue;
        }
        for (size_t done = 0; done < bytes; done += 4096) {
            if (touched_pages[i][(offset + done) / 4096] != 0) {
                plain(start + done, 4096, true, (uintptr_t)__builtin_return_address(0));
            }
        }
    }
}

/* ---- what the instrumentation calls ---- */

#define PLACE ((uintptr_t)__builtin_return_address(0))
#define HOOKS(bytes)                                                                                         \
    void __tsan_read##bytes(void *p);                                                                        \
    void __tsan_read##bytes(void *p) {                                                                       \
        plain((uintptr_t)p, bytes, false, PLACE);                                                            \
    }                                                                                                        \
    void __tsan_write##bytes(void *p);                                                                       \
    void __tsan_write##bytes(void *p) {                                                                      \
        plain((uintptr_t)p, bytes, true, PLACE);                                                             \
    }                                                                                                        \
    void __tsan_unaligned_read##bytes(void *p);                                                              \
    void __tsan_unaligned_read##bytes(void *p) {                                                             \
        plain((uintptr_t)p, bytes, false, PLACE);                                                            \
    }                                                                                                        \
    void __tsan_unaligned_write##bytes(void *p);                                                             \
    void __tsan_unaligned_write##bytes(void *p) {                                                            \
        plain((uintptr_t)p, bytes, true, PLACE);                                                             \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_init(void);
void __tsan_init(void) {
}
void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller) {
    (void)caller;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {
}
void __tsan_read_range(void *p, size_t bytes);
void __tsan_read_range(void *p, size_t bytes) {
    plain((uintptr_t)p, bytes, false, PLACE);
}
void __tsan_write_range(void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes) {
    plain((uintptr_t)p, bytes, true, PLACE);
}

/* The library's calls of these are renamed. */
void *model_memcpy(void *to, const void *from, size_t bytes);
void *model_memcpy(void *to, const void *from, size_t bytes) {
    plain((uintptr_t)from, bytes, false, PLACE);
    plain((uintptr_t)to, bytes, true, PLACE);
    return memcpy(to, from, bytes);
}
void *model_memmove(void *to, const void *from, size_t bytes);
void *model_memmove(void *to, const void *from, size_t bytes) {
    plain((uintptr_t)from, bytes, false, PLACE);
    plain((uintptr_t)to, bytes, true, PLACE);
    return memmove(to, from, bytes);
}
void *model_memset(void *to, int value, size_t bytes);
void *model_memset(void *to, int value, size_t bytes) {
    plain((uintptr_t)to, bytes, true, PLACE);
    return memset(to, value, bytes);
}

/* clang's instrumentation calls these for memcpy and the like. */
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    return model_memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    return model_memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes);
void *__tsan_memset(void *to, int value, size_t bytes) {
    return model_memset(to, value, bytes);
}
