/*
 * dlopen_test.c - hakmem and dlopen: libraries opened with RTLD_DEEPBIND, and hakmem opened itself.
 *
 * With RTLD_DEEPBIND a library is bound to libc's malloc and free, not to the preloaded ones. By default
 * hakmem takes the flag away; with HAKMEM_DEEPBIND=keep it stays, and hakmem's free then gives pointers that
 * it does not know to libc. Each case is a child, as the setting is read at start.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/child.h"
#include "support/target.h"
#include "support/test.h"

#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct child child;

static const char *plugin_path(const char *name) {
    static char path[4096];
    const char *folder = getenv("TEST_PLAIN");
    snprintf(path, sizeof path, "%s/plugins/%s.so", folder != NULL ? folder : ".", name);
    return path;
}

static bool by_dlmopen;

static void *open_plugin(const char *plugin) {
    int mode = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#ifdef LM_ID_BASE
    if (by_dlmopen) {
        return dlmopen(LM_ID_BASE, plugin_path(plugin), mode);
    }
#endif
    return dlopen(plugin_path(plugin), mode);
}

static void *symbol_of(const char *plugin, const char *symbol) {
    void *handle = open_plugin(plugin);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    void *address = dlsym(handle, symbol);
    CHECK(address != NULL);
    return address;
}

static int free_a_strdup(void) {
    size_t (*strdup_and_free)(const char *);
    void *address = symbol_of("deepbind_strdup", "plugin_strdup_and_free");
    memcpy(&strdup_and_free, &address, sizeof address);
    for (unsigned i = 0; i < 100; i++) {
        CHECK(strdup_and_free("a string of some length") == 23);
    }
    check_heap();
    return 0;
}

static int free_a_strdup_by_dlmopen(void) {
    by_dlmopen = true;
    return free_a_strdup();
}

static int free_memory_of_the_plugin(void) {
    void *(*plugin_malloc)(size_t);
    void *address = symbol_of("deepbind_own", "plugin_malloc");
    memcpy(&plugin_malloc, &address, sizeof address);
    for (size_t bytes = 1; bytes < 4 * MIB; bytes = bytes * 3 + 1) {
        unsigned char *block = plugin_malloc(bytes);
        CHECK(block != NULL && block[0] == 0x3C && block[bytes - 1] == 0x3C);
        CHECK(malloc_usable_size(block) >= bytes);
        block = realloc(block, bytes * 2);
        CHECK(block != NULL && block[0] == 0x3C && block[bytes - 1] == 0x3C);
        free(block);
        free(plugin_malloc(bytes));
    }
    check_heap();
    return 0;
}

/* Blocks of hakmem's, gone back to the system, and then memory that libc may get at the same addresses. */
static int free_memory_of_the_plugin_where_ours_was(void) {
    static void *ours[4000];
    void *(*plugin_malloc)(size_t);
    void *address = symbol_of("deepbind_own", "plugin_malloc");
    memcpy(&plugin_malloc, &address, sizeof address);
    for (size_t bytes = 4000; bytes < 4 * MIB; bytes *= 100) {
        size_t blocks = 16 * MIB / bytes;
        for (size_t i = 0; i < blocks && i < COUNT_OF(ours); i++) {
            ours[i] = malloc(bytes);
        }
        for (size_t i = 0; i < blocks && i < COUNT_OF(ours); i++) {
            free(ours[i]);
        }
        malloc_trim(0);
        for (unsigned i = 0; i < 40; i++) {
            free(plugin_malloc(3 * MIB / 2));
            CHECK(plugin_malloc(MIB) != NULL); /* stays, so that the next one lies elsewhere */
        }
    }
    check_heap();
    return 0;
}

static int give_the_plugin_memory(void) {
    void (*plugin_free)(void *);
    void *address = symbol_of("deepbind_own", "plugin_free");
    memcpy(&plugin_free, &address, sizeof address);
    for (size_t bytes = 1; bytes < 4 * MIB; bytes = bytes * 3 + 1) {
        plugin_free(malloc(bytes));
    }
    check_heap();
    return 0;
}

static int free_a_stack_pointer(void) {
    char local[64] = {0}; /* what lies before the pointer: libc takes it for a size, and may follow another */
    alarm(60);
    free(launder(local + 16));
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
} modes[] = {
    {"free-a-strdup", free_a_strdup},
    {"free-a-strdup-by-dlmopen", free_a_strdup_by_dlmopen},
    {"free-memory-of-the-plugin", free_memory_of_the_plugin},
    {"free-memory-where-ours-was", free_memory_of_the_plugin_where_ours_was},
    {"give-the-plugin-memory", give_the_plugin_memory},
    {"free-a-stack-pointer", free_a_stack_pointer},
};

static void run_child(const char *mode, const char *setting) {
    child = (struct child){.program = own_path(), .arguments = {mode}, .environment = {setting}};
    child_run(&child);
}

static void a_deepbind_library_may_free_a_strdup(void **state) {
    (void)state;
    REQUIRE_HAK();
    run_child("free-a-strdup", "HAKMEM_DEEPBIND");
    assert_child_succeeded(&child);
    run_child("free-a-strdup-by-dlmopen", "HAKMEM_DEEPBIND");
    assert_child_succeeded(&child);
}

static void a_deepbind_library_hands_out_and_takes_memory(void **state) {
    (void)state;
    REQUIRE_HAK();
    run_child("free-memory-of-the-plugin", "HAKMEM_DEEPBIND");
    assert_child_succeeded(&child);
    run_child("give-the-plugin-memory", "HAKMEM_DEEPBIND");
    assert_child_succeeded(&child);
}

static void with_keep_memory_of_a_deepbind_library_can_be_freed(void **state) {
    (void)state;
    REQUIRE_HAK();
    run_child("free-memory-of-the-plugin", "HAKMEM_DEEPBIND=keep");
    assert_child_succeeded(&child);
    run_child("free-memory-where-ours-was", "HAKMEM_DEEPBIND=keep");
    assert_child_succeeded(&child);
}

/* That the flag really stays is seen by what it breaks: libc's free is given a block of hakmem's, and aborts.
 */
static void with_keep_the_flag_stays(void **state) {
    (void)state;
    REQUIRE_HAK();
    static const char *const ways[] = {"free-a-strdup", "free-a-strdup-by-dlmopen"};
    for (unsigned i = 0; i < COUNT_OF(ways); i++) {
        run_child(ways[i], "HAKMEM_DEEPBIND=keep");
        assert_int_equal(child_signal(&child), SIGABRT);
        assert_null(strstr(child.err, "hakmem:"));
    }
}

static void without_keep_a_foreign_pointer_is_fatal(void **state) {
    (void)state;
    REQUIRE_HAK();
    run_child("free-a-stack-pointer", "HAKMEM_DEEPBIND");
    assert_int_equal(child_signal(&child), SIGABRT);
    assert_non_null(strstr(child.err, "hakmem: free(): pointer not from this heap 0x"));
}

static void with_keep_a_foreign_pointer_goes_to_libc(void **state) {
    (void)state;
    REQUIRE_HAK();
    run_child("free-a-stack-pointer", "HAKMEM_DEEPBIND=keep");
    assert_int_equal(child_signal(&child), SIGABRT);
    assert_null(strstr(child.err, "hakmem:"));
}

static void dlopen_still_fails_and_explains(void **state) {
    (void)state;
    assert_null(dlopen("/no/such/library.so", RTLD_NOW | RTLD_DEEPBIND));
    const char *why = dlerror();
    assert_non_null(why);
    assert_non_null(strstr(why, "/no/such/library.so"));
    assert_non_null(dlopen(NULL, RTLD_NOW));
}

static void hakmem_itself_can_be_opened_and_closed(void **state) {
    (void)state;
    REQUIRE_HAK();
    static char path[4096];
    const char *folder = getenv("TEST_PLAIN");
    snprintf(path, sizeof path, "%s/process/dlopen_self", folder != NULL ? folder : ".");
    child = (struct child){.program = path, .arguments = {library_path()}, .environment = {"LD_PRELOAD"}};
    child_run(&child);
    assert_child_succeeded(&child);
    assert_string_equal(child.err, "");
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < COUNT_OF(modes); i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            return modes[i].run();
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deepbind_library_may_free_a_strdup),
        cmocka_unit_test(a_deepbind_library_hands_out_and_takes_memory),
        cmocka_unit_test(with_keep_memory_of_a_deepbind_library_can_be_freed),
        cmocka_unit_test(with_keep_the_flag_stays),
        cmocka_unit_test(without_keep_a_foreign_pointer_is_fatal),
        cmocka_unit_test(with_keep_a_foreign_pointer_goes_to_libc),
        cmocka_unit_test(dlopen_still_fails_and_explains),
        cmocka_unit_test(hakmem_itself_can_be_opened_and_closed),
    };
    return cmocka_run_group_tests_name("dlopen", tests, NULL, heap_is_sound);
}
