// witness: a preloaded library that says which object a program's malloc comes from.
//
// Does: at start, append one line "PID PATH" to the file named by BENCH_WITNESS, in every process of a
// command that the runner compares; the runner refuses a run whose processes did not use the allocator they
// should. Does not: provide or wrap any function, or serve the programs of bench/ (they report by
// themselves, so nothing is added to what they measure). A static or setuid program loads no preload: no
// line, no result.
#include "../lib/provider.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void testify(void) {
    const char *path = getenv("BENCH_WITNESS");
    char line[4200];
    if (path == NULL) {
        return;
    }
    const char *object = provider_of("malloc");
    const char *mixed = strcmp(object, provider_of("free")) != 0 ? " (but free from elsewhere)" : "";
    int length = snprintf(line, sizeof line, "%ld %s%s\n", (long)getpid(), object, mixed);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    // One write: lines of processes that start at once do not mix. A short or failed write is a missing
    // line, which the runner reports.
    if (fd >= 0 && write(fd, line, (size_t)length) == length) {
        close(fd);
    }
}
