/*
 * deepbind_own.c - a library that hands out memory of the malloc that it is bound to, and takes memory back.
 */
#include <stdlib.h>
#include <string.h>

/* Under RTLD_DEEPBIND these are libc's. */
void *plugin_malloc(size_t bytes) {
    void *block = malloc(bytes);
    return block != NULL ? memset(block, 0x3C, bytes) : NULL;
}

void plugin_free(void *block) {
    free(block);
}
