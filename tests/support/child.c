/*
 * child.c - see child.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_DEFAULT_S 60u
#define STATUS_NOT_SET_UP 126

static void set_environment(const char *const *changes) {
    for (size_t i = 0; i < CHILD_ARGS_MAX && changes[i] != NULL; i++) {
        if (strchr(changes[i], '=') != NULL) {
            (void)putenv((char *)changes[i]);
        } else {
            (void)unsetenv(changes[i]);
        }
    }
}

static void become_child(struct child *child, int out_fd, int err_fd) {
    dup2(out_fd, STDOUT_FILENO);
    dup2(err_fd, STDERR_FILENO);
    close(out_fd);
    close(err_fd);
    if (child->function != NULL) {
        _exit(child->function(child->context));
    }
    set_environment(child->environment);
    if (child->prepare != NULL && child->prepare(child->context) != 0) {
        _exit(STATUS_NOT_SET_UP);
    }
    const char *arguments[CHILD_ARGS_MAX + 2] = {child->program};
    memcpy(arguments + 1, child->arguments, sizeof child->arguments);
    execv(child->program, (char *const *)arguments);
    _exit(STATUS_NOT_SET_UP);
}

/* Reads what is there; false at the end of the stream. What does not fit is dropped. */
static bool read_some(int fd, char *text, size_t *used_bytes) {
    char scratch[4096];
    ssize_t got = read(fd, scratch, sizeof scratch);
    if (got < 0) {
        return errno == EINTR || errno == EAGAIN;
    }
    size_t room = CHILD_OUTPUT_MAX - 1 - *used_bytes;
    size_t taken = (size_t)got < room ? (size_t)got : room;
    memcpy(text + *used_bytes, scratch, taken);
    *used_bytes += taken;
    text[*used_bytes] = '\0';
    return got != 0;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void collect(struct child *child, pid_t pid, int out_fd, int err_fd) {
    unsigned timeout_s = child->timeout_s != 0 ? child->timeout_s : TIMEOUT_DEFAULT_S;
    int64_t deadline_ms = now_ms() + (int64_t)timeout_s * 1000;
    struct pollfd streams[2] = {{out_fd, POLLIN, 0}, {err_fd, POLLIN, 0}};
    while (streams[0].fd >= 0 || streams[1].fd >= 0) {
        int64_t left_ms = deadline_ms - now_ms();
        if (left_ms <= 0) {
            child->is_timed_out = true;
            kill(pid, SIGKILL);
            break;
        }
        (void)poll(streams, 2, (int)left_ms);
        if ((streams[0].revents & (POLLIN | POLLHUP)) && !read_some(out_fd, child->out, &child->out_bytes)) {
            streams[0].fd = -1;
        }
        if ((streams[1].revents & (POLLIN | POLLHUP)) && !read_some(err_fd, child->err, &child->err_bytes)) {
            streams[1].fd = -1;
        }
        streams[0].revents = streams[1].revents = 0;
    }
    while (waitpid(pid, &child->status, 0) < 0 && errno == EINTR) {
    }
}

void child_run(struct child *child) {
    int out[2], err[2];
    child->is_timed_out = false;
    child->out_bytes = child->err_bytes = 0;
    child->out[0] = child->err[0] = '\0';
    fflush(NULL);
    CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        become_child(child, out[1], err[1]);
    }
    close(out[1]);
    close(err[1]);
    collect(child, pid, out[0], err[0]);
    close(out[0]);
    close(err[0]);
}

bool child_succeeded(const struct child *child) {
    return child_exit_status(child) == 0;
}

int child_exit_status(const struct child *child) {
    return !child->is_timed_out && WIFEXITED(child->status) ? WEXITSTATUS(child->status) : -1;
}

int child_signal(const struct child *child) {
    return WIFSIGNALED(child->status) ? WTERMSIG(child->status) : 0;
}

void child_report(const struct child *child) {
    const char *end = child->is_timed_out        ? "was killed: out of time"
                      : child_signal(child) != 0 ? strsignal(child_signal(child))
                                                 : "exited";
    print_error("child %s, status %d\n--- stdout\n%s--- stderr\n%s---\n", end, child_exit_status(child),
                child->out, child->err);
}

void assert_child_succeeded(const struct child *child) {
    if (child_exit_status(child) == CHILD_SKIP) {
        print_message("SKIP %s", child->out);
        skip();
    }
    if (!child_succeeded(child)) {
        child_report(child);
        fail();
    }
}

void assert_function_succeeds(int (*function)(void *context)) {
    static struct child child;
    child = (struct child){.function = function};
    child_run(&child);
    assert_child_succeeded(&child);
}

void assert_part_succeeds(const char *part, const char *setting) {
    static struct child child;
    child = (struct child){
        .program = own_path(), .arguments = {part}, .environment = {"HAKMEM_CHECK=0", setting}};
    child_run(&child);
    assert_child_succeeded(&child);
}

const struct part *part_asked_for(const struct part *parts, size_t count, int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < count; i++) {
        if (strcmp(parts[i].name, argv[1]) == 0) {
            return &parts[i];
        }
    }
    return NULL;
}

const char *own_path(void) {
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(length > 0);
    path[length] = '\0';
    return path;
}

const char *path_beside(const char *name) {
    static char path[PATH_MAX];
    const char *own = own_path();
    size_t folder_length = (size_t)(strrchr(own, '/') + 1 - own);
    CHECK(folder_length + strlen(name) < sizeof path);
    memcpy(path, own, folder_length);
    strcpy(path + folder_length, name);
    return path;
}
