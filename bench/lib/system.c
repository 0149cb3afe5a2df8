// Clocks, memory figures, threads and fatal ends of the bench programs.
//
// Does: everything that asks the kernel. Reads /proc with plain read(2) into the stack.
// Does not: allocate, nor decide what is measured.
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t bench_now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

void bench_start(struct bench_timer *timer) {
    timer->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    timer->wall_ns = clock_ns(CLOCK_MONOTONIC);
}

void bench_stop(const struct bench_timer *timer, struct bench_result *result) {
    result->wall_s = (double)(clock_ns(CLOCK_MONOTONIC) - timer->wall_ns) * 1e-9;
    result->cpu_s = (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - timer->cpu_ns) * 1e-9;
}

void bench_sleep_ms(uint64_t ms) {
    struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void *bench_map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        bench_die_system("mmap of the program's own table failed");
    }
    return p;
}

void bench_unmap(void *table, size_t bytes) {
    if (munmap(table, bytes) != 0) {
        bench_die_system("munmap of the program's own table failed");
    }
}

// Field `idx` of /proc/self/statm, in bytes: 0 is the address space, 1 the resident set.
static uint64_t statm_bytes(unsigned idx) {
    char text[256];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        bench_die_system("cannot open /proc/self/statm");
    }
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) {
        bench_die_system("cannot read /proc/self/statm");
    }
    text[got] = '\0';
    char *at = text;
    uint64_t pages = strtoull(at, &at, 10);
    for (; idx > 0; idx--) {
        pages = strtoull(at, &at, 10);
    }
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t bench_rss_bytes(void) {
    return statm_bytes(1);
}

uint64_t bench_vsz_bytes(void) {
    return statm_bytes(0);
}

uint64_t bench_minor_faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt;
}

struct thread_start {
    pthread_t thread;
    pthread_barrier_t *barrier;
    void (*body)(void *context, unsigned idx);
    void *context;
    unsigned idx;
};

static void *thread_main(void *arg) {
    struct thread_start *start = arg;
    pthread_barrier_wait(start->barrier);
    start->body(start->context, start->idx);
    return NULL;
}

void bench_run_threads(unsigned count, void (*body)(void *context, unsigned idx), void *context,
                       size_t stride, struct bench_result *result) {
    static struct thread_start starts[BENCH_MAX_THREADS];
    pthread_barrier_t barrier;
    struct bench_timer timer;
    pthread_barrier_init(&barrier, NULL, count + 1);
    for (unsigned i = 0; i < count; i++) {
        starts[i] = (struct thread_start){
            .barrier = &barrier, .body = body, .context = (char *)context + i * stride, .idx = i};
        if (pthread_create(&starts[i].thread, NULL, thread_main, &starts[i]) != 0) {
            bench_die_system("pthread_create failed");
        }
    }
    // Started before the release: a thread that runs at once must not do unmeasured work.
    bench_start(&timer);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(starts[i].thread, NULL);
    }
    bench_stop(&timer, result);
    pthread_barrier_destroy(&barrier);
}

void bench_die_damaged(const void *block, size_t bytes) {
    fprintf(stderr, "damaged block: %p of %zu bytes does not hold what was written to it\n", block, bytes);
    _exit(BENCH_EXIT_DAMAGED);
}

void bench_die_no_memory(size_t bytes) {
    fprintf(stderr, "no memory: a request of %zu bytes returned NULL\n", bytes);
    _exit(BENCH_EXIT_NO_MEMORY);
}

void bench_die_system(const char *what) {
    fprintf(stderr, "%s (errno: %s)\n", what, strerror(errno));
    _exit(BENCH_EXIT_SYSTEM);
}
