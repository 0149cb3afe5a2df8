/*
 * dlopen_self.c - a program on libc's malloc that opens hakmem with dlopen, uses it, and closes it again.
 *
 * Started by dlopen_test with the library's path as argument and nothing preloaded. Exits 0 when all is well.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "dlopen_self: line %d: %s: %s\n", __LINE__, #condition, dlerror());              \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

static void *(*hak_malloc)(size_t);
static void (*hak_free)(void *);
static bool (*hak_owns)(const void *);
static int (*hak_verify)(char *, size_t);

static void find(void *handle, const char *name, void *function) {
    void *symbol = dlsym(handle, name);
    REQUIRE(symbol != NULL);
    memcpy(function, &symbol, sizeof symbol);
}

static void use(void) {
    static const size_t sizes[] = {1, 64, 1000, 5000, 30000, 100000, 3u << 20};
    for (unsigned round = 0; round < 50; round++) {
        void *blocks[sizeof sizes / sizeof sizes[0]];
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            blocks[i] = hak_malloc(sizes[i]);
            REQUIRE(blocks[i] != NULL && hak_owns(blocks[i]));
            memset(blocks[i], 1, sizes[i]);
        }
        void *foreign = malloc(100);
        REQUIRE(foreign != NULL && !hak_owns(foreign));
        free(foreign);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            hak_free(blocks[i]);
        }
    }
}

static pthread_barrier_t used, closed;

static void *use_then_outlive(void *unused) {
    use();
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return unused;
}

static void *use_only(void *unused) {
    use();
    return unused;
}

int main(int argc, char **argv) {
    pthread_t before, after;
    REQUIRE(argc == 2);
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&closed, NULL, 2);
    void *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle != NULL);
    find(handle, "hak_malloc", &hak_malloc);
    find(handle, "hak_free", &hak_free);
    find(handle, "hak_owns", &hak_owns);
    find(handle, "hak_verify", &hak_verify);
    use();
    REQUIRE(pthread_create(&before, NULL, use_then_outlive, NULL) == 0);
    pthread_barrier_wait(&used);
    REQUIRE(hak_verify(NULL, 0) == 0);
    REQUIRE(dlclose(handle) == 0);
    pthread_barrier_wait(&closed);
    REQUIRE(pthread_join(before, NULL) == 0);
    /* It may have stayed (it has to, while threads know it): opening it again must work as at first. */
    handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle != NULL);
    find(handle, "hak_malloc", &hak_malloc);
    find(handle, "hak_free", &hak_free);
    find(handle, "hak_owns", &hak_owns);
    find(handle, "hak_verify", &hak_verify);
    REQUIRE(pthread_create(&after, NULL, use_only, NULL) == 0);
    REQUIRE(pthread_join(after, NULL) == 0);
    REQUIRE(hak_verify(NULL, 0) == 0);
    REQUIRE(dlclose(handle) == 0);
    free(malloc(1000));
    return 0;
}
