// instr: sections of malloc and free for callgrind to count, one section for each size and pattern.
//
// Does: run each section between two calls of instr_mark(), at which callgrind (--dump-before=instr_mark)
// writes out what it counted; print one line for each section, in order. Patterns, all with 16-byte aligned
// sizes: `local`: 4 blocks allocated and freed again (the hit path); `batch`: 4000 at once, last in first
// out (refill and spill included); `remote`: 4000 allocated by one thread and freed by another. Each is run
// once untimed before it is counted. The same loops over two empty functions are sections too (allocator
// `empty`): the runner subtracts them.
// The clock stands still: what the library does once in so many milliseconds would be much beside a program
// that callgrind makes fifty times slower. Does not: time anything, and is of no use without callgrind.
// Arguments: the pairs of each section. Who calls it: bench/instr.
#include "../lib/bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

// Instead of libc's, for the preloaded library too (the program is linked with -rdynamic).
int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    *now = (struct timespec){.tv_sec = 1000};
    return 0;
}

enum { LOCAL_BLOCKS = 4, MANY_BLOCKS = 4000 };

typedef void *malloc_fn(size_t bytes);
typedef void free_fn(void *block);

// One instruction each, whatever the compiler's options: what is subtracted with the loop is known exactly.
void *instr_empty_malloc(size_t bytes);
void instr_empty_free(void *block);
__asm__(".text\n"
        ".globl instr_empty_malloc\n.type instr_empty_malloc, %function\ninstr_empty_malloc:\n    ret\n"
        ".globl instr_empty_free\n.type instr_empty_free, %function\ninstr_empty_free:\n    ret\n");

// callgrind dumps its counts on entry. Kept a real call by the asm.
__attribute__((noinline)) void instr_mark(void);
void instr_mark(void) {
    __asm__ volatile("" : : : "memory");
}

static const size_t sizes[] = {16,  32,  48,   64,   96,   128,  192,   256,   384,
                               512, 768, 1024, 2048, 4096, 8192, 16384, 32768, 65536};

static void *blocks[MANY_BLOCKS];

static void allocate_blocks(malloc_fn *allocate, size_t bytes, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = allocate(bytes);
    }
}

static void free_blocks(free_fn *release, unsigned count) {
    for (unsigned i = count; i-- > 0;) {
        release(blocks[i]);
    }
}

static void local_pairs(malloc_fn *allocate, free_fn *release, size_t bytes, unsigned count, uint64_t pairs) {
    for (uint64_t done = 0; done < pairs; done += count) {
        allocate_blocks(allocate, bytes, count);
        free_blocks(release, count);
    }
}

// The freeing thread waits in the kernel while the main thread allocates, and the other way round: neither
// spins, so the counts do not depend on the scheduler.
static struct {
    pthread_barrier_t turn;
    free_fn *release; // NULL: end
} remote;

static void *remote_main(void *arg) {
    for (;;) {
        pthread_barrier_wait(&remote.turn);
        if (remote.release == NULL) {
            return arg;
        }
        instr_mark();
        free_blocks(remote.release, MANY_BLOCKS);
        instr_mark();
        pthread_barrier_wait(&remote.turn);
    }
}

static void print_section(const char *allocator, const char *pattern, const char *part, size_t bytes,
                          uint64_t pairs) {
    printf("%s %s %s %zu %llu\n", allocator, pattern, part, bytes, (unsigned long long)pairs);
}

static void count_local(const char *name, malloc_fn *allocate, free_fn *release, size_t bytes,
                        uint64_t pairs) {
    static const struct {
        const char *pattern;
        unsigned count;
    } patterns[] = {{"local", LOCAL_BLOCKS}, {"batch", MANY_BLOCKS}};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        unsigned count = patterns[i].count;
        uint64_t whole = (pairs + count - 1) / count * count;
        local_pairs(allocate, release, bytes, count, whole);
        instr_mark();
        local_pairs(allocate, release, bytes, count, whole);
        instr_mark();
        print_section(name, patterns[i].pattern, "pair", bytes, whole);
    }
}

static void count_remote(const char *name, malloc_fn *allocate, free_fn *release, size_t bytes) {
    enum { WARM_ROUNDS = 2, COUNTED_ROUNDS = 2 };
    for (unsigned round = 0; round < WARM_ROUNDS + COUNTED_ROUNDS; round++) {
        instr_mark();
        allocate_blocks(allocate, bytes, MANY_BLOCKS);
        instr_mark();
        remote.release = release;
        pthread_barrier_wait(&remote.turn);
        pthread_barrier_wait(&remote.turn);
        const char *pattern = round < WARM_ROUNDS ? "warm" : "remote";
        print_section(name, pattern, "malloc", bytes, MANY_BLOCKS);
        print_section(name, pattern, "free", bytes, MANY_BLOCKS);
    }
}

int main(int argc, char **argv) {
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    uint64_t pairs = argc > 1 ? strtoull(argv[1], NULL, 10) : MANY_BLOCKS;
    pthread_t freeing_thread;
    printf("malloc_from %s\n", bench_malloc_object());
    // The local sections come first: as long as there is one thread, some allocators take a shorter way.
    for (size_t i = 0; i < SIZES; i++) {
        count_local("libc", malloc, free, sizes[i], pairs);
    }
    count_local("empty", instr_empty_malloc, instr_empty_free, sizes[0], pairs);
    pthread_barrier_init(&remote.turn, NULL, 2);
    if (pthread_create(&freeing_thread, NULL, remote_main, NULL) != 0) {
        bench_die_system("pthread_create failed");
    }
    for (size_t i = 0; i < SIZES; i++) {
        count_remote("libc", malloc, free, sizes[i]);
    }
    count_remote("empty", instr_empty_malloc, instr_empty_free, sizes[0]);
    remote.release = NULL;
    pthread_barrier_wait(&remote.turn);
    pthread_join(freeing_thread, NULL);
    return 0;
}
