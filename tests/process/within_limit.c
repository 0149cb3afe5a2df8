/*
 * within_limit.c - fills most of a memory limit with blocks of one size, frees them, goes on to the next
 * size.
 *
 * `within_limit MIB`: each round has MIB of blocks, all written to. What one round freed must be given back
 * or used again by the next, whatever its size, or the limit is passed and the kernel ends the program.
 * Prints "done".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 3

static const size_t sizes[] = {16, 100, 1000, 9000, 32000, 70000, 700000, 3000000, 20000000};

/* A list through the blocks themselves, so that nothing else is held. */
static int fill_and_free(size_t block_bytes, size_t bytes) {
    void *list = NULL;
    for (size_t used = 0; used + block_bytes <= bytes; used += block_bytes) {
        void *block = malloc(block_bytes);
        if (block == NULL) {
            return 1;
        }
        memset(block, 0x5A, block_bytes);
        memcpy(block, &list, sizeof list);
        list = block;
    }
    while (list != NULL) {
        void *next;
        memcpy(&next, list, sizeof next);
        free(list);
        list = next;
    }
    return 0;
}

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 40) << 20;
    for (unsigned i = 0; i < ROUNDS * sizeof sizes / sizeof sizes[0]; i++) {
        if (fill_and_free(sizes[i * 5 % (sizeof sizes / sizeof sizes[0])], bytes) != 0) {
            return 1;
        }
    }
    puts("done");
    return 0;
}
