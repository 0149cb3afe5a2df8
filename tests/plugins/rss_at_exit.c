/*
 * rss_at_exit.c - preloaded beside hakmem: when the program ends, its resident size in KiB is added as a line
 * to the file that TEST_RSS_FILE names. Makes system calls alone; allocates nothing.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[4096];

/* The digits behind "Rss:" and a newline, or nothing. */
static char *resident_line(void) {
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    char *rss = got > 0 ? strstr(text, "Rss:") : NULL;
    if (rss == NULL) {
        return NULL;
    }
    rss += strcspn(rss, "0123456789");
    char *end = rss + strspn(rss, "0123456789");
    end[0] = '\n';
    end[1] = '\0';
    return rss;
}

__attribute__((destructor)) static void write_resident_size(void) {
    const char *path = getenv("TEST_RSS_FILE");
    char *line = path != NULL ? resident_line() : NULL;
    int fd = line != NULL ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        ssize_t written = write(fd, line, strlen(line));
        (void)written;
        close(fd);
    }
}
