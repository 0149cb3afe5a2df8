/*
 * trace_test.c - call stacks: by frame pointers, by unwind tables, kept once, as text.
 *
 * The functions whose frames are looked for come in two makes, with frame pointers and without.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/text.h"
#include "check/libc.h"
#include "check/object.h"
#include "check/trace_text.h"
#include "check/unwind.h"
#include "check/unwind_table.h"
#include "support/child.h"
#include "support/test.h"
#include "unit/trace_kit.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define FRAMES 16u

__attribute__((noinline)) static const struct hak_trace *take_from_another_place(void) {
    const struct hak_trace *trace = hak_trace_take();
    AFTER_CALL();
    return trace;
}

static void a_trace_names_each_caller(void **state) {
    (void)state;
    const struct hak_trace *trace = take_here(3);
    void *const *frames = NULL;
    assert_true(hak_trace_frames(trace, &frames) >= 5);
    assert_int_equal(frames_in_take_here(trace), 4);
}

static void a_trace_is_cut_at_the_bound(void **state) {
    (void)state;
    void *const *frames = NULL;
    assert_int_equal(hak_trace_frames(take_here(3 * FRAMES), &frames), FRAMES);
}

static void equal_stacks_are_one_record(void **state) {
    (void)state;
    const struct hak_trace *traces[3];
    size_t kept_bytes[3];
    for (unsigned i = 0; i < 3; i++) {
        traces[i] = take_here(2);
        kept_bytes[i] = hak_trace_kept_bytes();
    }
    assert_ptr_equal(traces[0], traces[1]);
    assert_ptr_equal(traces[0], traces[2]);
    assert_int_equal(kept_bytes[0], kept_bytes[2]);
    const struct hak_trace *other = take_from_another_place();
    assert_non_null(other);
    assert_ptr_not_equal(other, traces[0]);
    assert_true(hak_trace_kept_bytes() > kept_bytes[2]);
}

static void no_trace_is_no_frames(void **state) {
    (void)state;
    void *const *frames = NULL;
    assert_int_equal(hak_trace_frames(NULL, &frames), 0);
}

static void errno_is_kept(void **state) {
    (void)state;
    errno = 7;
    (void)take_here(1);
    assert_int_equal(errno, 7);
}

static void *take_on_thread(void *trace) {
    *(const struct hak_trace **)trace = take_here(2);
    return NULL;
}

static void other_threads_have_traces_too(void **state) {
    (void)state;
    const struct hak_trace *trace = NULL;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_on_thread, &trace), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(frames_in_take_here(trace), 3);
}

/* ---- frame pointers ---- */

static struct hak_check_libc whole_libc;

static int keep_libc(void **state) {
    (void)state;
    whole_libc = hak_check_libc;
    return 0;
}

static int forget_backtrace(void **state) {
    (void)keep_libc(state);
    hak_check_libc.backtrace = NULL;
    return 0;
}

static int restore_libc(void **state) {
    (void)state;
    hak_check_libc = whole_libc;
    return 0;
}

/*
 * Calls with the frame pointer register as given: what code without frame pointers leaves there. The frame is
 * made by hand, so that the chain is known whatever the compiler did. Its table names a register that ours do
 * not follow, so that no walk by tables leaves it.
 */
static const struct hak_trace *take_with_frame(void *frame) {
    const struct hak_trace *trace = NULL;
#if defined(__x86_64__)
    __asm__ volatile(
        "push %%rbp\n\tmov %1, %%rbp\n\tmov %%rsp, %%rbx\n\tsub $256, %%rsp\n\tand $-16, %%rsp\n\t"
        ".cfi_remember_state\n\t.cfi_def_cfa %%rbx, 8\n\t"
        "call *%2\n\tmov %%rbx, %%rsp\n\t.cfi_restore_state\n\tpop %%rbp"
        : "=&a"(trace)
        : "r"(frame), "r"(hak_trace_take)
        : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
#else
    (void)frame;
#endif
    return trace;
}

static unsigned count_with_frame(void *frame) {
    void *const *frames = NULL;
    return hak_trace_frames(take_with_frame(frame), &frames);
}

#if defined(__x86_64__)
#define REQUIRE_REGISTERS()
#else
#define REQUIRE_REGISTERS() SKIP_BECAUSE("sets registers of x86-64")
#endif

#define MARK_1 ((void *)(uintptr_t)0x111110)
#define MARK_2 ((void *)(uintptr_t)0x222220)
#define SIGNED ((void *)(uintptr_t)0x8101000000222220) /* as aarch64 may sign it */

static void a_chain_is_followed_to_its_end(void **state) {
    (void)state;
    REQUIRE_REGISTERS();
    void *frames[4] = {&frames[2], MARK_1, NULL, SIGNED};
    void *const *found = NULL;
    const struct hak_trace *trace = take_with_frame(frames);
    assert_int_equal(hak_trace_frames(trace, &found), 3);
    assert_ptr_equal(found[1], MARK_1);
    assert_ptr_equal(found[2], MARK_2);
}

/* Each of these would fault, or never end, in a walk that trusts what it reads. */
static void a_broken_chain_does_no_harm(void **state) {
    (void)state;
    REQUIRE_REGISTERS();
    void *frames[4] = {NULL, MARK_1, NULL, MARK_2};
    void *mapped = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mapped != MAP_FAILED);
    frames[0] = frames; /* a circle */
    assert_int_equal(count_with_frame(frames), 2);
    frames[0] = &frames[2];
    frames[2] = frames; /* down again */
    assert_int_equal(count_with_frame(frames), 3);
    frames[2] = mapped;
    assert_int_equal(count_with_frame(frames), 3);
    assert_int_equal(count_with_frame(mapped), 1);
    assert_int_equal(count_with_frame((void *)1), 1);
    assert_int_equal(count_with_frame((void *)UINTPTR_MAX), 1);
    assert_int_equal(count_with_frame((void *)0x8000000000000010u), 1);
    assert_int_equal(count_with_frame((char *)frames + 3), 1);
    munmap(mapped, 65536);
}

/* The walk ends at the end of the thread's stack, where the next word is somebody else's or nobody's. */
static void *take_at_the_ends(void *unused) {
    (void)unused;
    pthread_attr_t attributes;
    void *low;
    size_t bytes;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstack(&attributes, &low, &bytes) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    CHECK(count_with_frame((char *)low + bytes - 2 * sizeof(void *)) == 2);
    CHECK(count_with_frame((char *)low + bytes - sizeof(void *)) == 1);
    CHECK(count_with_frame((char *)low + bytes) == 1);
    CHECK(count_with_frame((char *)low - 2 * sizeof(void *)) == 1);
    return NULL;
}

static void a_chain_does_not_leave_the_stack(void **state) {
    pthread_t thread;
    (void)state;
    REQUIRE_REGISTERS();
    assert_int_equal(pthread_create(&thread, NULL, take_at_the_ends, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static int backtrace_that_marks(void **frames, int count) {
    (void)count;
    frames[0] = MARK_2;
    return 1;
}

/* Without tables a chain counts when it arrives at where the thread began, and else the unwinder is asked. */
static void *take_with_two_ends(void *unused) {
    (void)unused;
    void *const *found = NULL;
    unsigned count = hak_trace_frames(take_here(0), &found); /* ..., start_thread */
    CHECK(count > 1);
    void *frames[4] = {&frames[2], MARK_1, NULL, found[count - 1]};
    hak_check_libc.backtrace = backtrace_that_marks;
    CHECK(hak_trace_frames(take_with_frame(frames), &found) == 3);
    CHECK(found[1] == MARK_1);
    frames[3] = (char *)frames[3] + 1;
    CHECK(hak_trace_frames(take_with_frame(frames), &found) == 1);
    CHECK(found[0] == MARK_2);
    return NULL;
}

static void a_chain_counts_when_it_arrives_at_the_threads_start(void **state) {
    pthread_t thread;
    (void)state;
    REQUIRE_REGISTERS();
    if (hak_unwind_can_read_tables()) {
        SKIP_BECAUSE("there are tables: unit/trace_walk");
    }
    assert_int_equal(pthread_create(&thread, NULL, take_with_two_ends, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* ---- on another stack ---- */

static ucontext_t here, there;
static const struct hak_trace *trace_from_there;

static void take_in_coroutine(void) {
    trace_from_there = take_here(2);
}

static void take_on_a_coroutine(void) {
    size_t bytes = 64 * KIB;
    char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stack != MAP_FAILED);
    assert_int_equal(getcontext(&there), 0);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = bytes;
    there.uc_link = &here;
    makecontext(&there, take_in_coroutine, 0);
    assert_int_equal(swapcontext(&here, &there), 0);
    assert_int_equal(frames_in_take_here(trace_from_there), 3);
    munmap(stack, bytes);
}

/* A stack that pthreads know nothing of: no walk by frame pointers there, and no harm. */
static void a_coroutine_has_traces_too(void **state) {
    (void)state;
    take_on_a_coroutine();
}

/* ---- by remembered rules ---- */

static int (*real_backtrace)(void **frames, int count);
static volatile sig_atomic_t backtraces;

static int backtrace_that_counts(void **frames, int count) {
    backtraces++;
    return real_backtrace(frames, count);
}

/* Ends in libc, but not where threads begin: as what runs before main() does. */
static int backtrace_that_begins_elsewhere(void **frames, int count) {
    (void)count;
    backtraces++;
    frames[0] = MARK_2;
    frames[1] = (char *)(uintptr_t)atoi + 1;
    return 2;
}

static const struct hak_trace *volatile trace_in_handler;

static void take_in_handler(int signal) {
    (void)signal;
    trace_in_handler = take_here(2);
}

static void raise_in(int (*unwinder)(void **frames, int count)) {
    hak_check_libc.backtrace = unwinder;
    backtraces = 0;
    raise(SIGUSR1);
}

/* The signal's frame has no rule. */
static void *take_where_tables_lead_nowhere(void *unused) {
    raise_in(backtrace_that_begins_elsewhere);
    CHECK(backtraces == 1);
    CHECK(frames_in_take_here(trace_in_handler) == 0);
    raise_in(backtrace_that_counts);
    CHECK(backtraces == 1);
    CHECK(frames_in_take_here(trace_in_handler) == 3);
    return unused;
}

static void *take_where_tables_lead_to_the_start(void *unused) {
    void *const *frames = NULL;
    backtraces = 0;
    CHECK(frames_in_take_here(take_here(2)) == 3);
    CHECK(frames_in_take_here(take_here(3)) == 4);
    CHECK(frames_in_take_here(take_here(2 * FRAMES)) == FRAMES);
    unsigned count = hak_trace_frames(take_here(0), &frames);
    CHECK(count == 3); /* take_here, this function, start_thread */
    CHECK(backtraces == 0);
    return unused;
}

static void on_a_thread(void *(*function)(void *)) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static int count_backtraces(void **state) {
    (void)keep_libc(state);
    real_backtrace = hak_check_libc.backtrace;
    hak_check_libc.backtrace = backtrace_that_counts;
    signal(SIGUSR1, take_in_handler);
    return 0;
}

#define SKIP_WITHOUT_TABLES()                                                                                \
    do {                                                                                                     \
        if (!hak_unwind_can_read_tables()) {                                                                 \
            SKIP_BECAUSE("no tables can be read here");                                                      \
        }                                                                                                    \
    } while (0)

static void the_unwinder_is_asked_where_tables_end_early(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    on_a_thread(take_where_tables_lead_to_the_start);
    on_a_thread(take_where_tables_lead_nowhere);
}

/* In a process that takes few: what the tables gave is the stack. */
static void *take_seldom(void *unused) {
    raise_in(backtrace_that_counts);
    CHECK(backtraces == 0);
    CHECK(frames_in_take_here(trace_in_handler) == 3);
    return unused;
}

static void the_unwinder_is_not_asked_where_traces_are_few(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    hak_trace_prepare(FRAMES, true);
    on_a_thread(take_seldom);
    on_a_thread(take_where_tables_lead_to_the_start);
    take_on_a_coroutine();
    assert_int_equal(backtraces, 0);
    hak_trace_prepare(FRAMES, false);
}

/* ---- through code that is gone ---- */

#if defined(__x86_64__)
static jmp_buf before_the_jit;
static void *jit_code;
static const struct hak_trace *trace_from_jit;

__attribute__((noreturn)) static void unmap_and_take(void) {
    assert_int_equal(munmap(jit_code, 4096), 0);
    trace_from_jit = take_here(2);
    longjmp(before_the_jit, 1);
}

/* mono unmaps its compiled code, which has no tables, before exit() is done with the frames of it. */
static void a_frame_of_unmapped_code_ends_the_trace(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    static const unsigned char call_argument[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x0f, 0x0b};
    jit_code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(jit_code != MAP_FAILED);
    memcpy(jit_code, call_argument, sizeof call_argument); /* sub $8, %rsp; call *%rdi; ud2 */
    assert_int_equal(mprotect(jit_code, 4096, PROT_READ | PROT_EXEC), 0);
    if (setjmp(before_the_jit) == 0) {
        ((void (*)(void (*)(void)))(uintptr_t)jit_code)(unmap_and_take);
    }
    assert_int_equal(frames_in_take_here(trace_from_jit), 3);
}
#else
static void a_frame_of_unmapped_code_ends_the_trace(void **state) {
    (void)state;
    SKIP_BECAUSE("has code of x86-64");
}
#endif

/* ---- where a signal came ---- */

#if defined(__x86_64__)
static void take_from_interrupted(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    const greg_t *registers = ((const ucontext_t *)context)->uc_mcontext.gregs;
    const struct hak_frame frame = {.address = (uintptr_t)registers[REG_RIP] + 1,
                                    .stack = (uintptr_t)registers[REG_RSP],
                                    .base = (uintptr_t)registers[REG_RBP]};
    trace_in_handler = hak_trace_take_from(&frame);
}

__attribute__((noinline, section("take_here_code"))) static void raise_here(unsigned depth) {
    if (depth == 0) {
        raise(SIGUSR1);
    } else {
        raise_here(depth - 1);
    }
    AFTER_CALL();
}

static void a_trace_begins_where_the_signal_came(void **state) {
    (void)state;
    SKIP_WITHOUT_TABLES();
    struct sigaction action = {.sa_sigaction = take_from_interrupted, .sa_flags = SA_SIGINFO};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    raise_here(3);
    assert_int_equal(frames_in_take_here(trace_in_handler), 4);
    void *const *frames = NULL;
    Dl_info where;
    assert_true(hak_trace_frames(trace_in_handler, &frames) > 4);
    assert_true(dladdr(frames[0], &where) != 0 && strstr(where.dli_fname, "libc.so") != NULL);
}
#else
static void a_trace_begins_where_the_signal_came(void **state) {
    (void)state;
    SKIP_BECAUSE("reads registers of x86-64");
}
#endif

/* ---- text ---- */

static void put_frame(const void *address, char *buffer, size_t bytes) {
    struct text line = hak_text_over(buffer, bytes - 1);
    hak_trace_put_frame(address, &line);
    buffer[line.used_bytes] = '\0';
}

static void a_frame_names_function_and_object(void **state) {
    (void)state;
    char buffer[320];
    put_frame((const char *)(uintptr_t)atoi + 1, buffer, sizeof buffer);
    assert_non_null(strstr(buffer, "atoi+0x0 ("));
    assert_non_null(strstr(buffer, "libc.so.6+0x"));
}

/* What has no exported name is named by its object alone, for addr2line. */
static void a_static_function_is_an_offset(void **state) {
    (void)state;
    char buffer[320], expected[320];
    Dl_info where;
    assert_int_not_equal(dladdr((const void *)(uintptr_t)take_here, &where), 0);
    put_frame((const char *)(uintptr_t)take_here + 1, buffer, sizeof buffer);
    snprintf(expected, sizeof expected, "%s+0x%jx", where.dli_fname,
             (uintmax_t)((uintptr_t)take_here - (uintptr_t)where.dli_fbase));
    assert_string_equal(buffer, expected);
}

static void an_address_of_no_object_is_a_number(void **state) {
    (void)state;
    char buffer[320];
    put_frame((const void *)(uintptr_t)0x1235, buffer, sizeof buffer);
    assert_string_equal(buffer, "0x1234");
}

static int write_trace(void *context) {
    hak_trace_write(context, STDERR_FILENO);
    return 0;
}

static struct child child;

static void each_frame_is_a_line(void **state) {
    (void)state;
    const struct hak_trace *trace = take_here(1);
    void *const *frames = NULL;
    unsigned count = hak_trace_frames(trace, &frames);
    child = (struct child){.function = write_trace, .context = (void *)(uintptr_t)trace};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_int_equal(strncmp(child.err, "    #0 ", 7), 0);
    unsigned lines = 0;
    for (const char *c = child.err; *c != '\0'; c++) {
        lines += *c == '\n';
    }
    assert_int_equal(lines, count);
}

static void no_trace_is_said(void **state) {
    (void)state;
    child = (struct child){.function = write_trace, .context = NULL};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.err, "    (its stack was not kept)\n");
}

/* The segments that are loaded count, and no more headers than there are. */
static void an_object_ends_with_its_last_loaded_segment(void **state) {
    (void)state;
    struct {
        ElfW(Ehdr) header;
        ElfW(Phdr) segments[4];
    } object = {.header = {.e_phoff = sizeof object.header, .e_phnum = 3}};
    object.segments[0] = (ElfW(Phdr)){.p_type = PT_LOAD, .p_vaddr = 0x3000, .p_memsz = 0x1800};
    object.segments[1] = (ElfW(Phdr)){.p_type = PT_LOAD, .p_vaddr = 0x1000, .p_memsz = 0x2000};
    object.segments[2] = (ElfW(Phdr)){.p_type = PT_NOTE, .p_vaddr = 0x5000, .p_memsz = 0x1000};
    object.segments[3] = (ElfW(Phdr)){.p_type = PT_LOAD, .p_vaddr = 0x7000, .p_memsz = 0x1000};
    assert_int_equal(hak_object_end((uintptr_t)&object), (uintptr_t)&object + 0x4800);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_ends_with_its_last_loaded_segment),
        cmocka_unit_test(a_trace_names_each_caller),
        cmocka_unit_test(a_trace_is_cut_at_the_bound),
        cmocka_unit_test(equal_stacks_are_one_record),
        cmocka_unit_test(no_trace_is_no_frames),
        cmocka_unit_test(errno_is_kept),
        cmocka_unit_test(other_threads_have_traces_too),
        cmocka_unit_test_setup_teardown(a_chain_is_followed_to_its_end, forget_backtrace, restore_libc),
        cmocka_unit_test_setup_teardown(a_broken_chain_does_no_harm, forget_backtrace, restore_libc),
        cmocka_unit_test_setup_teardown(a_chain_does_not_leave_the_stack, forget_backtrace, restore_libc),
        cmocka_unit_test_setup_teardown(a_chain_counts_when_it_arrives_at_the_threads_start, keep_libc,
                                        restore_libc),
        cmocka_unit_test_setup_teardown(the_unwinder_is_asked_where_tables_end_early, count_backtraces,
                                        restore_libc),
        cmocka_unit_test_setup_teardown(the_unwinder_is_not_asked_where_traces_are_few, count_backtraces,
                                        restore_libc),
        cmocka_unit_test(a_frame_of_unmapped_code_ends_the_trace),
        cmocka_unit_test(a_trace_begins_where_the_signal_came),
        cmocka_unit_test(a_coroutine_has_traces_too),
        cmocka_unit_test(a_frame_names_function_and_object),
        cmocka_unit_test(a_static_function_is_an_offset),
        cmocka_unit_test(an_address_of_no_object_is_a_number),
        cmocka_unit_test(each_frame_is_a_line),
        cmocka_unit_test(no_trace_is_said),
    };
    hak_trace_prepare(FRAMES, false);
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
