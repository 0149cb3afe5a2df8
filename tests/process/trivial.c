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

int main(void) {
    void *volatile block = malloc(100);
    free(block);
    int fd = open("/proc/self/statm", O_RDONLY);
    ssize_t got = read(fd, text, sizeof text - 1);
    if (fd < 0 || got <= 0) {
        return 1;
    }
    close(fd);
    unsigned long pages = 0, resident_pages = 0;
    if (sscanf(text, "%lu %lu", &pages, &resident_pages) != 2) {
        return 1;
    }
    unsigned long page_kib = (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
    int length = snprintf(text, sizeof text, "%lu %lu %d\n", pages * page_kib, resident_pages * page_kib, fd);
    return write(STDOUT_FILENO, text, (size_t)length) == length ? 0 : 1;
}
