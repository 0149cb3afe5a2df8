/*
 * seccomp_test.c - after start-up hakmem lives with nine system calls: mmap munmap mremap mprotect madvise
 * futex write, and exit and rt_sigreturn for the process itself. Any other one ends the child with SIGSYS.
 * Checked mode and guard sampling need two more: rt_sigaction, and sched_getaffinity for a thread's first
 * stack.
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
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(number)                                                                                        \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

#define ALONE           "alone" /* arguments of the program that lives in such a mode */
#define BESIDE_A_THREAD "beside-a-thread"

#define RULES_FOR_STACKS 4u

/* No architecture check: the filter is a test's, not a guard's. */
static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_rt_sigaction), /* these two make RULES_FOR_STACKS */
    ALLOW(SYS_sched_getaffinity),
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

static unsigned steps = 6000;

static void exercise(uint64_t seed) {
    static _Thread_local struct slot slots[128];
    struct rng rng = rng_seeded(seed);
    for (unsigned i = 0; i < steps; i++) {
        slots_step(slots, COUNT_OF(slots), &everything, &rng);
        if (i % 500 == 499) {
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

/* False where the kernel has no filters. */
static bool forbid_other_calls(bool takes_stacks) {
    static struct sock_filter chosen[COUNT_OF(rules)];
    unsigned count = 0;
    for (unsigned i = 0; i < COUNT_OF(rules); i++) {
        if (takes_stacks || i == 0 || i > RULES_FOR_STACKS) {
            chosen[count++] = rules[i];
        }
    }
    struct sock_fprog filter = {(unsigned short)count, chosen};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static int live_under(bool takes_stacks, bool has_thread) {
    pthread_t thread;
    sem_init(&go, 0, 0);
    sem_init(&done, 0, 0);
    CHECK(!has_thread || pthread_create(&thread, NULL, work_when_told, (void *)2) == 0);
    if (!forbid_other_calls(takes_stacks)) {
        static const char reason[] = "no seccomp filters here\n";
        CHECK(write(STDOUT_FILENO, reason, sizeof reason - 1) > 0);
        return CHILD_SKIP;
    }
    if (has_thread) {
        from_main = malloc(1000);
        sem_post(&go);
    }
    exercise(1);
    if (has_thread) {
        sem_wait(&done);
    }
    check_heap();
    CHECK(launder(malloc(SIZE_MAX / 2 + 1)) == NULL);
    return 0;
}

static int live_under_the_filter(void *unused) {
    (void)unused;
    return live_under(false, true);
}

static int fork_under_the_filter(void *unused) {
    (void)unused;
    if (!forbid_other_calls(true)) {
        return CHILD_SKIP;
    }
    (void)syscall(SYS_getppid);
    return 0;
}

static void allocation_freeing_and_trimming_need_nine_system_calls(void **state) {
    (void)state;
    assert_function_succeeds(live_under_the_filter);
}

/*
 * Processes of their own. Starting a thread allocates, so where there is none, the filter comes before the
 * main thread's first stack is taken.
 */
static void live_in_mode(const char *setting, const char *other) {
    static const char *const arguments[] = {ALONE, BESIDE_A_THREAD};
    static struct child child;
    REQUIRE_HAK();
    for (unsigned i = 0; i < COUNT_OF(arguments); i++) {
        child = (struct child){
            .program = own_path(), .arguments = {arguments[i]}, .environment = {setting, other, NULL}};
        child_run(&child);
        assert_child_succeeded(&child);
    }
}

static void checked_mode_needs_two_more(void **state) {
    (void)state;
    live_in_mode("HAKMEM_CHECK=1", NULL);
}

static void guard_sampling_needs_two_more(void **state) {
    (void)state;
    live_in_mode("HAKMEM_CHECK=0", "HAKMEM_GUARD_SAMPLE=1");
}

static void the_filter_would_notice_another_call(void **state) {
    (void)state;
    static struct child child = {.function = fork_under_the_filter};
    child_run(&child);
    if (child_exit_status(&child) == CHILD_SKIP) {
        SKIP_BECAUSE("no seccomp filters here");
    }
    assert_int_equal(child_signal(&child), SIGSYS);
}

int main(int argc, char **argv) {
    if (argc == 2) {
        steps = 600; /* each takes a stack and a call to the kernel or more */
        return live_under(true, strcmp(argv[1], BESIDE_A_THREAD) == 0);
    }
    if (!hak_is_there()) {
        /* glibc grows its heap by brk: this is a promise of hakmem's. */
        printf("SKIP seccomp (runs on libc's malloc)\n");
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocation_freeing_and_trimming_need_nine_system_calls),
        cmocka_unit_test(checked_mode_needs_two_more),
        cmocka_unit_test(guard_sampling_needs_two_more),
        cmocka_unit_test(the_filter_would_notice_another_call),
    };
    return cmocka_run_group_tests_name("seccomp", tests, NULL, heap_is_sound);
}
