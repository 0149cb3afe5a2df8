// witness: a preloaded library that says which object a program's malloc comes from.
//
// Does: at start, append one line "PID PATH" to the file named by BENCH_WITNESS, in every process of a
// command that the runner compares; the runner refuses a run whose processes did not use the allocator they
// should. Does not: provide or wrap any function, allocate, or serve the programs of bench/ (they report by
// themselves, so nothing is added to what they measure). A static or setuid program loads no preload: no
// line, no result.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void testify(void) {
    const char *path = getenv("BENCH_WITNESS");
    Dl_info malloc_info;
    Dl_info free_info;
    char line[4200];
    if (path == NULL || dladdr(dlsym(RTLD_DEFAULT, "malloc"), &malloc_info) == 0 ||
        dladdr(dlsym(RTLD_DEFAULT, "free"), &free_info) == 0) {
        return;
    }
    bool is_mixed = strcmp(malloc_info.dli_fname, free_info.dli_fname) != 0;
    int length = snprintf(line, sizeof line, "%ld %s%s\n", (long)getpid(), malloc_info.dli_fname,
                          is_mixed ? " (but free from elsewhere)" : "");
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd >= 0) {
        // One write: lines of processes that start at once do not mix. A short or failed write is a
        // missing line, which the runner reports.
        if (write(fd, line, (size_t)length) != length) {
            close(fd);
            return;
        }
        close(fd);
    }
}
