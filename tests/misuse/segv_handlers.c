/*
 * segv_handlers.c - programs with handlers of their own for SIGSEGV, where every block is sampled: what comes
 * to them, in which order, and how the program ends.
 *
 * As checked_faults.c: cases segv_... end by that signal, report_... and sound_... well, after what is stated
 * on stdout.
 */
#include "segv.h"

#include <setjmp.h>

#define BLOCKS          2000u
#define SIGSTACK        65536
#define STACK_BYTES_MAX ((rlim_t)64 << 20) /* that one test uses up */

/* The signal and its address are the kernel's: nothing of ours. */
static void null_write(void) {
    say("\n");
    write_at(NULL);
}

static sigjmp_buf back;
static volatile sig_atomic_t handled;

static void leap(int signal) {
    (void)signal;
    handled++;
    siglongjmp(back, 1);
}

static void leap_with_info(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    handled += info->si_addr == (void *)16;
    siglongjmp(back, 1);
}

static void install(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGSEGV, &action, NULL);
}

static void ask_for_blocks(void) {
    for (unsigned i = 0; i < BLOCKS; i++) {
        free(must(malloc(32)));
    }
}

static void fault_and_leap(void) {
    if (sigsetjmp(back, 1) == 0) {
        write_at((char *)16);
    }
}

static void fault_three_times(void) {
    for (volatile int i = 0; i < 3; i++) {
        fault_and_leap();
        ask_for_blocks();
    }
}

/* A fault that is nobody's comes to the program, again and again, whoever installed last. */
static void own_handler_gets_other_faults(void) {
    install(leap, 0);
    fault_three_times();
    struct sigaction action = {.sa_sigaction = leap_with_info, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    fault_three_times();
    must_be(handled == 6);
    say("sound\n");
    exit(0);
}

/* A fault at a guard page is reported, although the program's handler came later, and then comes to it too.
 */
static void own_handler_comes_after_the_report(void) {
    install(leap, 0);
    ask_for_blocks(); /* by now the report's handler stands in front again */
    char *block = must(malloc(4000));
    expect_segv("write 0 bytes past the end of", block, 4000);
    if (sigsetjmp(back, 1) == 0) {
        write_at(block + 4000);
    }
    must_be(handled == 1);
    say("...  allocated by thread 1\n");
    exit(0);
}

static unsigned blocks_until_in_front(void) {
    struct sigaction now;
    unsigned count = 0;
    install(leap, 0);
    do {
        free(must(malloc(32)));
        count++;
        sigaction(SIGSEGV, NULL, &now);
    } while (now.sa_handler == leap);
    return count;
}

/* A handler that comes later stands in front until 64 blocks were sampled, and is not asked after more often.
 */
static void own_handler_stands_in_front_for_64_blocks(void) {
    must_be(blocks_until_in_front() <= 64);
    must_be(blocks_until_in_front() <= 64); /* the first stacks cost blocks of the C library's own */
    must_be(blocks_until_in_front() == 64);
    say("sound\n");
    exit(0);
}

/* A handler that hands on to the one that it found, which was hakmem's, and comes to stand behind it. */
static struct sigaction found;

static void hand_on(int signal, siginfo_t *info, void *context) {
    handled++;
    must_be(handled == 1 && (found.sa_flags & SA_SIGINFO) != 0);
    found.sa_sigaction(signal, info, context);
}

/* In place of hakmem's, which then comes to stand in front. */
static void install_behind(void (*handler)(int), int flags, struct sigaction *instead_of) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    ask_for_blocks();
    sigaction(SIGSEGV, &action, instead_of);
    ask_for_blocks();
}

static void install_that_hands_on(void) {
    struct sigaction action = {.sa_sigaction = hand_on, .sa_flags = SA_SIGINFO};
    install_behind(action.sa_handler, SA_SIGINFO, &found);
}

/* Handed on in a circle, the fault is reported once and then ends the program. */
static void handler_that_hands_on_is_called_once(void) {
    install_that_hands_on();
    char *block = must(malloc(4000));
    expect_segv("write 0 bytes past the end of", block, 4000);
    write_at(block + 4000);
}

static void handler_that_hands_on_a_sent_signal(void) {
    install_that_hands_on();
    say("\n");
    raise(SIGSEGV);
}

/* Sent, not made by an access: as if hakmem's handler were not there. */
static void a_sent_signal_ends_the_program(void) {
    say("\n");
    raise(SIGSEGV);
}

static void a_sent_signal_is_ignored_if_that_was_asked_for(void) {
    install(SIG_IGN, 0);
    ask_for_blocks();
    raise(SIGSEGV);
    raise(SIGSEGV);
    say("sound\n");
    exit(0);
}

/* An ignored signal stays ignored in the next program, which a handled one does not. */
static void an_ignored_signal_stays_ignored_across_exec(void) {
    struct sigaction now;
    if (getenv("IS_NEXT_PROGRAM") == NULL) {
        install(SIG_IGN, 0);
        ask_for_blocks();
        setenv("IS_NEXT_PROGRAM", "1", 1);
        execl("/proc/self/exe", "segv_handlers", "sound_an_ignored_signal_stays_ignored_across_exec", NULL);
    }
    ask_for_blocks();
    must_be(sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_handler == SIG_IGN);
    raise(SIGSEGV);
    say("sound\n");
    exit(0);
}

/* A fault that was to be ignored ends the program all the same, but there is no report. */
static void an_ignored_fault_is_not_reported(void) {
    install(SIG_IGN, 0);
    ask_for_blocks();
    char *block = must(malloc(4000));
    say("\n");
    write_at(block + 4000);
}

static void handler_after_an_ignored_signal_comes_after_the_report(void) {
    install(SIG_IGN, 0);
    ask_for_blocks();
    own_handler_comes_after_the_report();
}

static void handler_that_resets_is_called_once(void) {
    install(leap, (int)SA_RESETHAND);
    ask_for_blocks();
    fault_and_leap();
    must_be(handled == 1);
    say("\n");
    write_at((char *)16);
}

/* What it found is then hakmem's in front of itself. */
static void handler_that_was_installed_twice_is_called_once(void) {
    install_that_hands_on();
    install_that_hands_on();
    say("\n");
    write_at((char *)16);
}

static void hand_on_all(int signal, siginfo_t *info, void *context) {
    handled++;
    found.sa_sigaction(signal, info, context);
}

/* Without hakmem the second would call the first as a function: it is not the one that stands for once. */
static void handler_before_one_that_resets_stays(void) {
    install(leap, (int)SA_RESETHAND);
    struct sigaction action = {.sa_sigaction = hand_on_all, .sa_flags = SA_SIGINFO};
    install_behind(action.sa_handler, SA_SIGINFO, &found);
    fault_three_times();
    must_be(handled == 6); /* three of each */
    say("sound\n");
    exit(0);
}

/* Jumped out of, a signal leaves nothing behind: the next one has its frame at the same place. */
static void handler_in_front_again_hands_on_another_signal(void) {
    struct sigaction action = {.sa_sigaction = hand_on_all, .sa_flags = SA_SIGINFO};
    install(leap, 0);
    install_behind(action.sa_handler, SA_SIGINFO, &found);
    fault_and_leap();
    sigaction(SIGSEGV, &action, NULL);
    fault_and_leap();
    must_be(handled == 4); /* two of each */
    say("sound\n");
    exit(0);
}

/* ---- handlers that come and go ---- */

static void put_back(int signal) {
    handled++;
    must_be(handled == 1);
    sigaction(signal, &found, NULL);
}

static void put_back_and_raise(int signal) {
    put_back(signal);
    raise(signal);
}

/* What it found was the default, which stands again when the instruction faults once more. */
static void handler_that_puts_back_what_it_found(void) {
    install_behind(put_back, 0, &found);
    say("\n");
    write_at((char *)16);
}

/* Reported before the handler, and not again. */
static void handler_that_puts_back_what_it_found_comes_after_the_report(void) {
    install_behind(put_back, 0, &found);
    char *block = must(malloc(4000));
    expect_segv("write 0 bytes past the end of", block, 4000);
    write_at(block + 4000);
}

/* As python's faulthandler does it. */
static void handler_that_puts_back_what_it_found_and_raises(void) {
    install_behind(put_back_and_raise, (int)SA_NODEFER, &found);
    say("\n");
    write_at((char *)16);
}

static void must_not_come(int signal) {
    (void)signal;
    must_be(false);
}

static void removed_handler_is_not_called(void) {
    install_behind(must_not_come, 0, &found);
    sigaction(SIGSEGV, &found, NULL);
    ask_for_blocks();
    say("\n");
    write_at((char *)16);
}

static void removed_by_the_default_it_is_not_called(void) {
    install_behind(must_not_come, 0, &found);
    install(SIG_DFL, 0);
    ask_for_blocks();
    say("\n");
    write_at((char *)16);
}

static volatile sig_atomic_t last;

/* clang-format off */
#define LAYER_TABLE(ROW) \
    ROW(1) ROW(2) ROW(3) ROW(4) ROW(5) ROW(6) ROW(7) ROW(8) ROW(9) ROW(10) \
    ROW(11) ROW(12) ROW(13) ROW(14) ROW(15) ROW(16) ROW(17) ROW(18) ROW(19) ROW(20)
/* clang-format on */
#define LAYER(number)                                                                                        \
    static void layer_##number(int signal) {                                                                 \
        (void)signal;                                                                                        \
        last = number;                                                                                       \
        siglongjmp(back, 1);                                                                                 \
    }
LAYER_TABLE(LAYER)
#define LAYER_ADDRESS(number) layer_##number,
static void (*const layers[])(int) = {LAYER_TABLE(LAYER_ADDRESS)};
#define LAYERS (int)COUNT_OF(layers)

static void fault_comes_to(int layer) {
    last = 0;
    fault_and_leap();
    must_be(last == layer);
}

/* More than hakmem keeps in mind: the topmost ones stay in front. */
static void handlers_in_layers_come_to_light_again(void) {
    static struct sigaction below[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        install_behind(layers[i], i % 2 == 0 ? 0 : SA_NODEFER, &below[i]);
        fault_comes_to(i + 1);
    }
    for (int i = LAYERS - 1; i > 0; i--) {
        sigaction(SIGSEGV, &below[i], NULL);
        fault_comes_to(i);
        ask_for_blocks();
        fault_comes_to(i);
    }
    say("sound\n");
    exit(0);
}

/* A hundred times each, they are two. */
static void handlers_that_take_turns_are_no_new_ones(void) {
    struct sigaction now;
    for (int i = 0; i < 200; i++) {
        install(layers[i % 2], 0);
        for (unsigned k = 0; k < 64; k++) {
            free(must(malloc(32)));
        }
        sigaction(SIGSEGV, NULL, &now);
        must_be(now.sa_handler != layers[i % 2]);
        fault_comes_to(i % 2 + 1);
    }
    say("sound\n");
    exit(0);
}

/* ---- handlers without information ---- */

#define FILLED_WORDS 8192u

/* Leaves below the stack what reads as a fault at that address, at each multiple of 16. */
__attribute__((noinline)) static void leave_a_fault_on_the_stack(const void *address) {
    uintptr_t words[FILLED_WORDS];
    for (unsigned i = 0; i < FILLED_WORDS; i += 2) {
        words[i] = (uintptr_t)address;
        words[i + 1] = SEGV_MAPERR;
    }
    (void)launder(words);
}

/* A handler of a signal that is sent then, without information, finds that fault. */
static void send_with_a_fault_on_the_stack(const void *address) {
    raise(SIGCHLD); /* ignored, but the loader has looked the function up and leaves the stack alone later */
    leave_a_fault_on_the_stack(address);
    raise(SIGSEGV);
}

/* signal() puts back a handler that gets the number alone. */
static void put_back_by_signal(void) {
    ask_for_blocks();
    void (*old)(int) = signal(SIGSEGV, leap);
    ask_for_blocks();
    fault_and_leap();
    signal(SIGSEGV, old);
}

static void handler_put_back_by_signal_takes_nothing_for_information(void) {
    char *block = must(malloc(4000));
    put_back_by_signal();
    say("\n");
    send_with_a_fault_on_the_stack(block + 4000);
}

static void handler_put_back_by_signal_has_information_later(void) {
    put_back_by_signal();
    ask_for_blocks();
    char *block = must(malloc(4000));
    expect_segv("write 0 bytes past the end of", block, 4000);
    write_at(block + 4000);
}

static void hand_on_the_number(int signal) {
    handled++;
    found.sa_sigaction(signal, NULL, NULL);
}

__attribute__((noinline)) static void fault_further_down(void) {
    char room[4096];
    fault_and_leap();
    (void)launder(room);
}

/* It got no more itself, and calls what signal() returned to it as such. One signal is not taken for another.
 */
static void handler_that_hands_on_the_number_alone(void) {
    install(leap, 0);
    ask_for_blocks();
    found.sa_handler = signal(SIGSEGV, hand_on_the_number);
    must_be(found.sa_handler != leap);
    fault_and_leap();
    fault_further_down();
    fault_three_times();
    must_be(handled == 10); /* five of each */
    say("sound\n");
    exit(0);
}

static void handler_that_hands_on_the_number_of_a_sent_signal(void) {
    ask_for_blocks();
    found.sa_handler = signal(SIGSEGV, hand_on_the_number);
    char *block = must(malloc(4000));
    say("\n");
    send_with_a_fault_on_the_stack(block + 4000);
}

/* Not yet found by hakmem, it stands in front. */
static void handler_in_front_that_hands_on_all(void) {
    struct sigaction action = {.sa_sigaction = hand_on_all, .sa_flags = SA_SIGINFO};
    ask_for_blocks();
    char *block = must(malloc(4000));
    sigaction(SIGSEGV, &action, &found);
    expect_segv("write 0 bytes past the end of", block, 4000);
    write_at(block + 4000);
}

/* ---- the stack ---- */

/* Uses the stack up: the way past the report needs the other one. `depth` is out of reach. */
static unsigned recurse(unsigned depth) {
    volatile char here[4096];
    here[0] = (char)depth;
    return depth == UINT32_MAX ? 0 : recurse(depth + 1) + (unsigned)here[0];
}

static void stack_overflow_ends_on_the_other_stack(void) {
    static char other[SIGSTACK];
    stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    struct rlimit limit;
    must_be(getrlimit(RLIMIT_STACK, &limit) == 0);
    limit.rlim_cur = limit.rlim_cur < STACK_BYTES_MAX ? limit.rlim_cur : STACK_BYTES_MAX;
    must_be(setrlimit(RLIMIT_STACK, &limit) == 0);
    must_be(sigaltstack(&stack, NULL) == 0);
    install(leap, SA_ONSTACK);
    ask_for_blocks();
    if (sigsetjmp(back, 1) == 0) {
        (void)recurse(0);
    }
    must_be(handled == 1);
    say("sound\n");
    exit(0);
}

static const struct fault_case cases[] = {
    {"segv_silent_null_write", null_write},
    {"segv_silent_a_sent_signal_ends_the_program", a_sent_signal_ends_the_program},
    {"sound_a_sent_signal_is_ignored_if_that_was_asked_for", a_sent_signal_is_ignored_if_that_was_asked_for},
    {"sound_an_ignored_signal_stays_ignored_across_exec", an_ignored_signal_stays_ignored_across_exec},
    {"segv_silent_an_ignored_fault_is_not_reported", an_ignored_fault_is_not_reported},
    {"report_handler_after_an_ignored_signal_comes_after_the_report",
     handler_after_an_ignored_signal_comes_after_the_report},
    {"segv_silent_handler_that_resets_is_called_once", handler_that_resets_is_called_once},
    {"segv_handler_that_hands_on_is_called_once", handler_that_hands_on_is_called_once},
    {"segv_silent_handler_that_hands_on_a_sent_signal", handler_that_hands_on_a_sent_signal},
    {"segv_silent_handler_that_was_installed_twice_is_called_once",
     handler_that_was_installed_twice_is_called_once},
    {"sound_handler_before_one_that_resets_stays", handler_before_one_that_resets_stays},
    {"segv_silent_handler_that_puts_back_what_it_found", handler_that_puts_back_what_it_found},
    {"segv_handler_that_puts_back_what_it_found_comes_after_the_report",
     handler_that_puts_back_what_it_found_comes_after_the_report},
    {"segv_silent_handler_that_puts_back_what_it_found_and_raises",
     handler_that_puts_back_what_it_found_and_raises},
    {"segv_silent_removed_handler_is_not_called", removed_handler_is_not_called},
    {"segv_silent_removed_by_the_default_it_is_not_called", removed_by_the_default_it_is_not_called},
    {"sound_handler_in_front_again_hands_on_another_signal", handler_in_front_again_hands_on_another_signal},
    {"sound_handlers_in_layers_come_to_light_again", handlers_in_layers_come_to_light_again},
    {"sound_handlers_that_take_turns_are_no_new_ones", handlers_that_take_turns_are_no_new_ones},
    {"segv_silent_handler_put_back_by_signal_takes_nothing_for_information",
     handler_put_back_by_signal_takes_nothing_for_information},
    {"segv_handler_put_back_by_signal_has_information_later",
     handler_put_back_by_signal_has_information_later},
    {"sound_handler_that_hands_on_the_number_alone", handler_that_hands_on_the_number_alone},
    {"segv_silent_handler_that_hands_on_the_number_of_a_sent_signal",
     handler_that_hands_on_the_number_of_a_sent_signal},
    {"segv_handler_in_front_that_hands_on_all", handler_in_front_that_hands_on_all},
    {"report_own_handler_comes_after_the_report", own_handler_comes_after_the_report},
    {"sound_own_handler_stands_in_front_for_64_blocks", own_handler_stands_in_front_for_64_blocks},
    {"sound_own_handler_gets_other_faults", own_handler_gets_other_faults},
    {"sound_stack_overflow_ends_on_the_other_stack", stack_overflow_ends_on_the_other_stack},
};

int main(int argc, char **argv) {
    return segv_main(argc, argv, cases, COUNT_OF(cases));
}
