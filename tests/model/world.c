/*
 * world.c - all memory of the library and its pool, put back between executions: pages are write-protected
 * once, the first write to one keeps a copy, and from then on it is copied back each time.
 */
#define _GNU_SOURCE
#include "model/checker.h"
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE       ((size_t)4096)
#define PAGES_MAX  8192u
#define POOL_BASE  ((uintptr_t)0x300000000000)
#define POOL_BYTES ((size_t)64 << 20) /* of each thread */

static struct range ranges[8];
static unsigned range_count;
static struct {
    char *page;
    char *copy;
} dirty[PAGES_MAX];
static unsigned dirty_count;
static char *copies; /* room for them, mapped beforehand: a handler must not allocate */

char *model_pool(size_t *bytes_per_thread) {
    *bytes_per_thread = POOL_BYTES;
    return (char *)POOL_BASE;
}

static int find_data(struct dl_phdr_info *info, size_t size, void *context) {
    (void)size;
    (void)context;
    if (strstr(info->dlpi_name, "libmodelled.so") == NULL) {
        return 0;
    }
    uintptr_t relro_end = 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
            relro_end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        }
    }
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD && (header->p_flags & PF_W) != 0) {
            uintptr_t start = info->dlpi_addr + header->p_vaddr;
            uintptr_t end = (start + header->p_memsz + PAGE - 1) & ~(PAGE - 1);
            start = (start > relro_end ? start : relro_end) & ~(PAGE - 1);
            ranges[range_count++] = (struct range){.start = (char *)start, .bytes = end - start};
        }
    }
    return 1;
}

unsigned world_ranges(struct range *out) {
    memcpy(out, ranges, range_count * sizeof *out);
    return range_count;
}

bool world_owns(uintptr_t address) {
    for (unsigned i = 0; i < range_count; i++) {
        if (address - (uintptr_t)ranges[i].start < ranges[i].bytes) {
            return true;
        }
    }
    return false;
}

static void on_fault(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(PAGE - 1));
    if (!world_owns((uintptr_t)page) || dirty_count == PAGES_MAX) {
        if (world_owns((uintptr_t)page) || current_thread == NOBODY) {
            signal(signal_number, SIG_DFL); /* the checker's own fault, or too many pages: the process ends */
            return;
        }
        model_fail("fault at address %p", info->si_addr);
    }
    char *copy = copies + dirty_count * PAGE;
    memcpy(copy, page, PAGE);
    dirty[dirty_count].page = page;
    dirty[dirty_count].copy = copy;
    dirty_count++;
    mprotect(page, PAGE, PROT_READ | PROT_WRITE);
}

void world_create(void) {
    dl_iterate_phdr(find_data, NULL);
    void *pool = mmap((void *)POOL_BASE, POOL_BYTES * (THREADS + 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    copies = mmap(NULL, PAGES_MAX * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
    if (range_count == 0 || pool != (void *)POOL_BASE || copies == MAP_FAILED) {
        perror("model: memory");
        exit(2);
    }
    ranges[range_count++] = (struct range){.start = pool, .bytes = POOL_BYTES * (THREADS + 1)};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
}

void world_save(void) {
    dirty_count = 0;
    for (unsigned i = 0; i < range_count; i++) {
        mprotect(ranges[i].start, ranges[i].bytes, PROT_READ);
    }
}

void world_restore(void) {
    for (unsigned i = 0; i < dirty_count; i++) {
        memcpy(dirty[i].page, dirty[i].copy, PAGE);
    }
}
