/*
 * seccomp_test.c - after start-up hakmem lives with nine system calls: mmap munmap mremap mprotect madvise
 * futex write, and exit and rt_sigreturn for the process itself. Any other one ends the child with SIGSYS.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/rng.h"
#include "support/slots.h"
#include "support/target.h"
#include "support/test.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(number)                                                                                        \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* No architecture check: the filter is a test's, not a guard's. */
static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_mmap),
    ALLOW(SYS_munmap),
    ALLOW(SYS_mremap),
    ALLOW(SYS_mprotect),
    ALLOW(SYS_madvise),
    ALLOW(SYS_futex),
    ALLOW(SYS_write),
    ALLOW(SYS_exit),
    ALLOW(SYS_exit_group),
    ALLOW(SYS_rt_sigreturn),
    ALLOW(SYS_clock_gettime), /* normally no call at all: vDSO */
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

static const struct load everything = {1, 5 * MIB, 32, 48, 16};

static void exercise(uint64_t seed) {
    static _Thread_local struct slot slots[128];
    struct rng rng = rng_seeded(seed);
    for (unsigned i = 0; i < 6000; i++) {
        slots_step(slots, COUNT_OF(slots), &everything, &rng);
        if (i % 2000 == 1999) {
            (void)malloc_trim(0);
        }
    }
    slots_clear(slots, COUNT_OF(slots));
}

static sem_t go, done; /* their only system call is futex */
static void *from_main;

static void *work_when_told(void *seed) {
    sem_wait(&go);
    free(from_main); /* another thread's block, under the filter */
    exercise((uintptr_t)seed);
    sem_post(&done);
    for (;;) {
        sem_wait(&go); /* a thread's end makes calls of libc's own */
    }
    return NULL;
}

static int live_under_the_filter(void *unused) {
    struct sock_fprog filter = {COUNT_OF(rules), rules};
    pthread_t thread;
    (void)unused;
    sem_init(&go, 0, 0);
    sem_init(&done, 0, 0);
    CHECK(pthread_create(&thread, NULL, work_when_told, (void *)2) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        printf("no seccomp filters here\n");
        fflush(stdout);
        return CHILD_SKIP;
    }
    from_main = malloc(1000);
    sem_post(&go);
    exercise(1);
    sem_wait(&done);
    check_heap();
    CHECK(launder(malloc(SIZE_MAX / 2 + 1)) == NULL);
    return 0;
}

static int fork_under_the_filter(void *unused) {
    struct sock_fprog filter = {COUNT_OF(rules), rules};
    (void)unused;
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    (void)syscall(SYS_getppid);
    return 0;
}

static void allocation_freeing_and_trimming_need_nine_system_calls(void **state) {
    (void)state;
    static struct child child = {.function = live_under_the_filter};
    child_run(&child);
    assert_child_succeeded(&child);
}

static void the_filter_would_notice_another_call(void **state) {
    (void)state;
    static struct child child = {.function = fork_under_the_filter};
    child_run(&child);
    assert_int_equal(child_signal(&child), SIGSYS);
}

int main(void) {
    if (!hak_is_there()) {
        /* glibc grows its heap by brk: this is a promise of hakmem's. */
        printf("SKIP seccomp (runs on libc's malloc)\n");
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocation_freeing_and_trimming_need_nine_system_calls),
        cmocka_unit_test(the_filter_would_notice_another_call),
    };
    return cmocka_run_group_tests_name("seccomp", tests, NULL, heap_is_sound);
}
