/*
 * bulk_test.c - a heap of 10 GiB is freed in random order: no malloc or free on the way makes more than 16
 * system calls to give memory back, none after the one that reaches 1 MiB, and in the end it is back.
 *
 * suite: limit 1500 s, slow, alone, flavours release
 * Counts calls, not time, each in the operation in which it was made. Where the machine has less memory to
 * spare, the heap is what it has, from 1 GiB on, and the test says so.
 */
#include "memory/rss_kit.h"

#include "hakmem.h"
#include "slab/purge.h"
#include "slab/superslab.h"
#include "support/target.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>

#define HEAP_BYTES  (10 * GIB)
#define LEAST_BYTES (1 * GIB)
#define BLOCK_BYTES 500u
#define OTHER_BYTES 900u
#define CALLS_MAX   16u

/* Of the heap: what it takes with metadata and the table of blocks, and some air. */
#define ROOM_PERCENT 120u

static atomic_uint calls; /* of the operation under way */
static atomic_size_t given_bytes;

static void count_call(size_t bytes) {
    atomic_fetch_add(&calls, 1);
    atomic_fetch_add(&given_bytes, bytes);
}

/* What was mapped last: to have 2 MiB at a multiple of 2 MiB the library maps more and cuts off the ends. */
static uintptr_t mapped_from, mapped_end;

static bool is_new(const void *address) {
    return (uintptr_t)address >= mapped_from && (uintptr_t)address < mapped_end;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    void *memory = (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
    mapped_from = (uintptr_t)memory;
    mapped_end = mapped_from + bytes;
    return memory;
}

/* A new page tells how purging works here, once: nothing of the heap's. */
int madvise(void *address, size_t bytes, int advice) {
    if (advice == MADV_DONTNEED && !is_new(address)) {
        count_call(bytes);
    } else if (advice == MADV_NOHUGEPAGE) {
        count_call(0); /* only splits a huge page */
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

int munmap(void *address, size_t bytes) {
    if (!is_new(address)) { /* else an end of it */
        count_call(bytes);
    }
    return (int)syscall(SYS_munmap, address, bytes);
}

struct most {
    unsigned calls;
    size_t bytes;
    uint64_t all_calls;
};

static void note_operation(struct most *most) {
    unsigned now = atomic_load(&calls);
    size_t bytes = atomic_load(&given_bytes);
    most->calls = now > most->calls ? now : most->calls;
    most->bytes = bytes > most->bytes ? bytes : most->bytes;
    most->all_calls += now;
    atomic_store(&calls, 0);
    atomic_store(&given_bytes, 0);
    mapped_from = mapped_end = 0;
}

static void allocate(void **blocks, size_t count, size_t block_bytes, struct most *most) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = hak_malloc(block_bytes);
        CHECK(blocks[i] != NULL);
        note_operation(most);
        memset(blocks[i], 1, block_bytes);
    }
}

static void free_all(void **blocks, size_t count, struct most *most) {
    for (size_t i = 0; i < count; i++) {
        hak_free(blocks[i]);
        note_operation(most);
    }
}

static void assert_little_at_once(const char *what, const struct most *most) {
    print_message("%s: at most %u calls and %zu KiB in one operation, %lu calls in all\n", what, most->calls,
                  most->bytes / KIB, (unsigned long)most->all_calls);
    assert_in_range(most->calls, 1, CALLS_MAX);
    assert_true(most->bytes < HAK_PURGE_STEP_BYTES + HAK_SUPERSLAB_BYTES);
}

/* Nine tenths go, then larger blocks come (which asks slabs with survivors for their free pages), then all
 * goes. */
static void a_large_heap_goes_back_a_little_in_each_operation(void **state) {
    struct most freeing = {0}, allocating = {0};
    (void)state;
    size_t room = proc_bytes("/proc/meminfo", "MemAvailable:") / ROOM_PERCENT * 100;
    size_t heap_bytes = room < HEAP_BYTES ? room : HEAP_BYTES;
    if (heap_bytes < LEAST_BYTES) {
        SKIP_BECAUSE("less than 1 GiB of memory to spare");
    }
    size_t count = heap_bytes / BLOCK_BYTES;
    size_t first = count / 10 * 9;
    size_t others = count / 10;
    void **blocks = map_own(count * sizeof *blocks);
    size_t before_bytes = rss_bytes();
    allocate(blocks, count, BLOCK_BYTES, &allocating);
    size_t full_bytes = rss_bytes();
    shuffle(blocks, count, 42);
    free_all(blocks, first, &freeing);
    allocate(blocks, others, OTHER_BYTES, &allocating);
    memmove(blocks + others, blocks + first, (count - first) * sizeof *blocks);
    shuffle(blocks, others + count - first, 43);
    free_all(blocks, others + count - first, &freeing);
    size_t left_bytes = rss_bytes() - before_bytes - count * sizeof *blocks;
    print_message("a heap of %zu MiB: %zu KiB full, %zu left\n", heap_bytes / MIB, full_bytes / KIB,
                  left_bytes / KIB);
    assert_little_at_once("free", &freeing);
    assert_little_at_once("malloc", &allocating);
    assert_true(left_bytes <= full_bytes / 20);
    munmap(blocks, count * sizeof *blocks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_heap_goes_back_a_little_in_each_operation),
    };
    return cmocka_run_group_tests_name("bulk", tests, NULL, heap_is_sound);
}
