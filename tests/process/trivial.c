/*
 * trivial.c - the smallest program that uses malloc: prints its VSZ and RSS in KiB, then its open
 * descriptors.
 *
 * Started by footprint_test with and without hakmem. Reads with plain system calls into static memory.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[4096];

/* The descriptor that the file was read by, or -1. */
static int read_text(const char *path) {
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (got <= 0) {
        return -1;
    }
    text[got] = '\0';
    close(fd);
    return fd;
}

int main(void) {
    void *volatile block = malloc(100);
    free(block);
    unsigned long vsz_pages = 0, rss_kib = 0;
    int fd = read_text("/proc/self/statm");
    if (fd < 0 || sscanf(text, "%lu", &vsz_pages) != 1) {
        return 1;
    }
    /* Not statm's: that is a sum of per-processor counters, off by some hundred KiB. */
    const char *rss = read_text("/proc/self/smaps_rollup") < 0 ? NULL : strstr(text, "Rss:");
    if (rss == NULL || sscanf(rss, "Rss: %lu", &rss_kib) != 1) {
        return 1;
    }
    unsigned long page_kib = (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
    int length = snprintf(text, sizeof text, "%lu %lu %d\n", vsz_pages * page_kib, rss_kib, fd);
    return write(STDOUT_FILENO, text, (size_t)length) == length ? 0 : 1;
}
