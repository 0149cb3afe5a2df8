// launch: run a command some times in a row and report what the kernel counted for it.
//
// Does: start the command in a process group of its own, kill the group when the time is up or when the
// runner goes away, and write one line of JSON to file descriptor 3: how it ended, wall time, the rusage of
// the whole tree, the room on the CPUs (room.h) before or after it, whichever is less, and the distance of
// two of them (distance.h), whichever is more. It exists because getrusage's peak RSS survives exec: a child
// started from Python would inherit Python's peak, some 20 MB, as its own. Linked statically, this program's
// peak is some 1 MB.
// Does not: set LD_PRELOAD (the runner passes the environment; a static program ignores it), touch the
// command's input or output, or measure anything finer than the process.
// Usage: launch LIMIT_SECONDS REPEAT COMMAND [ARGS...]
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../lib/bench.h"
#include "distance.h"
#include "room.h"

enum { REPORT_FD = 3 };

// What is around a run.
struct surroundings {
    double room;
    double distance_ns;
};

static struct surroundings look_around(void) {
    return (struct surroundings){.room = room_lowest(), .distance_ns = distance_ns()};
}

static void report(const char *status, int value, double wall_s, long runs, struct surroundings before) {
    struct rusage u;
    getrusage(RUSAGE_CHILDREN, &u);
    struct surroundings after = look_around();
    dprintf(REPORT_FD,
            "{\"status\": \"%s\", \"value\": %d, \"runs\": %ld, \"wall_s\": %.9f, \"user_s\": %.6f, "
            "\"system_s\": %.6f, \"peak_rss_kib\": %ld, \"minor_faults\": %ld, \"major_faults\": %ld, "
            "\"voluntary_switches\": %ld, \"involuntary_switches\": %ld, \"room\": %.3f, "
            "\"distance_ns\": %.1f}\n",
            status, value, runs, wall_s, (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec * 1e-6,
            (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec * 1e-6, u.ru_maxrss, u.ru_minflt,
            u.ru_majflt, u.ru_nvcsw, u.ru_nivcsw, before.room < after.room ? before.room : after.room,
            before.distance_ns > after.distance_ns ? before.distance_ns : after.distance_ns);
}

// In the child. An exec that fails tells its errno through the pipe, which a successful exec closes.
static _Noreturn void exec_command(char **argv, const sigset_t *old_mask, int error_fd) {
    setpgid(0, 0);
    close(REPORT_FD);
    sigprocmask(SIG_SETMASK, old_mask, NULL);
    execvp(argv[0], argv);
    int error = errno;
    if (write(error_fd, &error, sizeof error) != (ssize_t)sizeof error) {
        _exit(126);
    }
    _exit(127);
}

// Starts the command and returns its pid; on a failed exec stores the errno value in *error.
static pid_t start(char **argv, const sigset_t *old_mask, int *error) {
    int ends[2];
    *error = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        *error = errno;
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        exec_command(argv, old_mask, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        *error = errno;
    } else if (read(ends[0], error, sizeof *error) != (ssize_t)sizeof *error) {
        *error = 0;
    }
    close(ends[0]);
    return pid;
}

// Waits until the child ends (0), the time is up (SIGALRM) or the runner wants an end (its signal).
static int wait_for(pid_t pid, const sigset_t *signals, uint64_t deadline_ns, int *status) {
    for (;;) {
        if (waitpid(pid, status, WNOHANG) == pid) {
            return 0;
        }
        uint64_t now = bench_now_ns();
        if (now >= deadline_ns) {
            return SIGALRM;
        }
        uint64_t left = deadline_ns - now;
        struct timespec timeout = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
        int got = sigtimedwait(signals, NULL, &timeout);
        if (got > 0 && got != SIGCHLD) {
            return got;
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: launch LIMIT_SECONDS REPEAT COMMAND [ARGS...]\n");
        return BENCH_EXIT_USAGE;
    }
    double limit_s = strtod(argv[1], NULL);
    long repeat = strtol(argv[2], NULL, 10);
    sigset_t signals;
    sigset_t old_mask;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, &old_mask);
    prctl(PR_SET_PDEATHSIG, SIGTERM); // the runner was killed: do not go on without it
    struct surroundings before = look_around();
    uint64_t start_ns = bench_now_ns();
    uint64_t deadline_ns = start_ns + (uint64_t)(limit_s * 1e9);
    for (long run = 1; run <= repeat; run++) {
        int status = 0;
        int error;
        pid_t pid = start(argv + 3, &old_mask, &error);
        if (error != 0) {
            report("no-exec", error, 0, run, before);
            return 1;
        }
        int why = wait_for(pid, &signals, deadline_ns, &status);
        double wall_s = (double)(bench_now_ns() - start_ns) * 1e-9;
        kill(-pid, SIGKILL); // the child, or what it left behind
        if (why != 0) {
            waitpid(pid, &status, 0);
            report(why == SIGALRM ? "timeout" : "interrupted", why, wall_s, run, before);
            return 1;
        }
        if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0 || run == repeat) {
            report(WIFSIGNALED(status) ? "signal" : "exit",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), wall_s, run, before);
            return 0;
        }
    }
    return 0;
}
