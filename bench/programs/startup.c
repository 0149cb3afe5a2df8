// startup: start a trivial program again and again.
//
// Imitates: shell scripts and build systems, which start thousands of short programs under the preload. The
// child is this program itself: one malloc, one free, the end. The working set is the size of that block.
// One op is one start: fork, exec, dynamic linking, the allocator's constructor, exit and wait.
// Metrics: resident set and address space of the child just before its end. Before the timing, one
// child names the object that its malloc comes from; it must be the parent's.
#include "../lib/bench.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct child_report {
    uint64_t rss_bytes;
    uint64_t vsz_bytes;
    char malloc_object[4096];
};

// The child: with a report to write, it goes to the pipe on standard output.
static int child_main(size_t bytes, bool has_report) {
    free(bench_opaque(malloc(bytes)));
    if (has_report) {
        static struct child_report report;
        report.rss_bytes = bench_rss_bytes();
        report.vsz_bytes = bench_vsz_bytes();
        strncpy(report.malloc_object, bench_malloc_object(), sizeof report.malloc_object - 1);
        if (write(STDOUT_FILENO, &report, sizeof report) != (ssize_t)sizeof report) {
            return BENCH_EXIT_SYSTEM;
        }
    }
    return 0;
}

static void start_child(char *path, char *bytes, char *kind, const posix_spawn_file_actions_t *actions) {
    char *argv[] = {path, kind, bytes, NULL};
    pid_t pid;
    int status;
    if (posix_spawn(&pid, "/proc/self/exe", actions, NULL, argv, environ) != 0) {
        bench_die_system("cannot start the child");
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        bench_die_system("the child failed");
    }
}

static void verify_child(char *path, char *bytes, struct child_report *report) {
    int ends[2];
    posix_spawn_file_actions_t actions;
    if (pipe(ends) != 0) {
        bench_die_system("pipe failed");
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    start_child(path, bytes, "--child-report", &actions);
    if (read(ends[0], report, sizeof *report) != (ssize_t)sizeof *report) {
        bench_die_system("the child's report is short");
    }
    close(ends[0]);
    close(ends[1]);
    posix_spawn_file_actions_destroy(&actions);
    // The executable is named by whatever path it was started with, a library by its own: a malloc that is
    // linked in compares through argv[0], which the child got from us.
    if (strcmp(report->malloc_object, bench_malloc_object()) != 0) {
        fprintf(stderr, "the child's malloc comes from %s\n", report->malloc_object);
        bench_die_system("the child runs with another malloc");
    }
}

int main(int argc, char **argv) {
    if (argc == 3 && strncmp(argv[1], "--child", 7) == 0) {
        return child_main((size_t)strtoull(argv[2], NULL, 10), strcmp(argv[1], "--child-report") == 0);
    }
    static const struct bench_spec spec = {
        .name = "startup",
        .imitates = "scripts and builds that start many short programs",
        .iterations = 100,
        .working_set = 100,
        .seed = 42,
    };
    static struct child_report report;
    struct bench_args args;
    struct bench_result result = {0};
    struct bench_timer timer;
    char bytes[32];
    bench_parse(&spec, argc, argv, &args);
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)args.working_set);
    verify_child(argv[0], bytes, &report);
    bench_start(&timer);
    for (uint64_t i = 0; i < args.iterations; i++) {
        start_child(argv[0], bytes, "--child", NULL);
    }
    bench_stop(&timer, &result);
    bench_metric_add(&result, "child_rss", "MiB", (double)report.rss_bytes / (1024.0 * 1024.0));
    bench_metric_add(&result, "child_vsz", "MiB", (double)report.vsz_bytes / (1024.0 * 1024.0));
    result.ops = args.iterations;
    bench_report(&args, &result);
    return 0;
}
