/*
 * other_malloc.c - a program whose own malloc stands before every library's, of the kind that TEST_MALLOC
 * names.
 *
 * own: served from an array, and not to be called before main() has made it ready, as in GNU Common Lisp.
 * forwards: handed on to the next malloc; to be called again from there would be a deadlock.
 * With an argument, frees a block twice. Started by other_malloc_test.sh.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_NEXT */
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARRAY_BYTES ((size_t)1 << 20)
#define ALIGN_BYTES 16u

static bool is_ready;
static _Thread_local bool is_inside;
static _Alignas(ALIGN_BYTES) char array[ARRAY_BYTES];
static _Atomic size_t used_bytes;

static void die(const char *why) {
    (void)!write(STDERR_FILENO, why, strlen(why));
    abort();
}

static bool has_own(void) {
    static int kind;
    if (kind == 0) {
        const char *name = getenv("TEST_MALLOC");
        kind = name != NULL && strcmp(name, "own") == 0 ? 1 : 2;
    }
    return kind == 1;
}

/* The function of that name behind this program, about to be called. */
static void *enter(const char *name) {
    if (is_inside) {
        die("the program's malloc was called from behind itself\n");
    }
    is_inside = true;
    return dlsym(RTLD_NEXT, name);
}

static void *own_alloc(size_t bytes) {
    if (!is_ready) {
        die("the program's malloc was called before main()\n");
    }
    size_t taken_bytes = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES + ALIGN_BYTES;
    size_t start = atomic_fetch_add(&used_bytes, taken_bytes);
    if (start + taken_bytes > ARRAY_BYTES) {
        return NULL;
    }
    char *block = array + start + ALIGN_BYTES;
    memcpy(block - sizeof bytes, &bytes, sizeof bytes);
    return block;
}

void *malloc(size_t bytes) {
    if (has_own()) {
        return own_alloc(bytes);
    }
    void *block = ((void *(*)(size_t))enter("malloc"))(bytes);
    is_inside = false;
    return block;
}

void *calloc(size_t count, size_t bytes) {
    if (has_own()) {
        return own_alloc(count * bytes);
    }
    void *block = ((void *(*)(size_t, size_t))enter("calloc"))(count, bytes);
    is_inside = false;
    return block;
}

void *realloc(void *block, size_t bytes) {
    if (has_own()) {
        size_t old_bytes = 0;
        char *moved = own_alloc(bytes);
        if (moved != NULL && block != NULL) {
            memcpy(&old_bytes, (char *)block - sizeof old_bytes, sizeof old_bytes);
            memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
        }
        return moved;
    }
    void *moved = ((void *(*)(void *, size_t))enter("realloc"))(block, bytes);
    is_inside = false;
    return moved;
}

void free(void *block) {
    if (!has_own()) {
        ((void (*)(void *))enter("free"))(block);
        is_inside = false;
    } else if (!is_ready) {
        die("the program's free was called before main()\n");
    }
}

__attribute__((noinline)) static void *allocate(void *unused) {
    (void)unused;
    for (size_t bytes = 1; bytes < 2000; bytes += 100) {
        void *block = malloc(bytes);
        memset(block, 1, bytes);
        free(block);
    }
    return malloc(100);
}

int main(int argc, char **argv) {
    void *block;
    pthread_t thread;
    (void)argv;
    is_ready = true;
    free(allocate(NULL));
    if (pthread_create(&thread, NULL, allocate, NULL) != 0 || pthread_join(thread, &block) != 0) {
        return 1;
    }
    free(block);
    if (argc > 1) {
        free(block);
    }
    puts("well");
    return 0;
}
